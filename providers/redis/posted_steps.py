"""Records of a claimed task's steps that are sent without waiting: of one call, or of several steps together."""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from redis.exceptions import NoScriptError

from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage, counters_text, text_of_one
from runner.journal.recorder import BegunStep, DoneStep, are_own
from runner.providers.redis import scripts
from runner.providers.redis.claimed_steps import NEITHER, ClaimedSteps
from runner.providers.redis.pipelined import PipelinedConnection


class _Posted:
    """A record of a call that is on its way: its command, and what is to be noted when it is acknowledged, or not."""

    __slots__ = ("at", "begun", "command", "entry", "error", "line", "many", "reported", "reserved", "slots", "usage")

    def __init__(
        self,
        line: PipelinedConnection,
        command: bytes,
        slots: tuple[Any, ...],
        begun: str,
        reserved: AccountKey | None,
        entry: AccountKey,
        many: int,
        usage: Usage,
        reported: bool,
    ) -> None:
        self.line, self.command, self.slots, self.begun, self.reserved = line, command, slots, begun, reserved
        self.entry, self.many, self.usage, self.reported = entry, many, usage, reported
        self.error: BaseException | None = None
        self.at = time.monotonic()  # its answer says that the claim held then, however late that is read


class StepGroup:
    """A record of several steps: what the script takes, and what is to be noted when it is acknowledged, or not."""

    __slots__ = ("at", "before", "begun", "by_entry", "command", "dropped", "error", "slots", "texts")

    def __init__(self, before: dict[AccountKey, int], dropped: int) -> None:
        self.before, self.dropped = before, dropped
        self.texts = list[str]()
        self.by_entry = dict[AccountKey | None, list[str]]()
        self.slots: dict[str, Any] = {}
        self.begun, self.command = "", b""
        self.error: BaseException | None = None
        self.at = 0.0  #: when it was posted


def _nothing() -> None:
    """Do nothing with an acknowledgement that is not needed."""


class PostedSteps(ClaimedSteps):
    """Posts records. Each write shows the token; `ClaimLost` if it no longer holds."""

    def post_step(
        self, step: str, value: str, *, replayed: Counters | int, entry: AccountKey, usage: Usage, reported: bool
    ) -> Callable[[], None]:
        """Send the record of a model call, as `record_step` does, without waiting for the acknowledgement.

        The returned function waits for it; so does whatever is written next.
        """
        if replayed or entry.kind != "model" or not isinstance(line := self._line, PipelinedConnection):
            self.record_step(step, value, replayed=replayed, entry=entry, usage=usage, reported=reported)
            return _nothing
        with self._lock:
            if self._posted is not None or self._unsent is not None:
                self._make_way()
            if self._out.ahead:
                self._confirm()
            many = self._open[entry]
            try:
                begun, reserved = self._without(entry, many)
                self._reached += 1
                slots = self._of_call(step, value, begun, reserved, entry, usage, reported)
                command = self._record_call.packed(*slots)
                line.post(command)
            except BaseException:
                self._leave_in_doubt(entry, many)
                raise
            self._posted = posted = _Posted(line, command, slots, begun, reserved, entry, many, usage, reported)
            if self._log is not None:  # here, as the store is at the record
                self._log.prepare(step, text_of_one(entry), begun)
        return partial(self._settle, posted)

    def _settle(self, posted: "_Posted | StepGroup") -> None:
        """Return when the record that was posted is acknowledged. Raises, each time, what it met."""
        with self._lock:
            if posted is not self._posted:
                if posted.error is not None:
                    raise posted.error
                return
            self._posted = None
            if isinstance(posted, StepGroup):
                self._settle_all(posted)
                return
            step, value, *_ = posted.slots
            entry, begun, reserved = posted.entry, posted.begun, posted.reserved
            try:
                try:
                    done = posted.line.answer(posted.command)
                except NoScriptError:
                    done = self._record_call(self._line, *posted.slots)
                if done:
                    self._heard = posted.at
                    if self._out.is_unsure:
                        self._out.sure()
                else:
                    self._record_any(step, value, begun, reserved, entry, posted.usage, 0, reported=posted.reported)
            except BaseException as error:
                posted.error = error
                self._leave_in_doubt(entry, posted.many)
                raise
            if self._log is not None:
                self._log.add_prepared()
            self._recorded(step, entry, reserved)

    def record_steps(
        self, done: Sequence[DoneStep], *, dropped: int = 0, begins: Sequence[BegunStep] = (), replayed: Counters | int
    ) -> None:
        """Record what several steps gave, and note those that begin next: one round trip. Raises `ClaimLost`."""
        with self._lock:
            group = self._group(done, dropped, begins, replayed)
            try:
                self._fenced(scripts.load("record_steps"), **group.slots)
            except BaseException:
                self._leave_all_in_doubt(group)
                raise
            self._all_recorded(group)

    def post_steps(
        self, done: Sequence[DoneStep], *, dropped: int, begins: Sequence[BegunStep], replayed: Counters | int
    ) -> Callable[[], None] | None:
        """The same, but where no others use the connection, the record is on its way when this returns.

        What it returns then waits until that is acknowledged, before which none of those that begin is to be done;
        whatever is written next waits, too.
        """
        if not isinstance(line := self._line, PipelinedConnection):
            self.record_steps(done, dropped=dropped, begins=begins, replayed=replayed)
            return None
        with self._lock:
            group = self._group(done, dropped, begins, replayed)
            try:
                group.command = scripts.load("record_steps").packed(**group.slots, **self._who)
                group.at = time.monotonic()
                line.post(group.command)
            except BaseException:
                self._leave_all_in_doubt(group)
                raise
            self._posted = group
        return partial(self._settle, group)

    def _settle_all(self, group: StepGroup) -> None:
        """The same of several steps."""
        line = self._line
        assert isinstance(line, PipelinedConnection)
        try:
            try:
                self._held_by(line.answer(group.command, looks=False))  # other threads make steps meanwhile
                self._heard = group.at  # the answer says that the claim held then, however late it is read
            except NoScriptError:
                self._fenced(scripts.load("record_steps"), **group.slots)
        except BaseException as error:
            group.error = error
            self._leave_all_in_doubt(group)
            raise
        self._all_recorded(group)

    def _group(
        self, done: Sequence[DoneStep], dropped: int, begins: Sequence[BegunStep], replayed: Counters | int
    ) -> StepGroup:
        """A record of several, with nothing left to be sent before it; what is under way is what will be."""
        if self._posted is not None or self._unsent is not None:
            self._make_way()
        if self._out.ahead:
            self._confirm()
        group = StepGroup(dict(self._open), dropped)
        try:
            self._gather(group, done, begins, replayed)
        except BaseException:
            self._leave_all_in_doubt(group)
            raise
        return group

    def _gather(
        self, group: StepGroup, done: Sequence[DoneStep], begins: Sequence[BegunStep], replayed: Counters | int
    ) -> None:
        """The slots of the script."""
        kinds, calls, by_entry = "", list[list[Any]](), group.by_entry
        if done:
            names, values, entries, usages, _ = zip(*done, strict=True)
            group.texts = texts = [""] * (2 * len(done))
            texts[::2], texts[1::2] = names, values
            if are_own(entries, usages):
                by_entry[STEP], kinds, done = list(names), "1" * len(done), ()
        for step, _, entry, usage, reported in done:
            of_call = entry is not None and (entry.kind != "step" or usage is not NO_TOKENS)
            kinds += "0" if entry is None else "2" if of_call else "1"
            if entry is not None and of_call:
                event = int(entry.kind == "model" and not reported)
                calls.append([*entry, 1, 0, usage.prompt_tokens, usage.completion_tokens, event, *usage.details])
            by_entry.setdefault(entry, []).append(step)
        for entry, alike in by_entry.items():
            if entry is not None and entry != STEP:
                self._open[entry] = max(self._open[entry] - len(alike), 0)
        counted = len(by_entry.get(STEP, ()))
        self._open[STEP] = max(self._open[STEP] - counted - group.dropped, 0)
        self._next.recorded = None
        self._between = (STEP, counted - self._add_open(begins)[STEP])
        self._reached += len(kinds) + (replayed.passed if isinstance(replayed, Counters) else replayed)
        group.begun = self._open.text()
        group.slots = {
            "run": self._run,
            "task": self._task,
            "journal": self._journal,
            "kinds": kinds,
            "calls": json.dumps(calls, ensure_ascii=False) if calls else "",
            "begun": group.begun,
            "replayed": counters_text(replayed),
            "reached": self._reached,
            "steps": group.texts,
        }

    def _leave_all_in_doubt(self, group: "StepGroup") -> None:
        """They are done, and not recorded; and nothing begins."""
        self._open.clear()
        self._open.update(group.before)
        self._open[STEP] = max(self._open[STEP] - group.dropped, 0)
        self._between = NEITHER

    def _all_recorded(self, group: "StepGroup") -> None:
        """Note that the store acknowledged several steps."""
        names, begun = group.texts[::2], group.begun
        self._between = NEITHER
        if self._line.watches:
            self._names.update(names)
        if self._unnumbered is not None:
            self._unnumbered.extend(names)
        self._reserve(None)
        for entry, alike in group.by_entry.items():
            if self._log is not None:
                self._log.recorded(alike, "" if entry is None else text_of_one(entry), begun)
            if entry is not None and entry != STEP:
                self._out.count(entry, -len(alike))
        if self._log is not None and not names:
            self._log.began(begun)
