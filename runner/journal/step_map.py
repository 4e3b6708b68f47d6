"""Concurrent durable steps: several results, and the steps that begin next, are stored in one write.

Each round stores the results since the last round, and notes as many new steps as there is room for; only then do these
begin. So at most ``at_once`` are ever in flight, and a kill leaves at most those in doubt. Steps that end while a round
is stored are part of the next round: the busier the map, the larger the writes.
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Literal

from runner.core import fault_points, waiting
from runner.core.errors import ClaimLost, InputRequired, Interrupted
from runner.core.ledger import STEP
from runner.journal import steps
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.journal import RAISED, Journal
from runner.journal.recorder import DoneStep, StepObserver
from runner.journal.steps import Frame, current_step

OnError = Literal["first", "all", "collect"]

PATIENT = (Interrupted, InputRequired)
"""Stops that leave the other steps under way the time to end, and to be recorded."""

AGAIN = 0.005  #: seconds until a thread is looked at again that could not be broken into


@dataclass(slots=True)
class _Step:
    """One step: its index in the results, its item, and its result."""

    index: int
    item: Any
    frame: Frame
    watch: StepObserver | None
    mark: int = 0
    value: Any = None
    text: str = ""
    error: BaseException | None = None


class StepMap:
    """The steps ``fn(item)`` for each item, identified like those of `Journal.step`; the results in the items' order.

    Items are read as there is room for them. ``on_error``: ``first`` begins no more steps after an error, and raises
    it; ``all`` makes all steps, then raises an `ExceptionGroup`; ``collect`` returns errors in place of results.
    ``watch`` creates the observer of a step, ``report`` is called with the number of finished steps and the total, if
    known.
    """

    def __init__(
        self,
        journal: Journal,
        name: str,
        fn: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        at_once: int,
        on_error: OnError = "first",
        watch: Callable[[], StepObserver] | None = None,
        report: Callable[[int, int | None], object] = lambda *_: None,
    ) -> None:
        self._journal, self._name, self._fn, self._at_once = journal, name, fn, at_once
        self._on_error, self._watch, self._report = on_error, watch, report
        self._type = steps.type_of_result(fn)
        self._every = len(items) if isinstance(items, Sized) else None
        self._items = enumerate(items)
        self._outer = current_step.get()
        self._errors: dict[int, BaseException] = {}
        self._stop: BaseException | None = None
        self._broke: BaseException | None = None  # what the items raised
        self._running = self._ended = 0
        self._results: list[Any] = []
        self._done: deque[_Step] = deque()
        self._waits = False  # for the first step that ends; those that follow it need not wake this thread

    def run(self) -> list[Any]:
        """Make the steps on threads, each in a copy of this context."""
        scope, threads = self._journal.cancel_scope, _Threads(self._do, self._at_once)
        with scope.call, scope.waking() as self._woken, threads:
            begun = self._round(())
            while self._running:
                threads.begin(begun)
                begun = []
                self._waits = True
                if not self._done:
                    self._woken.wait()
                self._waits = False
                self._look_for_stop()
                if ended := self._take_done():
                    begun = self._round(ended)
        return self._outcome()

    async def arun(self) -> list[Any]:
        """The same for an async function: each step is a task of the running event loop."""
        scope, loop, under_way = self._journal.cancel_scope, asyncio.get_running_loop(), set[asyncio.Task[None]]()
        with scope.call:
            try:
                begun = self._round(())
                while self._running:
                    self._ready = loop.create_future()
                    for one in begun:
                        task = loop.create_task(self._ado(one))
                        under_way.add(task)
                        task.add_done_callback(under_way.discard)
                    await self._ready
                    begun = self._round(self._take_done())
            finally:
                for task in list(under_way):
                    task.cancel()
                if under_way:
                    await asyncio.wait(list(under_way))
        return self._outcome()

    def _do(self, one: _Step) -> None:
        doing = self._journal.doing
        try:
            token = doing.enter(one.frame)
            try:
                one.value = self._fn(one.item)
            finally:
                doing.leave(one.frame, token)
            one.text = steps.dump(self._name, one.value, self._type)
        except BaseException as error:
            one.error = error
        self._done.append(one)
        if self._waits:
            self._waits = False
            self._woken.wake()

    async def _ado(self, one: _Step) -> None:
        # Written as `_do` is: what they share would be one more call of Python in each step.
        doing = self._journal.doing
        try:
            token = doing.enter(one.frame)
            try:
                one.value = await self._fn(one.item)
            finally:
                doing.leave(one.frame, token)
            one.text = steps.dump(self._name, one.value, self._type)
        except BaseException as error:
            one.error = error
        self._done.append(one)
        if not self._ready.done():
            self._ready.set_result(None)

    def _take_done(self) -> list[_Step]:
        return [self._done.popleft() for _ in range(len(self._done))]

    def _look_for_stop(self) -> None:
        stop = self._journal.cancel_scope.stopping
        if stop is not None and not isinstance(stop, PATIENT):
            raise stop

    def _round(self, ended: Sequence[_Step]) -> list[_Step]:
        """Store the finished steps, and return those that begin now."""
        done, raised = list[_Step](), list[_Step]()
        for one in ended:
            if one.error is None:
                done.append(one)
            elif isinstance(one.error, RAISED):
                self._errors[one.index] = one.error
                raised.append(one)
            else:  # it drops nothing: whether the step was done is in doubt
                self._stop = self._stop or one.error
        if not self._journal.files.idle:
            for one in done:
                self._journal.files.keep(one.frame.key, one.mark)
        if ended:
            fault_points.reached("step done, not recorded")
        self._running -= len(ended)
        # What code of the author's gives next may take its time, or raise: what is paid is recorded before.
        first = self._every is None or self._stop is not None
        if first:
            self._keep(done, raised, ())
        if self._stop is not None and not isinstance(self._stop, PATIENT):
            raise self._stop
        begun = self._begin()
        self._keep([] if first else done, [] if first else raised, begun)
        self._running += len(begun)
        as_is = steps.AS_WRITTEN if self._type is None else ()
        for one in done:
            is_one = type(one.value) in as_is
            self._results[one.index] = one.value if is_one else steps.load(one.text, self._type)
        self._ended += len(done) + len(raised)
        if ended:
            fault_points.reached("step recorded, task not ended")
            self._report(self._ended, self._every)
        if begun:
            fault_points.reached("step begun, not done")
        return begun

    def _begin(self) -> list[_Step]:
        """The steps that begin now; none after an item whose iterator raised."""
        begun = list[_Step]()
        try:
            if not self._is_over():
                self._add_next(begun, self._at_once - self._running)
        except RAISED as error:
            self._broke = error
        if not self._journal.files.idle:
            for one in begun:
                one.mark = self._journal.files.mark()
        return begun

    def _keep(self, done: Sequence[_Step], raised: Sequence[_Step], begun: Sequence[_Step]) -> None:
        if done or raised or begun:
            dropped = sum(one.frame.entry is not None for one in raised)
            results = [DoneStep(one.frame.key, one.text, one.frame.entry) for one in done]
            with self._journal.cancel_scope.write:
                self._journal.keep_results(results, dropped=dropped, begins=len(begun))
                if self._watch is not None:
                    self._report_progress(done, raised, begun)

    def _report_progress(self, done: Sequence[_Step], raised: Sequence[_Step], begun: Sequence[_Step]) -> None:
        for one in done:
            if one.watch is not None:
                one.watch.ended(one.value)
        for one in raised:
            if one.watch is not None and one.error is not None:
                one.watch.failed(one.error)
        for one in begun:
            if one.watch is not None:
                one.watch.began()

    def _add_next(self, begun: list[_Step], room: int) -> None:
        """Add the next steps that are not recorded, as there is room; recorded ones before them are replayed."""
        journal, scope = self._journal, self._journal.cancel_scope
        while room > 0 and scope.stopping is None:
            found = next(self._items, None)
            if found is None:
                return
            index, item = found
            frame, recorded = journal.find_step(steps.identity(self._name, (item,), {}), STEP, self._outer)
            if recorded is None:
                room -= 1
                self._results.append(None)
                begun.append(_Step(index, item, frame, None if self._watch is None else self._watch()))
            else:
                self._results.append(journal.replay(frame, recorded, self._type))
                self._ended += 1

    def _is_over(self) -> bool:
        """Whether no more steps are to begin."""
        if self._stop is not None or self._broke is not None or self._journal.cancel_scope.stopping is not None:
            return True
        some = self._errors.values()
        return bool(some) and (self._on_error == "first" or not all(isinstance(one, Exception) for one in some))

    def _outcome(self) -> list[Any]:
        if self._stop is not None:
            raise self._stop
        self._journal.cancel_scope.check()
        if self._broke is not None:
            raise self._broke
        errors = [self._errors[index] for index in sorted(self._errors)]
        plain = [one for one in errors if isinstance(one, Exception)]
        if errors and (self._on_error == "first" or len(plain) < len(errors)):
            raise next((one for one in errors if not isinstance(one, Exception)), errors[0])
        if plain and self._on_error == "all":
            raise ExceptionGroup(f"{self._name}: {len(plain)} of {len(self._results)} steps raised", plain)
        for index, error in self._errors.items():
            self._results[index] = error
        return self._results


class _Threads:
    """One thread for each concurrent step. Those that are in a step when this context ends are interrupted.

    Each thread that takes a step wakes the next one, if there are more steps. So steps that wait all begin at once, and
    short ones are made by few threads in turn.
    """

    def __init__(self, do: Callable[[_Step], None], most: int) -> None:
        self._do, self._most = do, most
        self._begun: deque[_Step] = deque()
        self._called = queue.SimpleQueue[bool]()
        self._is_called = False
        self._context = contextvars.copy_context()
        self._sections: list[InterruptibleSection] = []
        self._started = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        if kind is not None:
            self._begun.clear()
        for _ in range(self._started):
            self._called.put(False)
        if kind is not None and self._sections:
            threading.Thread(target=self._break_in, name="runner-map-stop", daemon=True).start()

    def begin(self, steps: Sequence[_Step]) -> None:
        """Begin these steps now."""
        self._begun.extend(steps)
        for _ in range(min(len(steps), self._most - self._started)):
            self._started += 1
            threading.Thread(target=self._work, name=f"runner-map-{self._started}", daemon=True).start()
        self._call()

    def _call(self) -> None:
        if self._begun and not self._is_called:
            self._is_called = True
            self._called.put(True)

    def _work(self) -> None:
        section = InterruptibleSection()
        try:
            self._sections.append(section)
            while self._called.get():
                self._is_called = False
                while self._begun:
                    self._take()
        except ClaimLost:  # broken into between two steps
            pass
        finally:
            with contextlib.suppress(ClaimLost):
                section.over()
            section.over()

    def _take(self) -> None:
        try:
            one = self._begun.popleft()
        except IndexError:  # others were quicker
            return
        if not self._is_called:
            self._call()
        self._context.copy().run(self._do, one)

    def _break_in(self) -> None:
        """The task has stopped: no further result is recorded."""
        for section in self._sections:
            while not section.break_in(ClaimLost):
                waiting.sleep(AGAIN)
