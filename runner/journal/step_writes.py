"""The writes of a task in flight: one at a time, grouped with others that arrive meanwhile."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from runner.core import fault_points
from runner.core.errors import InputRequired, Interrupted, StepFailed
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage
from runner.core.made_once import made_once
from runner.journal import steps
from runner.journal.end_order import EndOrder
from runner.journal.give_ups import GiveUp, is_cancellation, is_timeout, name_for
from runner.journal.recorder import BegunStep, DoneStep, Post, PostSteps, Recorder, StepObserver
from runner.journal.steps import Frame, Kept, StepFiles, supersede

if TYPE_CHECKING:
    from runner.journal.group_commit import GroupCommit


def _nothing() -> None:
    """The write is acknowledged."""


class StepWrites(EndOrder):
    """The writes of one task. Each returns once it is acknowledged, except for `post_result` and `post_results`."""

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
    def _together(self) -> "GroupCommit":
        from runner.journal.group_commit import GroupCommit  # most tasks do one thing at a time

        return GroupCommit(self._writing, self._write_together)

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

    def give_up(
        self,
        frame: Frame,
        error: BaseException,
        mark: int | None = None,
        *,
        in_body: bool = False,
        answer: Mapping[str, Any] | None = None,
    ) -> None:
        """Record that the code gave it up with this error, for a replay. Not if the task is being stopped.

        ``mark`` is when it began to write files, ``in_body`` whether a part of an answer had come,
        ``answer`` the part that its reader has of it.
        """
        scope = self.cancel_scope
        is_ours = self._over or scope.stopping is not None or (self.asked or self.failure) is not None
        if is_timeout(error):
            reason = type(error).__name__, str(error)
        elif is_cancellation(error) and not scope.of_coroutine:  # that may be cancelled itself
            reason = None
        else:
            return
        if is_ours:
            return
        fault_points.reached("step done, not recorded")
        name = name_for(frame.recorded_as, self._recorded)
        if mark is not None and not self.files.idle:
            self.files.keep(name, mark)
        gave_up = GiveUp(name, self.clock.monotonic() - self._began, reason, in_body, answer)
        with scope.write:
            self.keep_result(Frame(self, name, None, None), frame.end(gave_up.text()))
        self.note_give_up(name, error)

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
        with self.cancel_scope.write, self._writing:
            acknowledged()
            with self._lock:
                self._recorded[frame.recorded_as] = text
                self._progress.give(frame.entry, usage)

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
            self._write(done, [BegunStep()] * begins, dropped)

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
            acknowledged = self._post_steps(done, dropped=dropped, begins=[BegunStep()] * begins, replayed=replayed)
            if acknowledged is None:
                self._written(done)
                return None
        return partial(self._acknowledge_all, done, acknowledged)

    def _acknowledge_all(self, done: Sequence[DoneStep], acknowledged: Callable[[], None]) -> None:
        with self._writing:
            acknowledged()
            self._written(done)

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

    def _write(self, done: Sequence[DoneStep], begins: Sequence[BegunStep] = (), dropped: int = 0) -> None:
        """Write several together: results, and the steps that begin when this returns."""
        self._refuse_if_over()
        if self._refusals is not None:
            done = self._with_refusals(done)
        with self._lock:
            replayed = self.take_replayed() if done else Counters()
        self._recorder.record_steps(done, dropped=dropped, begins=begins, replayed=replayed)
        self._written(done)

    def _written(self, done: Sequence[DoneStep]) -> None:
        with self._lock:
            for step, value, entry, usage, _ in done:
                self._recorded[step] = value
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
