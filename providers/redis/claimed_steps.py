"""The steps of a task that a worker holds: notes that they have begun, and their records.

A noted step counts as in doubt until it is recorded or dropped.
"""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim, within_tasks
from runner.core.ledger import (
    NO_TOKENS,
    STEP,
    AccountKey,
    Counters,
    NextStep,
    Usage,
    counters_text,
    ledger_field,
    reserved_text,
    text_of_one,
)
from runner.core.made_once import made_once
from runner.journal.acknowledged_writes import Log
from runner.journal.recorder import OWN, BegunStep
from runner.journal.shared_memory import HALF, SentCalls
from runner.providers.redis import keys, scripts, stream
from runner.providers.redis.outages import idle_timer, outage
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.scripts import PackedScript, flat
from runner.providers.redis.watched_task import WatchedTask

if TYPE_CHECKING:
    from runner.providers.redis.shared_connection import ConnectionSide

AWAY = 0.02  #: seconds without a word of the store after which a step begins only when that has its note
IN_VAIN = 3  #: looks at a task, one after the other, between which and the next step something else was written

NEITHER: tuple[AccountKey | None, int] = (None, 0)
_PAID = text_of_one(STEP)


class ClaimedSteps:
    """The steps of a claimed task: those that are under way, and their records.

    Each write shows the token; `ClaimLost` if it no longer holds.

    ``outgoing`` is told which calls have left: what it knows of a task whose process died, `reap` is told.
    ``log`` is told what the store acknowledged: what it knows and the store forgot, `LostWrites` counts.
    """

    can_wait = True
    _looks = 0  #: since the last one that a step had use for
    _reached = 0  #: records that this attempt replayed or made: its progress
    _unnumbered: list[str] | None = None
    """The steps that no checkpoint within the task has yet; None where the run's triggers write none there."""

    def __init__(
        self,
        line: "PipelinedConnection | ConnectionSide",
        claim: Claim,
        outgoing: Callable[[str], None] | None = None,
        log: Log | None = None,
    ) -> None:
        self._line = line
        self._claim = claim
        job, home = claim.job, line.home
        self._run = keys.run_key(job.run_id, home)
        self._branch = keys.branch_key(job.run_id, job.branch, home)
        self._task = keys.key("task_key", branch_key=self._branch, name=job.task)
        self._who = {"name": job.branch, "key": job.task, "token": claim.token}
        self._open = Counters()  # the steps that are begun, and neither recorded nor dropped
        self._out = SentCalls(claim.token, outgoing)
        self._log = log.claim if log is not None else None
        self._noted = False
        self._posted: Any = None  # a record that is not acknowledged: whatever is written next waits for it
        self._unsent: Any = None  # events that go with whatever is written next
        # Whether a note is reserved for the next step: the store has one step more than are begun. False: that began.
        self._reserved: bool | None = None
        self._expected = STEP  # for which it is
        self._next = NextStep()
        # The step that is just being noted (-1) or recorded (+1)
        self._between: tuple[AccountKey | None, int] = NEITHER
        line.missed = self._missed
        self._heard = time.monotonic()  # when the store last said that the claim holds
        self._lock = line.lock  # a task may have threads
        if within_tasks(claim.scope.triggers):
            self._unnumbered = list(claim.recorded)

    @property
    def _journal(self) -> str:
        return keys.key("journal_key", branch_key=self._branch, name=self._claim.job.task)

    @made_once
    def _begin(self) -> PackedScript:
        return PackedScript(scripts.load("begin_step"), self._run, self._task, *self._who.values())

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
        return PackedScript(script, self._run, *self._who.values())

    @made_once
    def _names(self) -> set[str]:
        """What is recorded under this claim, and before it."""
        return set(self._claim.recorded)

    def begin_step(
        self, entry: AccountKey = STEP, *, supersedes: Sequence[AccountKey] = (), intent_only: bool = False
    ) -> None:
        """Note that a step begins: one that runs without a note could not be counted as in doubt.

        It costs no round trip: nothing waits for the answer, where the store was heard a moment ago. Else the process
        may have been frozen, and its claim lost, or the store may refuse for now. A call of a model, or a tool, waits
        also where no process could read that it left. A step for which the last record reserved a note sends none.
        Raises `ClaimLost`.
        """
        with self._lock:
            if self._posted is not None or self._unsent is not None:
                self._make_way()
            for one in supersedes:
                self._open[one] -= 1
            self._open[entry] += 1
            if not intent_only and entry != STEP:
                self._out.count(entry, 1)
            soon = not outage.waiting and time.monotonic() - self._heard <= AWAY
            self._next.begins(entry, soon=soon)
            if self._reserved and soon and entry == self._expected and not supersedes:
                self._reserved = False
                if entry == STEP:  # of others it is said when they leave
                    self._out.unnoted(self._open[STEP])
                return
            self._note_begun(text_of_one(entry), int(entry == STEP), leaves=entry != STEP, soon=soon)

    def begin_steps(self, begins: Sequence[BegunStep]) -> None:
        """Note that several begin, in one command: as `begin_step` does of one."""
        if len(begins) == 1:
            entry, supersedes, intent_only = begins[0]
            self.begin_step(entry, supersedes=supersedes, intent_only=intent_only)
            return
        with self._lock:
            if self._posted is not None or self._unsent is not None:
                self._make_way()
            self._next.recorded = None
            new = self._add_open(begins)
            soon = not self._quiet() and not outage.waiting
            self._note_begun(new.text(), new[STEP], leaves=len(new) > int(STEP in new), soon=soon)

    def _add_open(self, begins: Sequence[BegunStep]) -> Counters:
        new, many = Counters(), len(begins)
        if many and begins.count(OWN) == many:  # of `ctx.map` thousands
            self._open[STEP] += many
            new[STEP] = many
            return new
        for entry, supersedes, intent_only in begins:
            for one in supersedes:
                self._open[one] -= 1
            self._open[entry] += 1
            new[entry] += 1
            if not intent_only and entry != STEP:
                self._out.count(entry, 1)
        return new

    def _note_begun(self, new: str, own: int, *, leaves: bool, soon: bool) -> None:
        """Send the note of what is open. The ``new`` ones begin with it, ``own`` of them the author's."""
        begun = self._open.text()
        if soon and (not leaves or (self._out.is_read and len(begun) < HALF // 2)):
            self._out.ahead |= leaves
            self._note_open(new, begun)
        else:
            self._between = (STEP, -own)
            self._note_surely()
            self._between = NEITHER
        if self._log is not None:  # the note is on its way: what is remembered of it is looked for
            self._log.began(begun)

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent."""
        with self._lock:
            self._out.count(entry, 1)

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """A begun step raised: it is not in doubt."""
        with self._lock:
            if self._posted is not None or self._unsent is not None:
                self._make_way()
            if not intent_only:
                self._out.count(entry, -1)
            self._open[entry] = max(self._open[entry] - 1, 0)
            if self._reserved is False and entry == self._expected:  # the note is there for the next one
                self._reserve(True)
                return
            if self._log is not None:
                self._log.began(self._open.text())
            self._note_open()

    def _make_way(self) -> None:
        """What comes before whatever is written next: a posted record is acknowledged, events are on their way."""
        if self._posted is not None:
            self._settle(self._posted)
        if self._unsent is not None:
            self._send_events()

    def _settle(self, posted: Any) -> None:
        """Return when a record that was posted is acknowledged."""
        raise NotImplementedError  # `PostedSteps` does it, and alone has such records

    def _send_events(self) -> None:
        """Send those that were to go with what is written next."""
        raise NotImplementedError  # `RunEvents` does it, and alone has such events

    def _quiet(self) -> bool:
        """Whether the store has not been heard for a moment."""
        return time.monotonic() - self._heard > AWAY

    def _reserve(self, reserved: bool | None) -> None:
        if self._reserved is False and self._expected == STEP:
            self._out.unnoted(0)
        self._reserved = reserved
        if reserved and (not idle_timer.awake or idle_timer.look != self._withdraw):
            idle_timer(self._withdraw, AWAY)

    def _withdraw(self) -> bool:
        """Withdraw the note that is reserved, if its step did not come soon. Returns whether that is settled."""
        if not self._quiet():  # the lock is held by who waits for the store, and is not wanted where steps come
            return False
        with self._lock:
            if not self._reserved:
                return True
            if self._posted is not None or not self._quiet():  # nothing is sent between a record and its answer
                return False
            if not self._line.reconnected:
                self._note_open()
                if self._log is not None:
                    self._log.began(self._open.text())
            return True

    def _confirm(self) -> None:
        """See that the notes of what left are in the store, before it is said that less is under way.

        A record that no process received would count as one of them.
        """
        self._line.settle()
        if self._line.reconnected:
            self._note_surely()
        self._out.confirmed()

    def _note_open(self, new: str = "", begun: str | None = None) -> None:
        """Say which steps are begun. Said in whole each time, it may get lost with a connection, and be said again.

        The ``new`` ones are done without waiting for the answer: they count also if the claim is lost by now.
        """
        if self._begin.script.sha not in self._line.known:
            self._line.load(self._begin.script)
        self._line.reconnected = False
        self._line.send_nowait(self._begin.packed(self._open.text() if begun is None else begun, new))
        self._noted = True
        self._reserve(None)

    def _note_open_again(self) -> None:
        """Before the end of the task: where a note was refused, or lost with its connection, or reserved and used."""
        if self._posted is not None:
            self._settle(self._posted)
        if self._reserved is False:
            self._note_surely()
        elif self._reserved and self._log is not None:
            self._log.began(self._open.text())
        self._reserve(None)
        if self._noted:
            self._line.settle()
            if self._line.reconnected:
                self._note_surely()

    def _note_surely(self) -> None:
        """Say it, and wait for the answer. Raises `ClaimLost`."""
        try:
            self._held(self._begin, self._open.text(), "")
        except ClaimLost:
            self._reserve(None)
            raise
        self._noted, self._line.reconnected = True, False
        self._reserve(None)

    def _missed(self) -> None:
        """The store takes nothing now, and may not have taken a note either: who looks after us is told, if we die."""
        begun = Counters(self._open)
        entry, many = self._between
        if entry is not None:
            begun[entry] += many
        self._out.unsure(begun)

    def _held(self, script: scripts.LuaScript | PackedScript, *slots: str, **by_name: Any) -> int:
        with self._lock:
            if self._posted is not None or self._unsent is not None:
                self._make_way()
            answer = int(script(self._line, *slots, **by_name))
        if not answer:
            raise ClaimLost(f"the claim on {self._claim.job.ref} is lost")
        self._sure()
        return answer

    def _sure(self) -> None:
        """The store has all that it was told."""
        self._heard = time.monotonic()
        if self._out.is_unsure:
            self._out.sure()

    def _fenced(self, script: scripts.LuaScript, **slots: Any) -> Any:
        """Run a script that checks the fencing token. Raises `ClaimLost`."""
        with self._lock:
            if self._posted is not None or self._unsent is not None:
                self._make_way()
            answer = script(self._line, **{**slots, **self._who})
        self._held_by(answer)
        return answer

    def _held_by(self, answer: Any) -> None:
        """Raises `ClaimLost` if a script refused."""
        if answer[0] == "refused":
            raise ClaimLost(f"the claim on {self._claim.job.ref} is lost: token {self._claim.token} no longer holds")
        self._sure()

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
            if self._log is not None:
                self._log.recorded((step,), "" if entry is None else text_of_one(entry), begun)
            self._recorded(step, entry, reserved)

    def _record_and_watch(self, step: str, value: str, paid: str, begun: str, expected: str) -> bool:
        """Record by the script the second of two close steps, and have the server watch the task from then on."""
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

    def _recorded(self, step: str, entry: AccountKey | None, reserved: AccountKey | None) -> None:
        """Note that the store acknowledged a step, which is in the log by now."""
        if self._line.watches:
            self._names.add(step)
        if self._unnumbered is not None:
            self._unnumbered.append(step)
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
            kind, rest = stream.CALLED, f'[{stream.texts(model, agent)},"{prompt}","{completion}"]'
        field = ledger_field(self._who["name"], self._who["key"], agent, model)
        about = field, prompt, completion, details, kind, rest
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
