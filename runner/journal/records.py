"""The records of one task in flight: how far the task has replayed them, and those that it writes.

A step is identified by its name, its arguments and its occurrence: the second call with the same name and arguments is
another step. So steps may be made in any order, and from several threads. Arguments that are not JSON count by their
type only.

Records are written one at a time, grouped with others that arrive meanwhile.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

from runner.core import fault_points
from runner.core.errors import InputRequired, Interrupted, StepFailed
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage, usage_in
from runner.core.made_once import made_once
from runner.journal import steps
from runner.journal.call_slots import CallSlots, is_call
from runner.journal.give_ups import GiveUp
from runner.journal.rate_limit import Turns
from runner.journal.recorder import OWN, BegunStep, DoneStep, Post, PostSteps, Recorder, StepObserver, are_own
from runner.journal.steps import (
    Doing,
    Frame,
    JournalProgress,
    Kept,
    NoFiles,
    StepFiles,
    current_step,
    supersede,
)

if TYPE_CHECKING:
    from runner.journal.group_commit import GroupCommit
    from runner.journal.refusals import Refusals

OneFrame = TypeVar("OneFrame", bound=Frame)

HELD_AT_MOST = 32
"""So many concurrent steps are replayed in the order in which they had ended: each takes hundredths of a second."""


def _nothing() -> None:
    """The write is acknowledged."""


class StepRecords(Turns):
    """The records of one task: which of them it has passed, and those that it writes.

    Each write returns once it is acknowledged, except for `post_result` and `post_results`. ``calls`` is the number of
    the task's model calls so far, replayed or made; ``last_ended`` the key of the step that ended last outside of
    others.
    """

    calls = 0
    last_ended = ""
    _looked_up = 0  #: steps so far
    _overtaken: dict[str, str]  #: which records are to be replayed after which others: see `end_order`
    _held: frozenset[str]  #: the keys of steps that are replayed later
    _gave_up: dict[str, GiveUp]  #: how steps were given up, by the names of the results that they do not have
    _pending: frozenset[str]  #: the keys of steps that wait to be cancelled again
    _refusals: "Refusals | None" = None  #: most tasks have none
    _recorded: dict[str, str]
    found: Mapping[str, str]  #: as it was before anything was done
    _progress: JournalProgress
    _occurrences: defaultdict[str, int]
    _lock: AbstractContextManager[object]
    """Never held by who waits. Re-entrant: who says whether a record is usable looks at others."""
    doing: Doing
    files: StepFiles | NoFiles
    _recorder: Recorder
    _post: Post | None  #: of a recorder that need not be waited for at once
    _post_steps: PostSteps | None  #: likewise
    _writing: AbstractContextManager[object]
    """Whose holder may wait for the store."""
    _is_writing = False  #: who comes meanwhile goes with others
    _over = False
    on_unrecorded: Callable[[str], None]
    asked: InputRequired | None = None  #: what was raised because a person has not answered yet
    failure: Exception | None = None  #: why a step was not begun or recorded: nothing more is begun then
    ends_when_asked = False  #: nothing more is begun then: a framework may have taken it for a tool's failure
    printed: TextIO | None = None  #: where what its task prints is kept, in threads of its own, too
    watched: bool  #: an observer wants its model calls

    @made_once
    def _calls(self) -> CallSlots:
        return CallSlots([*self.found, *self._gave_up], self.found)

    @made_once
    def _together(self) -> "GroupCommit":
        from runner.journal.group_commit import GroupCommit  # most tasks do one thing at a time

        return GroupCommit(self._writing, self._write_together)

    def position(self) -> dict[str, int]:
        """Return how often each step was made so far, for `fast_forward`."""
        with self._lock:
            return {**self._occurrences, **self._calls.position()}

    def usages(self) -> list[Usage]:
        """Return the tokens of each recorded model call, in this attempt or before."""
        with self._lock:
            return [usage_in(json.loads(text)) for key, text in self._recorded.items() if is_call(key)]

    def account(self) -> str:
        """Return the counters of all steps so far, recorded or replayed; a task that skips them replays these."""
        with self._lock:
            return self._progress.account().text()

    def fast_forward(self, position: Mapping[str, int], account: str = "") -> None:
        """Skip to a `position`: later steps are counted from there. The `account` up to there counts as replayed."""
        with self._lock:
            self._occurrences = defaultdict(int, self._calls.fast_forward(position))
            self._progress.skip(position.values(), account)
            self._overtaken.clear()  # the others may be behind it

    def mark_done(self, name: str, args: tuple[Any, ...], times: int) -> None:
        """Count a step as made so many times by a part that this task skips, so that the next one is another step."""
        with self._lock:
            identity = self._within(current_step.get()) + steps.identity(name, args, {})
            self._occurrences[identity] = max(self._occurrences.get(identity, 0), times)

    def take_replayed(self) -> Counters:
        """Return what was replayed since the last call."""
        return self._progress.take_replayed()

    def add_replayed(self, count: Counters) -> None:
        """Count what a nested journal replayed."""
        with self._lock:
            self._progress.replay(count)

    def find_step(
        self,
        name: str,
        entry: AccountKey | None,
        outer: Frame | None,
        usable: Callable[[str, str], bool] | None = None,
        of: type[OneFrame] = Frame,  # type: ignore[assignment]  # a default of a type variable: python/mypy#3737
    ) -> tuple[OneFrame, str | None]:
        """Return the next step with this `steps.identity` within ``outer``, a frame ``of`` a class, and its record."""
        if outer is not None and outer not in outer.journal.doing.frames:  # it is over, and this thread of it is not
            outer = None
        with self._lock:
            identity = name if outer is None else self._within(outer) + name
            self._occurrences[identity] = occurrence = self._occurrences.get(identity, 0) + 1
            frame = of(self, f"{identity}#{occurrence}", entry, outer)
            frame.ends_in = ends_in = self if outer is None or outer.journal is not self else outer
            frame.before = ends_in.last_ended
            self._looked_up += 1
            recorded = self._recorded.get(frame.key) if usable is None else frame.find(self._recorded, usable)
            if self._refusals is not None:
                self._refusals.began(frame.recorded_as, is_recorded=recorded is not None)
            if recorded is not None:
                self._progress.replay_step(entry, self._calls.inside(frame.key))
                self._progress.mark_passed(frame.recorded_as)
                if frame.recorded_as in self._overtaken and len(self._held) < HELD_AT_MOST:
                    self._held |= {frame.key}
                else:
                    ends_in.last_ended = frame.key
            if frame.recorded_as in self._gave_up:
                self._find_give_up(frame, has_result=recorded is not None)
        return frame, recorded

    def _find_give_up(self, frame: Frame, *, has_result: bool) -> None:
        """The step was given up, and is to be so again; if it has a result, only if that came as it was given up."""
        found = self._gave_up[frame.recorded_as]
        if has_result and not found.answered:
            return
        frame.gave_up = found
        self._progress.mark_passed(found.name)
        if found.answer is not None or found.refused:  # that comes first, and its reader may leave it before its end
            return
        if found.error is None:
            self._pending |= {frame.key}
        elif frame.recorded_as in self._overtaken and len(self._held) < HELD_AT_MOST:
            self._held |= {frame.key}

    def replay(self, frame: Frame, recorded: str, result_type: Any) -> Any:
        """Return the result of a recorded step."""
        self.cancel_scope.check()
        if frame.key in self._held:  # of a map, which holds none
            with self._lock:
                self._held -= {frame.key}
        self.files.lay([frame.recorded_as])
        return steps.load(recorded, result_type)

    def name_nested(self, name: str, *about: Any) -> str:
        """Return the prefix for the records of a nested kickoff; identified like a step."""
        with self._lock:
            identity = self._within(current_step.get()) + steps.identity(name, about, {})
            self._occurrences[identity] += 1
            name = f"{identity}#{self._occurrences[identity]}"
            self._progress.mark_passed(name)
        return name

    def recorded_under(self, prefix: str) -> dict[str, str]:
        """Return the records whose names have this prefix, without it."""
        with self._lock:
            found = {key: text for key, text in self._recorded.items() if key.startswith(prefix)}
        self.files.lay(found)
        return {key.removeprefix(prefix): text for key, text in found.items()}

    def get_marker(self, name: str) -> Any:
        """Return the value that `set_marker` recorded under this name; None if there is none."""
        with self._lock:
            text = self._recorded.get(f"={name}")
            if text is not None:
                self._progress.mark_passed(f"={name}")
        return None if text is None else json.loads(text)

    def _within(self, frame: Frame | None) -> str:
        return f"{frame.key}/" if frame is not None and frame.journal is self else ""

    def keep_files(self, files: Kept) -> None:
        """From here on, record what steps do to the task's files."""
        self.files = StepFiles(files, self._recorded, self._keep, self._progress.mark_passed)

    def _keep(self, key: str, text: str) -> None:
        with self.cancel_scope.write:
            self.keep_result(Frame(self, key, None, None), text)

    @property
    def can_wait(self) -> bool:
        """Whether the task can stop for a person and resume with the answer."""
        return self._recorder.can_wait

    def place(self, step: str) -> str:
        """Return a step's name in the journal of the outermost task."""
        return self._recorder.place(step)

    def record_as(
        self,
        key: str,
        text: str,
        replayed: Counters | None = None,
        entry: AccountKey | None = STEP,
        usage: Usage = NO_TOKENS,
        *,
        reported: bool = False,
    ) -> None:
        """Record a result that was obtained elsewhere, under exactly this key."""
        try:
            self.files.keep(key)
            self.add_replayed(replayed or Counters())
            with self.cancel_scope.write:
                self.keep_result(Frame(self, key, entry, None), text, usage, reported=reported)
        except Exception as error:
            self.fail(error)

    def begin(
        self, entry: AccountKey = STEP, supersedes: Sequence[AccountKey] = (), *, intent_only: bool = False
    ) -> None:
        """Note that a step begins elsewhere."""
        with self.cancel_scope.write, self._writing:
            self._refuse_if_over()
            self._recorder.begin_step(entry, supersedes=supersedes, intent_only=intent_only)

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent: from here on its service may receive it.

        A thread that the task left behind sends nothing, since its mark would overwrite the next task's.
        """
        with self.cancel_scope.write:
            self.send(entry)

    def send(self, entry: AccountKey) -> None:
        """`mark_sent`, where no stop breaks in."""
        with self._writing:
            if self._over:
                self._refuse_if_over()
            self._recorder.mark_sent(entry)

    def note_unrecorded(self, where: str) -> None:
        """A model call that the journal cannot record is about to be sent. Noted before, so that a kill hides none."""
        with self.cancel_scope.write, self._writing:
            self._refuse_if_over()
            self.on_unrecorded(where)
        self.cancel_scope.check()

    def drop(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """Note that a step elsewhere raised."""
        with self.cancel_scope.write, self._writing:
            self._recorder.drop_step(entry, intent_only=intent_only)

    def set_marker(self, name: str, value: Any) -> None:
        """Record a JSON value under a name: a decision that a restarted task reads again. It is not a step."""
        with self.cancel_scope.call:
            self.record_value(name, Frame(self, f"={name}", None, None), value, None, None)

    def enter(self, frame: Frame, *, intent_only: bool = False) -> None:
        """Note that it begins, if it counts. A model call is counted instead of the enclosing steps."""
        entry = frame.entry
        if entry is None:
            return
        if self.asked is not None or self.failure is not None:
            self._refuse_if_ended()
        supersedes = supersede(frame.outer) if entry.kind == "model" and frame.outer is not None else ()
        if self._is_writing:
            self._together.add(BegunStep(entry, supersedes, intent_only))
            return
        with self._writing:
            self._is_writing = True
            try:
                if self._over:
                    self._refuse_if_over()
                self._recorder.begin_step(entry, supersedes=supersedes, intent_only=intent_only)
            finally:
                self._is_writing = False

    def leave(self, frame: Frame, *, intent_only: bool = False) -> None:
        """Note that it raised."""
        with self._writing:
            if frame.entry is not None and not self._over:
                self._recorder.drop_step(frame.entry, intent_only=intent_only)

    def write_refusals(self) -> None:
        """Record what was refused so far, without anything after it."""
        if self._refusals is not None:
            with self.cancel_scope.write, self._writing:
                self._write(())

    def _with_refusals(self, done: Sequence[DoneStep]) -> Sequence[DoneStep]:
        """Add what was refused before these results."""
        with self._lock:
            if (refusals := self._refusals) is None:
                return done
            before = refusals.written_with(done)
            if not refusals:
                self._refusals = None
        return [*before, *done]

    def keep_result(self, frame: Frame, text: str, usage: Usage = NO_TOKENS, *, reported: bool = False) -> None:
        """Record its result. ``reported``: it is reported on the event bus elsewhere."""
        if self._is_writing:
            self._together.add(DoneStep(frame.recorded_as, text, frame.entry, usage, reported))
            return
        with self._writing:
            self._is_writing = True
            try:
                self._record(frame.recorded_as, text, frame.entry, usage, reported)
            finally:
                self._is_writing = False

    def post_result(
        self, frame: Frame, text: str, usage: Usage = NO_TOKENS, *, reported: bool = False
    ) -> Callable[[], None]:
        """Send the record of a call without waiting for the acknowledgement.

        Call the returned function before the caller gets the answer: it waits for the acknowledgement. So does the
        task's next write.
        """
        refusals = self._refusals
        together = self._is_writing or (refusals is not None and refusals.concerns(frame.recorded_as))
        if together or self._post is None or frame.entry is None:
            self.keep_result(frame, text, usage, reported=reported)
            return _nothing
        with self._writing:
            self._is_writing = True
            try:
                if self._over:
                    self._refuse_if_over()
                with self._lock:
                    replayed = self._progress.replayed
                    if replayed or replayed.passed:  # `take_replayed` alone would be one more call
                        replayed = self._progress.take_replayed()
                acknowledged = self._post(
                    frame.recorded_as, text, replayed=replayed, entry=frame.entry, usage=usage, reported=reported
                )
            finally:
                self._is_writing = False
        return partial(self._acknowledge, frame, text, usage, acknowledged)

    def _acknowledge(self, frame: Frame, text: str, usage: Usage, acknowledged: Callable[[], None]) -> None:
        writing = self.cancel_scope.write.entries
        writing.append(None)  # as `write`, which would be two more calls
        try:
            with self._writing:
                acknowledged()
                with self._lock:
                    self._recorded[frame.recorded_as] = text
                    self._progress.give(frame.entry, usage)
        finally:
            writing.pop()

    def _record(self, name: str, text: str, entry: AccountKey | None, usage: Usage, reported: bool) -> None:
        if self._over:
            self._refuse_if_over()
        if (refusals := self._refusals) is not None and refusals.concerns(name):
            self._write([DoneStep(name, text, entry, usage, reported)])
            return
        progress = self._progress
        with self._lock:
            replayed = progress.replayed
            if replayed or replayed.passed:  # `take_replayed` alone would be one more call
                replayed = progress.take_replayed()
        self._recorder.record_step(name, text, replayed=replayed, entry=entry, usage=usage, reported=reported)
        with self._lock:
            self._recorded[name] = text
            if entry is STEP and usage is NO_TOKENS:
                progress.own += 1
            else:
                progress.give(entry, usage)

    def keep_results(self, done: Sequence[DoneStep], *, dropped: int, begins: int) -> None:
        """Record concurrent steps: results, those that raised, and those that begin."""
        with self._writing:
            self._write(done, [OWN] * begins, dropped, keeps_texts=False)

    def post_results(self, done: Sequence[DoneStep], *, dropped: int, begins: int) -> Callable[[], None] | None:
        """Send what `keep_results` records, without waiting for the acknowledgement.

        The returned function waits for it: before that, the steps that begin are not to be made. So does the task's
        next write. None if it is acknowledged already.
        """
        if self._post_steps is None or self._refusals is not None:
            self.keep_results(done, dropped=dropped, begins=begins)
            return None
        with self._writing:
            self._refuse_if_over()
            with self._lock:
                replayed = self.take_replayed() if done else Counters()
            acknowledged = self._post_steps(done, dropped=dropped, begins=[OWN] * begins, replayed=replayed)
            if acknowledged is None:
                self._written(done, keeps_texts=False)
                return None
        return partial(self._acknowledge_all, done, acknowledged)

    def _acknowledge_all(self, done: Sequence[DoneStep], acknowledged: Callable[[], None]) -> None:
        with self._writing:
            acknowledged()
            self._written(done, keeps_texts=False)

    def _write_together(self, done: Sequence[DoneStep], begins: Sequence[BegunStep]) -> None:
        self._is_writing = True
        try:
            if done and len(done) + len(begins) > 1:
                self._write(done, begins)
            elif done:
                self._record(*done[0])
            else:
                self._refuse_if_over()
                self._recorder.begin_steps(begins)
        finally:
            self._is_writing = False

    def _write(
        self,
        done: Sequence[DoneStep],
        begins: Sequence[BegunStep] = (),
        dropped: int = 0,
        *,
        keeps_texts: bool = True,
    ) -> None:
        """Write several together: results, and the steps that begin when this returns."""
        self._refuse_if_over()
        if self._refusals is not None:
            done = self._with_refusals(done)
        with self._lock:
            replayed = self.take_replayed() if done else Counters()
        self._recorder.record_steps(done, dropped=dropped, begins=begins, replayed=replayed)
        self._written(done, keeps_texts=keeps_texts)

    def _written(self, done: Sequence[DoneStep], *, keeps_texts: bool) -> None:
        """Note that these are recorded. The texts of a map's are asked for by nothing: it has thousands of them."""
        if not done:
            return
        names, values, entries, usages, _ = zip(*done, strict=True)
        own = are_own(entries, usages)
        with self._lock:
            self._recorded.update(zip(names, values if keeps_texts or not own else repeat(""), strict=False))
            if own:
                self._progress.own += len(done)
                return
            for entry, usage in zip(entries, usages, strict=True):
                if entry is STEP and usage is NO_TOKENS:
                    self._progress.own += 1
                else:
                    self._progress.give(entry, usage)

    def _refuse_if_over(self) -> None:
        if self._over:
            raise self.cancel_scope.stopping or Interrupted("the task is over")

    def _refuse_if_ended(self) -> None:
        if self.failure is not None:
            self.fail(self.failure)
        if self.ends_when_asked and (asked := self.asked) is not None:
            raise InputRequired(asked.step, asked.question, asked.about)

    def fail(self, error: Exception) -> NoReturn:
        """Have the task fail of an error that is not its code's, and which that code must not handle as its own."""
        failed = StepFailed(str(error))
        if self.failure is None:
            self.failure = error
            self.cancel_scope.ends_by(failed)
        raise failed from error

    def record_value(self, name: str, frame: Frame, value: Any, result_type: Any, watch: StepObserver | None) -> str:
        """Record its value. Returns the record."""
        fault_points.reached("step done, not recorded")
        try:
            text = steps.dump(name, value, result_type)
        except TypeError as error:
            if watch is not None:
                watch.failed(error)
            raise
        with self.cancel_scope.write:
            self.keep_result(frame, frame.end(text), reported=self.watched and watch is not None)
            if watch is not None:
                watch.ended(value)
        fault_points.reached("step recorded, task not ended")
        return text
