"""Durable steps in a task: replays a recorded step, otherwise runs and records it."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from runner.core import fault_points, waiting
from runner.core.clock import SYSTEM, Clock
from runner.core.errors import InputRequired
from runner.core.ledger import STEP, AccountKey, Kind, caller
from runner.journal import steps
from runner.journal.cancellation.calls_in_flight import awaited
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.end_order import overtaken
from runner.journal.give_ups import ended_by, given_up, is_cancellation
from runner.journal.human_answers import Answer
from runner.journal.model_calls import ModelCalls
from runner.journal.recorder import Recorder, StepObserver
from runner.journal.steps import NO_FILES, Doing, Frame, JournalProgress, current_step

RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""Errors of the code itself, and not because it is stopped from outside."""
_RLock = type(threading.RLock())  # which is made without a call of Python
LOOK, LOOKS = 0.005, 2000
"""Seconds between two looks at the threads of an ended task that are about to record something; how many of them."""

_UNKNOWN: tuple[Any, Any, bool] = (None, None, False)


NONE: frozenset[str] = frozenset()


def _nobody(_: object) -> None: ...


class Journal(ModelCalls):
    """The steps of one task in flight.

    Attributes:
        watched: whether an observer wants its model calls.
        replay_from_start: whether the task restarts and requests everything recorded; not if it continues a
            conversation.
        code: the identity of the task's code; "" if unknown, and then no call is found by its chain.
    """

    # An instance without them has more attributes than CPython shares the names of: 1,300 bytes more
    __slots__ = (
        "_began", "_found", "_gave_up", "_held", "_known", "_lock", "_occurrences", "_overtaken", "_pending",
        "_post", "_post_steps", "_progress", "_recorded", "_recorder", "_writing", "calls_out", "cancel_scope",
        "clock", "code", "doing", "ended_by",
        "files", "on_unrecorded", "replay_from_start", "tool_observer", "watched",
    )  # fmt: skip

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
        self._post = getattr(recorder, "post_step", None)
        self._post_steps = getattr(recorder, "post_steps", None)
        self.cancel_scope, self.clock = cancel_scope, clock
        self._occurrences = defaultdict(int)
        self.found = recorded
        self._progress = JournalProgress(self._recorded)
        self._overtaken, self._gave_up = {}, {}
        if recorded:
            self._look_at(recorded)
        self._held = self._pending = NONE
        self._began = clock.monotonic()
        self.doing = Doing()
        self._lock = _RLock()
        self._writing = _RLock() if not waiting.shared else waiting.TaskLock()
        self.calls_out = set()
        self.watched, self.replay_from_start, self.code = watched, replay_from_start, code
        self.ended_by: Callable[[BaseException], None] = _nobody  # what hears the error that ends the attempt
        self.tool_observer: Callable[[str, Callable[..., Any]], StepObserver] | None = None  # of uses by frameworks
        self.on_unrecorded: Callable[[str], None] = _nobody  # what hears where a call goes that is not recorded
        self.files = NO_FILES
        self._known = _UNKNOWN  # of the function that was done last

    def add_recorded(self, records: Mapping[str, str]) -> None:
        """Before anything is done: these were recorded before all else, where its code was read."""
        self.found = {**records, **self.found}
        for key, text in records.items():
            self._recorded.setdefault(key, text)
        self._look_at(records)

    def _look_at(self, records: Mapping[str, str]) -> None:
        self._overtaken |= overtaken(records)
        self._gave_up |= (gave_up := given_up(records))
        for step, found in gave_up.items():
            if found.name in self._overtaken:
                self._overtaken[step] = self._overtaken.pop(found.name)

    def ends_by(self, error: BaseException) -> None:
        """The attempt ends by this error of its code. What led to it is not replayed: another attempt may do better."""
        refused = [] if self._refusals is None else self._refusals.end()
        if self.cancel_scope.stopping is None:
            self.ended_by(error)
        if names := refused + self.have_ended(error):
            with self.cancel_scope.write:
                self.keep_result(Frame(self, f"={ended_by(names)}", None, None), json.dumps(names))

    @property
    def is_over(self) -> bool:
        """Whether it is closed."""
        return self._over

    def close(self) -> None:
        """The task has ended.

        A thread that it left behind records nothing any more, and stops, unless it has what its call gave: that is
        recorded first.
        """
        if self.cancel_scope.answers:  # of threads that it left behind
            self._await_records()
        with self._writing:
            self._over = True
        self.files, self._known = NO_FILES, _UNKNOWN  # they refer to this: without them no collector is needed

    def _await_records(self) -> None:
        scope = self.cancel_scope
        for _ in range(LOOKS):
            if not (scope.awaits_answer and scope.has_answer):
                break
            waiting.sleep(LOOK)

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
        """Return the result of ``fn(*args, **kwargs)``, called at most once; an awaitable of it if ``fn`` is async.

        Args:
            kind: how the ledger counts it.
            model: the name of the model, or of the tool.
            counted: False if it consists of steps that are counted themselves.
            before: called first, if the step is not replayed.
            usable: see `Frame.find`.
        """
        if kind == "step":
            entry = STEP if counted else None
        else:
            agent = caller.get().agent if kind == "model" else ""
            entry = AccountKey(kind, agent, model) if counted or kind == "model" else None
        known = self._known
        if known[0] is not fn:  # most tasks do one again and again
            known = self._known = fn, steps.type_of_result(fn), steps.is_async(fn)
        _, result_type, is_async = known
        frame: Frame
        frame, recorded = self.find_step(steps.identity(name, args, kwargs), entry, current_step.get(), usable)
        if is_async:
            return self._astep(name, frame, recorded, result_type, fn, args, kwargs, watch)
        if frame.gave_up is not None:
            self.is_made_again(frame)  # it is a coroutine no more
        if recorded is not None:
            if frame.key in self._held:
                self.hold(frame)
            return self.replay(frame, recorded, result_type)
        if before is not None:
            before()
        scope, late = self.cancel_scope, None
        answers = scope.answers if scope.answers is not None else scope.keep_answers()
        with scope.call:
            mark = self._begin(frame, watch)
            # Its result is put in there in C: what is raised in this thread is raised in the call, or after that; and
            # before the next statement, as this one is a call, too.
            answer: defaultdict[int, Any] = defaultdict(partial(fn, *args, **kwargs))
            answers[frame] = answer
            try:
                try:
                    answer.__getitem__(0)
                except BaseException as error:
                    if not answer:
                        self._raised(frame, watch, error)
                        raise
                    late = error
                value = answer[0]
                text = self._ended(name, frame, mark, value, result_type, watch)
            finally:
                del answers[frame]
        scope.check()
        if late is not None:
            raise late
        if result_type is None and type(value) in steps.AS_WRITTEN:  # as `steps.load_own`, which would be one more call
            return value
        return steps.load(text, result_type)

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
        if self.cancel_scope.stopping is not None:
            await self.check_async()
        if recorded is not None:
            if frame.key in self._held or frame.gave_up is not None:
                await self.hold_async(frame)
            return self.replay(frame, recorded, result_type)
        if frame.gave_up is not None:
            await self.hold_async(frame)
        scope, late = self.cancel_scope, None
        answers = scope.answers if scope.answers is not None else scope.keep_answers()
        with scope.call:
            mark = self._begin(frame, watch)
            answer: dict[int, Any] = {}
            answers[frame] = answer
            try:
                try:
                    await awaited(fn(*args, **kwargs), scope, answer, put_off=True)
                except BaseException as error:
                    if 0 not in answer:
                        self._raised(frame, watch, error)
                        if is_cancellation(error):
                            self.give_up(frame, error, mark)
                        raise
                    late = error
                value = answer[0]
                text = self._ended(name, frame, mark, value, result_type, watch)
            finally:
                del answers[frame]
            if 1 in answer and scope.stopping is None:
                self.give_up(frame, late := answer[1], answered=True)
        if late is not None:
            scope.check()
            raise late
        if scope.stopping is not None:
            await self.check_async()
        return steps.load_own(value, text, result_type)

    def _begin(self, frame: Frame, watch: StepObserver | None) -> int:
        """Note that the step begins."""
        files = self.files
        mark = files.mark() if files.some or files.kept.made else 0  # as `idle`, which would be one more call
        is_tool = frame.entry is not None and frame.entry.kind == "tool"
        with self.cancel_scope.write:
            try:
                self.enter(frame, intent_only=is_tool)
            except Exception as error:
                self.fail(error)
            if watch is not None:
                watch.began()
        fault_points.reached("step begun, not done")
        if is_tool and frame.entry is not None:
            self.mark_sent(frame.entry)
        self.doing.frames[frame] = None
        current_step.set(frame)
        return mark

    def _raised(self, frame: Frame, watch: StepObserver | None, error: BaseException) -> None:
        """The step raised. A stop drops nothing from the store, because the step's outcome is in doubt."""
        del self.doing.frames[frame]
        if current_step.get() is frame:  # a coroutine that is thrown away ends elsewhere
            current_step.set(frame.outer)
        with self.cancel_scope.write:
            if isinstance(error, RAISED):
                self.leave(frame)
            if watch is not None:
                watch.failed(error)

    def _ended(
        self,
        name: str,
        frame: Frame,
        mark: int,
        value: Any,
        result_type: Any,
        watch: StepObserver | None,
    ) -> str:
        """Record the step's value. Returns the record."""
        del self.doing.frames[frame]
        if current_step.get() is frame:
            current_step.set(frame.outer)
        files = self.files
        try:
            if files.some or files.kept.made:
                files.keep(frame.recorded_as, mark)
            return self.record_value(name, frame, value, result_type, watch)
        except TypeError:  # it is no value
            raise
        except Exception as error:
            self.fail(error)

    def step_of(self, question: str) -> str:
        """Return the step for the answer to the latest question with this text."""
        with self._lock:
            identity = steps.identity("?", (question,), {})
            return f"{identity}#{self._occurrences.get(identity, 0)}"

    def answer(self, question: str, obtain: Callable[[str], str | None], about: Mapping[str, Any] | None = None) -> str:
        """Return a person's answer to a question: recorded once, however often the task restarts.

        ``obtain`` is called with the step for the answer. If it returns None, raises `InputRequired`: the task stops
        there until the answer is in the journal. ``about`` is information for the person.
        """
        with self._lock:
            identity = steps.identity("?", (question,), {})
            self._occurrences[identity] += 1
            step = f"{identity}#{self._occurrences[identity]}"
            text = self._recorded.get(step)
            if self._refusals is not None:
                self._refusals.began(step, is_recorded=text is not None)
            if text is not None:
                self._progress.mark_passed(step)
        if text is not None:
            return Answer.load(text)
        with self.cancel_scope.person():
            said = obtain(step)
        if said is None:
            self.write_refusals()
            self.asked = InputRequired(self.place(step), question, about)
            self.cancel_scope.ends_by(self.asked)
            raise self.asked
        with self.cancel_scope.call:
            self.record_value("?", Frame(self, step, None, None), said, None, None)
        return said
