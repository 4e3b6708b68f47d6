"""The writes of a worker that holds a task, as far as they concern steps."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from redis.exceptions import NoScriptError

from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage, counters_text, reserved_text, text_of_one
from runner.core.made_once import made_once
from runner.journal.shared_memory import HALF
from runner.providers.redis import scripts, stream
from runner.providers.redis.grouped_steps import GroupedSteps, StepGroup
from runner.providers.redis.outages import idle_timer
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.scripts import PackedScript, flat
from runner.providers.redis.step_intents import AWAY, NEITHER
from runner.providers.redis.watched_task import WatchedTask


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


IN_VAIN = 3  #: looks at a task, one after the other, between which and the next step something else was written
_PAID = text_of_one(STEP)


def _nothing() -> None:
    """Do nothing with an acknowledgement that is not needed."""


class ClaimedSteps(GroupedSteps):
    """The steps of a claimed task. Each write shows the token; `ClaimLost` if it no longer holds."""

    _looks = 0  #: since the last one that a step had use for

    @made_once
    def _record_own(self) -> PackedScript:
        script = scripts.load("record_own_step")
        return PackedScript(script, self._run, self._task, self._journal, self._claim.token)

    @made_once
    def _watched(self) -> WatchedTask:
        """What records steps without a script, where no others use the connection."""
        assert isinstance(self._line, PipelinedConnection)
        return WatchedTask(self._line, self._run, self._task, self._journal, self._claim.token)

    @made_once
    def _record_call(self) -> PackedScript:
        script = scripts.load("record_call")
        return PackedScript(script, self._run, self._task, self._journal, *self._who.values())

    can_wait = True

    def place(self, step: str) -> str:
        """Return where a step is recorded: in a journal of its own, so by its name."""
        return step

    def record_step(
        self,
        step: str,
        value: str,
        *,
        replayed: Counters | int,
        entry: AccountKey | None = STEP,
        usage: Usage = NO_TOKENS,
        reported: bool = False,
    ) -> None:
        """Record a step's result: one round trip.

        Where a step mostly follows it closely, it notes that one, too, which then needs no word. If that does not come
        soon, the note is withdrawn. A process that dies meanwhile has said whether it came, or what has left.
        """
        with self._lock:
            if self._posted is not None or self._unsent is not None:
                self._make_way()
            if self._out.ahead:
                self._confirm()
            reached = self._reached + 1 + (replayed.passed if isinstance(replayed, Counters) else replayed)
            if entry is STEP and usage is NO_TOKENS and not replayed and self._record_watched(step, value, reached):
                return
            many = 0 if entry is None else self._open[entry]
            try:
                begun, reserved = self._without(entry, many)
                self._reached = reached
                done = None
                if not replayed and usage is NO_TOKENS and (entry is None or entry.kind == "step"):
                    paid, expected = "" if entry is None else "1", reserved_text(reserved)
                    done = self._record_and_watch(step, value, paid, begun, expected)
                    done = done or self._record_own(self._line, step, value, paid, begun, expected, self._reached)
                elif not replayed and entry is not None and entry.kind == "model":
                    slots = self._of_call(step, value, begun, reserved, entry, usage, reported)
                    done = self._record_call(self._line, *slots)
                if done:
                    self._heard = time.monotonic()  # as `_sure`, which would be one more call
                    if self._out.is_unsure:
                        self._out.sure()
                else:  # of a claim that is lost, this says so
                    self._record_any(step, value, begun, reserved, entry, usage, replayed, reported=reported)
            except BaseException:
                self._leave_in_doubt(entry, many)
                raise
            self._recorded(step, entry, begun, reserved)

    def _record_and_watch(self, step: str, value: str, paid: str, begun: str, expected: str) -> bool:
        """Record by the script the second of steps that follow closely, and have the server watch the task from then
        on."""
        if self._reserved is not False or expected != "1" or not paid or not self._line.watches:
            return False
        if self._looks == IN_VAIN:
            return False
        self._looks += 1
        watched = self._watched
        script = self._record_own.packed(step, value, paid, begun, expected, self._reached)
        return watched.begin(script, begun, self._reached)

    def _record_watched(self, step: str, value: str, reached: int) -> bool:
        """Record one that began on the note that was reserved for it, and reserve the next, without a script.

        As nothing else was written of the task since, as much is under way as was. Returns whether it was recorded.
        """
        if (
            self._line.watcher is None
            or self._line.watcher is not (watched := self._watched)
            or self._reserved is not False
            or self._next.get(STEP) is not STEP
            or step in self._names
        ):
            return False
        many = self._open[STEP]
        self._open[STEP] = many - 1
        self._between, log = (STEP, 1), self._log
        prepare = bool if log is None else partial(log.prepare, step, _PAID, watched.begun)
        try:
            done = watched.record(step, value, reached, prepare)
        except BaseException:
            self._leave_in_doubt(STEP, many)
            raise
        if not done:
            self._open[STEP] = many
            return False
        self._looks, self._reached = 0, reached
        self._next.recorded = STEP
        self._names.add(step)
        if self._unnumbered is not None:
            self._unnumbered.append(step)
        self._between = NEITHER
        self._heard = time.monotonic()
        if self._out.is_unsure:
            self._out.sure()
        if log is not None:
            log.add_prepared()
        self._reserved = True  # as `_reserve`, which would be two more calls
        self._out.unnoted(0)
        if not idle_timer.awake or idle_timer.look != self._withdraw:
            idle_timer(self._withdraw, AWAY)
        return True

    def post_step(
        self, step: str, value: str, *, replayed: Counters | int, entry: AccountKey, usage: Usage, reported: bool
    ) -> Callable[[], None]:
        """The same of a call of a model, whose record is on its way when this returns.

        What it returns waits until that is acknowledged; so does whatever is written next.
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
            self._recorded(step, entry, begun, reserved)

    def _without(self, entry: AccountKey | None, many: int) -> tuple[str, AccountKey | None]:
        """What is under way without one of these ``many``, as the store is told, and for which step to come that is."""
        reserved = None
        if entry is not None:
            if many > 0:
                self._open[entry] = many - 1
                if self._out.is_read:
                    reserved, self._next.recorded = self._next.get(entry), entry
            self._between = (entry, 1)
        begun = self._open.with_one_more(reserved)
        if reserved is not None and reserved != STEP and len(begun) >= HALF // 2:
            return self._open.text(), None  # that could not be said to leave
        return begun, reserved

    def _leave_in_doubt(self, entry: AccountKey | None, many: int) -> None:
        """Leave a step in doubt that is done and not recorded."""
        if entry is not None and many > 0:
            self._open[entry] = many
        self._between = NEITHER

    def _recorded(self, step: str, entry: AccountKey | None, begun: str, reserved: AccountKey | None) -> None:
        """Note that the store acknowledged a step."""
        if self._line.watches:
            self._names.add(step)
        if self._unnumbered is not None:
            self._unnumbered.append(step)
        if self._log is not None:
            self._log.recorded((step,), "" if entry is None else text_of_one(entry), begun)
        if entry is not None:
            self._between = NEITHER
            if entry != STEP:
                self._out.count(entry, -1)
        self._reserve(None if reserved is None else True)
        if reserved is not None:
            self._expected = reserved

    def _of_call(
        self,
        step: str,
        value: str,
        begun: str,
        reserved: AccountKey | None,
        entry: AccountKey,
        usage: Usage,
        reported: bool,
    ) -> tuple[str | int, ...]:
        """The slots of its script of a call before which nothing was replayed."""
        _, agent, model = entry
        prompt, completion, *more = usage
        details = kind = rest = ""
        if any(more):
            details = ",".join(map(str, more))
        if not reported and details:
            about_it = {"model": model, "agent": agent, **usage.by_name()}
            kind, rest = "llm_call_completed", flat(about_it)
        elif not reported:
            kind, rest = stream.CALLED, f'[{stream.texts(model, agent)}, "{prompt}", "{completion}"]'
        about = agent, model, prompt, completion, details, kind, rest
        return (step, value, begun, reserved_text(reserved), self._reached, *about)

    def _record_any(
        self,
        step: str,
        value: str,
        begun: str,
        reserved: AccountKey | None,
        entry: AccountKey | None,
        usage: Usage,
        replayed: Counters | int,
        *,
        reported: bool,
    ) -> None:
        """Record it by the script for all."""
        about: dict[str, Any] = {}
        if entry is not None and entry.kind == "model" and not reported:
            about = {"model": entry.model, "agent": entry.agent, **usage.by_name()}
        details = usage.details if usage is not NO_TOKENS else ()
        self._fenced(
            scripts.load("record_step"),
            run=self._run,
            task=self._task,
            journal=self._journal,
            step=step,
            value=value,
            begun=begun,
            reserved=reserved_text(reserved),
            reached=self._reached,
            paid="" if entry is None else text_of_one(entry),
            replayed=counters_text(replayed),
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            details=json.dumps(details) if details else "",
            event=flat(about) if about else "",
        )
