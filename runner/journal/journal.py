"""Durable steps inside one task: replay what is recorded, else do it and record it.

A step is known by its name, its arguments and its occurrence: the second call with the same name and arguments is
another step. So steps may be done in any order, and from several threads. Arguments that are not JSON count by their
type only.
"""

import asyncio
import functools
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from runner.core import fault_points, waiting
from runner.core.clock import SYSTEM, Clock
from runner.core.errors import InputRequired, Interrupted
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Kind, Usage, caller, usage_in
from runner.journal import steps
from runner.journal.answers import Answer
from runner.journal.call_slots import CallSlot, CallSlots, is_call
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.rate_limit import Turns
from runner.journal.recorder import BegunStep, DoneStep, Recorder, StepObserver
from runner.journal.steps import (
    NO_FILES,
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

RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""Errors of the code itself, and not because it is stopped from outside."""
_RLock = type(threading.RLock())  # which is made without a call of Python


class Journal(Turns):
    """The steps of one task in flight.

    ``watched``: an observer wants its model calls; ``calls`` is how many came to it, recorded or made.
    ``replay_from_start``: the task restarts, and asks for all that is recorded; one that continues a conversation
    does not. ``code``: which code does the task; "" where that is not known, and no call is found by its chain.
    """

    def __init__(
        self,
        recorded: Mapping[str, str],
        recorder: Recorder,
        cancel_scope: CancelScope,
        *,
        watched: bool = False,
        replay_from_start: bool = True,
        code: str = "",
        clock: Clock = SYSTEM,
    ) -> None:
        self._recorded, self._recorder = dict(recorded), recorder
        self.cancel_scope, self.clock = cancel_scope, clock
        self._occurrences: Counter[str] = Counter()
        self._found = recorded  # as it is before anything is done
        self._progress = JournalProgress(self._recorded)
        self.doing = Doing()
        self._lock = _RLock()  # who says whether a record is usable looks at others; never held by who waits
        self._writing = _RLock() if not waiting.shared else waiting.TaskLock()  # its holder may wait for the store
        self._is_writing = False  # who comes meanwhile goes with others
        self.calls_out: set[Frame] = set()  #: calls of models that are under way
        self.watched, self.replay_from_start, self.code = watched, replay_from_start, code
        self.ended_by: Callable[[BaseException], None] = lambda _: None  # what hears the error that ends the attempt
        self.files: StepFiles | NoFiles = NO_FILES
        self.calls, self._over = 0, False
        self.asked: InputRequired | None = None  # what was raised because a person has not answered yet
        self.ends_when_asked = False  # nothing more is begun then: a framework may have taken it for a tool's failure

    @functools.cached_property
    def _calls(self) -> CallSlots:
        return CallSlots(self._found)

    @functools.cached_property
    def _together(self) -> "GroupCommit":
        from runner.journal.group_commit import GroupCommit  # most tasks do one thing at a time

        return GroupCommit(self._writing, self._write_together)

    def keep_files(self, files: Kept) -> None:
        """From here on, what steps do to the files of the task is recorded with them."""
        self.files = StepFiles(files, self._recorded, self._keep, self._progress.mark_passed)

    def _keep(self, key: str, text: str) -> None:
        with self.cancel_scope.write():
            self.keep_result(Frame(self, key, None, None), text)

    def close(self) -> None:
        """The task is over. A thread that it left behind records nothing any more, and stops."""
        with self._writing:
            self._over = True
        self.files = NO_FILES  # they refer to this: without it no collector is needed

    @property
    def can_wait(self) -> bool:
        """Whether the task can stop for a person and resume when they have answered."""
        return self._recorder.can_wait

    def place(self, step: str) -> str:
        """A step's name in the journal of the outermost task."""
        return self._recorder.place(step)

    def position(self) -> dict[str, int]:
        """How often each step was done so far: what a task that skips what it did passes to `fast_forward`."""
        with self._lock:
            return {**self._occurrences, **self._calls.position()}

    def usages(self) -> list[Usage]:
        """The tokens of each call of a model that is recorded, in this attempt or before."""
        with self._lock:
            return [usage_in(json.loads(text)) for key, text in self._recorded.items() if is_call(key)]

    def account(self) -> str:
        """What this task was given so far, by its steps and by the journal: what one that skips it is served."""
        with self._lock:
            return self._progress.account().text()

    def fast_forward(self, position: Mapping[str, int], account: str = "") -> None:
        """Skip to a `position`: later steps are counted from there. The `account` until there is replayed."""
        with self._lock:
            self._occurrences = Counter(self._calls.fast_forward(position))
            self._progress.skip(position.values(), account)

    def mark_done(self, name: str, args: tuple[Any, ...], times: int) -> None:
        """Mark a step as done so many times by the part that this task skips: the next one is another."""
        with self._lock:
            identity = self._within(current_step.get()) + steps.identity(name, args, {})
            self._occurrences[identity] = max(self._occurrences[identity], times)

    def take_replayed(self) -> Counters:
        """What was replayed since this was last asked."""
        return self._progress.take_replayed()

    def add_replayed(self, count: Counters) -> None:
        """So much was replayed by a journal inside of this one."""
        with self._lock:
            self._progress.replay(count)

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        watch: StepObserver | None = None,
        *,
        kind: Kind = "step",
        model: str = "",
        counted: bool = True,
        before: Callable[[], None] | None = None,
        usable: Callable[[str, str], bool] | None = None,
    ) -> Any:
        """The result of ``fn(*args, **kwargs)``, done at most once; a coroutine of it if ``fn`` is async.

        ``kind`` says where it counts; ``model`` is the name of a call's, or of a tool. What is not ``counted`` is made
        of steps of its own, and those alone are in the account. ``before`` is called first, if it is done. ``usable``:
        see `Frame.find`.
        """
        outer = current_step.get()
        agent = caller.get().agent if kind == "model" else ""
        entry = AccountKey(kind, agent, model) if counted or kind == "model" else None
        frame, recorded = self.find_step(steps.identity(name, args, kwargs), entry, outer, usable)
        result_type = steps.type_of_result(fn)
        if steps.is_async(fn):
            return self._astep(name, frame, recorded, result_type, fn, args, kwargs, watch)
        if recorded is not None:
            return self.replay(frame, recorded, result_type)
        if before is not None:
            before()
        with _Made(self, name, frame, result_type, watch) as made:
            made.value = fn(*args, **kwargs)
        return steps.load_own(made.value, made.text, result_type)

    def find_step(
        self, name: str, entry: AccountKey | None, outer: Frame | None, usable: Callable[[str, str], bool] | None = None
    ) -> tuple[Frame, str | None]:
        """The next step with this `steps.identity` within ``outer``, and what is recorded of it."""
        with self._lock:
            identity = name if outer is None else self._within(outer) + name
            self._occurrences[identity] = occurrence = self._occurrences.get(identity, 0) + 1
            frame = Frame(self, f"{identity}#{occurrence}", entry, outer)
            recorded = self._recorded.get(frame.key) if usable is None else frame.find(self._recorded, usable)
            if recorded is not None:
                self._progress.replay_step(entry, self._calls.inside(frame.key))
                self._progress.mark_passed(frame.recorded_as)
        return frame, recorded

    async def _astep(
        self,
        name: str,
        frame: Frame,
        recorded: str | None,
        result_type: Any,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        watch: StepObserver | None,
    ) -> Any:
        if recorded is not None:
            return self.replay(frame, recorded, result_type)
        with _Made(self, name, frame, result_type, watch) as made:
            made.value = await fn(*args, **kwargs)
        return steps.load_own(made.value, made.text, result_type)

    def replay(self, frame: Frame, recorded: str, result_type: Any) -> Any:
        """The result of a step that is recorded."""
        self.cancel_scope.check()
        self.files.lay([frame.recorded_as])
        return steps.load(recorded, result_type)

    def has_call(self, digest: str, *, unattributed: bool = False) -> bool:
        """Whether a call of a model with this hash of its request is recorded for where it would be made now."""
        if not self._found:
            return False
        outer = self.doing.sole() if unattributed else current_step.get()
        with self._lock:
            return self._calls.waits(self._within(outer), digest, unattributed=unattributed)

    def place_call(
        self, digest: str, model: Callable[[], str], *, unattributed: bool = False
    ) -> tuple[Frame, CallSlot, Mapping[str, Any] | None]:
        """Where a call of a model belongs that is about to leave the process, and what was recorded of it.

        ``digest`` is its request's hash, ``model`` gives the name; ``unattributed``: of a thread without context.
        """
        outer = self.doing.sole() if unattributed else current_step.get()
        with self._lock:
            self.calls += 1
            place = self._calls.reserve(self._within(outer), digest, unattributed=unattributed)
            recorded = json.loads(self._recorded[place.key]) if place.recorded else None
            entry = AccountKey("model", caller.get().agent, model() if recorded is None else recorded["model"])
            if recorded is not None:
                self._progress.serve(place.key, entry, usage_in(recorded))
        if recorded is not None:
            self._supersede_enclosing(outer)
        return Frame(self, place.key, entry, outer), place, recorded

    def serve_call(self, chain: str, read: Callable[[Mapping[str, Any]], Any]) -> tuple[AccountKey, Any] | None:
        """Serve the call with this chain as `place_call` would, if it is recorded and ``read`` can read its record."""
        outer = current_step.get()
        with self._lock:
            digest, key = self._calls.find(self._within(outer), chain)
            recorded = json.loads(self._recorded[key]) if key else {}
            if not key or (value := read(recorded)) is None:
                return None
            self.calls += 1
            self._calls.reserve(self._within(outer), digest)
            entry = AccountKey("model", caller.get().agent, recorded["model"])
            self._progress.serve(key, entry, usage_in(recorded))
        self._supersede_enclosing(outer)
        return entry, value

    def _within(self, frame: Frame | None) -> str:
        return f"{frame.key}/" if frame is not None and frame.journal is self else ""

    def name_nested(self, name: str, *about: Any) -> str:
        """The name, known as a step is, under which a kickoff inside of this task records what it does."""
        with self._lock:
            identity = self._within(current_step.get()) + steps.identity(name, about, {})
            self._occurrences[identity] += 1
            name = f"{identity}#{self._occurrences[identity]}"
            self._progress.mark_passed(name)
        return name

    def recorded_under(self, prefix: str) -> dict[str, str]:
        """What is recorded under names with this prefix, without it."""
        with self._lock:
            found = {key: text for key, text in self._recorded.items() if key.startswith(prefix)}
        self.files.lay(found)
        return {key.removeprefix(prefix): text for key, text in found.items()}

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
        self.files.keep(key)
        self.add_replayed(replayed or Counters())
        with self.cancel_scope.write():
            self.keep_result(Frame(self, key, entry, None), text, usage, reported=reported)

    def begin(
        self, entry: AccountKey = STEP, supersedes: Sequence[AccountKey] = (), *, intent_only: bool = False
    ) -> None:
        """Note that a step is about to be done elsewhere."""
        with self.cancel_scope.write(), self._writing:
            self._refuse_if_over()
            self._recorder.begin_step(entry, supersedes=supersedes, intent_only=intent_only)

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent: from here on its service may have it."""
        with self.cancel_scope.write(), self._writing:
            self._recorder.mark_sent(entry)

    def drop(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """Note that a step that was begun elsewhere raised."""
        with self.cancel_scope.write(), self._writing:
            self._recorder.drop_step(entry, intent_only=intent_only)

    def get_marker(self, name: str) -> Any:
        """The value that `set_marker` recorded under this name; None if there is none."""
        with self._lock:
            text = self._recorded.get(f"={name}")
            if text is not None:
                self._progress.mark_passed(f"={name}")
        return None if text is None else json.loads(text)

    def set_marker(self, name: str, value: Any) -> None:
        """Record a JSON value under a name: a decision that a restarted task reads again. It is no step."""
        with self.cancel_scope.call():
            self.record_value(name, Frame(self, f"={name}", None, None), value, None, None)

    def step_of(self, question: str) -> str:
        """The step where the answer to a question belongs that was asked last."""
        with self._lock:
            identity = steps.identity("?", (question,), {})
            return f"{identity}#{self._occurrences[identity]}"

    def answer(self, question: str, obtain: Callable[[str], str | None], about: Mapping[str, Any] | None = None) -> str:
        """What a person answered to a question: recorded once, however often the task restarts.

        ``obtain`` is called with the step where the answer belongs. Raises `InputRequired` where it gives None: the
        task stops there, until the answer is put into the journal. ``about`` is what the person who answers should
        know.
        """
        with self._lock:
            identity = steps.identity("?", (question,), {})
            self._occurrences[identity] += 1
            step = f"{identity}#{self._occurrences[identity]}"
            text = self._recorded.get(step)
            if text is not None:
                self._progress.mark_passed(step)
        if text is not None:
            return Answer.load(text)
        with self.cancel_scope.person():
            said = obtain(step)
        if said is None:
            self.asked = InputRequired(self.place(step), question, about)
            raise self.asked
        with self.cancel_scope.call():
            self.record_value("?", Frame(self, step, None, None), said, None, None)
        return said

    def diverged(self, place: CallSlot) -> bool:
        """Whether another call was recorded at a place, and is not asked for."""
        with self._lock:
            return self.replay_from_start and self._calls.diverged(place)

    def begin_frame(self, frame: Frame, watch: StepObserver | None) -> None:
        """It is about to be done."""
        with self.cancel_scope.write():
            self.enter(frame, intent_only=frame.entry is not None and frame.entry.kind == "tool")
            if watch is not None:
                watch.began()
        fault_points.reached("step begun, not done")
        if frame.entry is not None and frame.entry.kind == "tool":
            self.mark_sent(frame.entry)

    def _supersede_enclosing(self, outer: Frame | None) -> None:
        """A call that is replayed stands for the steps around it, as it did when it was made."""
        with self.cancel_scope.write():
            for entry in supersede(outer):
                self._recorder.drop_step(entry)

    def enter(self, frame: Frame, *, intent_only: bool = False) -> None:
        """Count it as begun, if it counts. A call of a model stands for the steps around it."""
        if frame.entry is None:
            return
        if self.asked is not None:
            self._refuse_if_asked(self.asked)
        supersedes = supersede(frame.outer) if frame.entry.kind == "model" else []
        if self._is_writing:
            self._together.add(BegunStep(frame.entry, supersedes, intent_only))
            return
        with self._writing:
            self._is_writing = True
            try:
                if self._over:
                    self._refuse_if_over()
                self._recorder.begin_step(frame.entry, supersedes=supersedes, intent_only=intent_only)
            finally:
                self._is_writing = False

    async def enter_call(self, frame: Frame) -> None:
        """The same of a call that a coroutine intends, together with those of others."""
        if self.asked is not None:
            self._refuse_if_asked(self.asked)
        if self._has_company() and frame.entry is not None:
            await self._together.aadd(BegunStep(frame.entry, supersede(frame.outer), intent_only=True))
        else:
            self.enter(frame, intent_only=True)

    def _has_company(self) -> bool:
        """Whether other calls may come as far, where a coroutine of asyncio's asks."""
        if len(self.calls_out) < 2:
            return False
        try:
            return bool(asyncio.get_running_loop())
        except RuntimeError:  # another kind of loop
            return False

    def leave(self, frame: Frame, *, intent_only: bool = False) -> None:
        """It was begun and raised."""
        with self._writing:
            if frame.entry is not None and not self._over:
                self._recorder.drop_step(frame.entry, intent_only=intent_only)

    def release(self, place: CallSlot) -> None:
        """Release the slot of a call that failed: the next attempt at it reserves the same one."""
        with self._lock:
            self._calls.release(place)

    def keep_result(self, frame: Frame, text: str, usage: Usage = NO_TOKENS, *, reported: bool = False) -> None:
        """It was done. ``reported``: it is reported on the event bus elsewhere."""
        if self._is_writing:
            self._together.add(DoneStep(frame.recorded_as, text, frame.entry, usage, reported))
            return
        with self._writing:
            self._is_writing = True
            try:
                self._record(frame.recorded_as, text, frame.entry, usage, reported)
            finally:
                self._is_writing = False

    def _record(self, name: str, text: str, entry: AccountKey | None, usage: Usage, reported: bool) -> None:
        if self._over:
            self._refuse_if_over()
        with self._lock:
            replayed = self._progress.take_replayed()
        self._recorder.record_step(name, text, replayed=replayed, entry=entry, usage=usage, reported=reported)
        with self._lock:
            self._recorded[name] = text
            self._progress.give(entry, usage)

    async def keep_answer(self, frame: Frame, text: str, usage: Usage, *, reported: bool) -> None:
        """The same of a call that a coroutine made, together with those of others."""
        if self._has_company():
            await self._together.aadd(DoneStep(frame.recorded_as, text, frame.entry, usage, reported))
        else:
            self.keep_result(frame, text, usage, reported=reported)

    def keep_results(self, done: Sequence[DoneStep], *, dropped: int, begins: int) -> None:
        """Steps side by side were done, and so many others raised; so many more begin."""
        with self._writing:
            self._write(done, [BegunStep()] * begins, dropped)

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

    def _write(self, done: Sequence[DoneStep], begins: Sequence[BegunStep], dropped: int = 0) -> None:
        """Write several together: what was done, and what begins when this returns."""
        self._refuse_if_over()
        with self._lock:
            replayed = self.take_replayed() if done else Counters()
        self._recorder.record_steps(done, dropped=dropped, begins=begins, replayed=replayed)
        with self._lock:
            plain = 0
            for one in done:
                self._recorded[one.step] = one.value
                if one.entry is STEP and one.usage is NO_TOKENS:
                    plain += 1
                else:
                    self._progress.give(one.entry, one.usage)
            if plain:
                self._progress.give(STEP, NO_TOKENS, plain)

    def _refuse_if_over(self) -> None:
        if self._over:
            raise self.cancel_scope.stopping or Interrupted("the task is over")

    def _refuse_if_asked(self, asked: InputRequired) -> None:
        if self.ends_when_asked:
            raise InputRequired(asked.step, asked.question, asked.about)

    def drop_frame(self, frame: Frame, watch: StepObserver | None, error: BaseException) -> None:
        """It raised. A stop drops nothing from the store: whether the step was done is in doubt."""
        with self.cancel_scope.write():
            if isinstance(error, RAISED):
                self.leave(frame)
            if watch is not None:
                watch.failed(error)

    def record_value(self, name: str, frame: Frame, value: Any, result_type: Any, watch: StepObserver | None) -> str:
        """It gave this value. Returns the record."""
        fault_points.reached("step done, not recorded")
        try:
            text = steps.dump(name, value, result_type)
        except TypeError as error:
            if watch is not None:
                watch.failed(error)
            raise
        with self.cancel_scope.write():
            self.keep_result(frame, text, reported=self.watched and watch is not None)
            if watch is not None:
                watch.ended(value)
        fault_points.reached("step recorded, task not ended")
        return text


class _Made:
    """A step while it is done, and what it gives: its ``value``, which is recorded at the end as ``text``.

    A generator would cost each step as much as its record.
    """

    __slots__ = ("_call", "_frame", "_journal", "_mark", "_name", "_token", "_type", "_watch", "text", "value")

    def __init__(self, journal: Journal, name: str, frame: Frame, result_type: Any, watch: StepObserver | None) -> None:
        self._journal, self._name, self._frame, self._type, self._watch = journal, name, frame, result_type, watch
        self._mark = 0 if journal.files.idle else journal.files.mark()
        self._call = journal.cancel_scope.call()
        self.value: Any = None
        self.text = ""

    def __enter__(self) -> Self:
        self._call.__enter__()
        try:
            self._journal.begin_frame(self._frame, self._watch)
            self._token = self._journal.doing.enter(self._frame)
        except BaseException:
            self._call.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        journal, frame = self._journal, self._frame
        try:
            journal.doing.leave(frame, self._token)
            if error is not None:
                journal.drop_frame(frame, self._watch, error)
                return
            if not journal.files.idle:
                journal.files.keep(frame.recorded_as, self._mark)
            self.text = journal.record_value(self._name, frame, self.value, self._type, self._watch)
        finally:
            self._call.__exit__(None, None, None)
        journal.cancel_scope.check()
