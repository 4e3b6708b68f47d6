"""Many tasks in one thread: each is a greenlet, and while it waits the thread's event loop runs the others.

The engine runs in a greenlet as it does in a thread. It waits in few places, each of which calls `waiting.here`: for a
model's answer, which a coroutine of the loop gets; for a tool, which has a separate thread; for some time. Code of a
crew that may block runs in a separate thread, for which its task waits.
"""

import asyncio
import contextlib
import contextvars
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

from greenlet import getcurrent, greenlet

from runner.core import waiting
from runner.core.errors import Interrupted, StrayCancellation
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.cancellation.calls_in_flight import RETURNING

T = TypeVar("T")

AGAIN = 0.01  #: seconds until a thread that could not be broken into is tried again
CLOSING = 1.0  #: seconds that a coroutine has to end when its task was stopped


class BegunTasks(set["asyncio.Task[Any]"]):
    """The asyncio tasks of a coroutine that a task runs as `asyncio.run` does, and of what it began, until they end."""

    cancels = False  #: whether its own code, or its worker, has cancelled one of them
    is_astray = False  #: whether one was cancelled though neither had: the future of another run's that it awaited was


begun_by_run: contextvars.ContextVar[BegunTasks | None] = contextvars.ContextVar("runner_begun_by_run", default=None)


class ThreadSlots:
    """A limited number of threads for tasks, first come, first served. All methods are for the loop."""

    def __init__(self, free: int) -> None:
        self._free, self.queue = free, deque["SwitchingAlarm"]()

    def take(self, task: "SwitchingTask") -> "SwitchingAlarm | None":
        """Take one for a task, or return what to wait for if all are in use."""
        if self._free:
            self._free -= 1
            return None
        alarm = task.alarm()
        self.queue.append(alarm)
        return alarm

    def leave(self, alarm: "SwitchingAlarm") -> bool:
        """A task no longer waits. Returns whether it still did."""
        with contextlib.suppress(ValueError):
            self.queue.remove(alarm)
            return True
        return False

    def give(self) -> None:
        """Free one."""
        if self.queue:
            self.queue.popleft().set_here()
        else:
            self._free += 1


class Loop(Protocol):
    """The loop of a shared thread: ``hub`` is its greenlet, ``flights`` the tasks awaiting another's work, by key."""

    loop: asyncio.AbstractEventLoop
    hub: greenlet
    flights: dict[Hashable, list["SwitchingAlarm"]]
    for_tasks: ThreadSlots
    for_tools: ThreadSlots

    def call(self, do: Callable[..., object], *arguments: Any) -> None:
        """Call it in the loop's thread. From any thread."""

    def loads(self, more: int) -> None:
        """So many more tasks, or fewer, load what others will use."""

    def in_turn(self, turn: Callable[[], None]) -> None:
        """Continue one task when it is its turn."""

    def stop(self, do: Callable[[], object]) -> None:
        """Interrupt one task, after those that were stopped before it."""

    def switch(self, task: greenlet, exception: type[BaseException] | None = None) -> None:
        """Continue a task until it waits."""


class SwitchingTask(greenlet):
    """One task: a `waiting.Waiter`. Only the loop continues it, in the loop's thread."""

    __slots__ = (
        *("_calls", "_has_thread", "_loop", "_may", "_parked", "_waits"),
        *("blocking", "in_a_thread", "local", "runs_coroutine"),
    )

    def __init__(self, loop: Loop, run: Callable[[], object], local: Any) -> None:
        super().__init__(run, loop.hub)
        self._loop, self.local = loop, local
        self._parked = 0  # the number of its wait, if it is in one that may be interrupted
        self._waits = itertools.count(1)
        self._has_thread = False
        self.runs_coroutine = False  # its author's, which may have several calls out
        self.in_a_thread = False  # whether it waits for a thread, from before that is started until it has heard
        self.blocking: InterruptibleSection | None = None  # that of the thread, while it does what it is for
        self._may: Callable[[], bool] = lambda: True  # whether it may be broken into now
        self._calls: waiting.Calls | None = None  # whose results it would lose by that

    # -- for the loop

    def resume(self, number: int) -> None:
        """End this wait of the task when it is its turn, unless the wait is over."""
        if self._parked == number:
            self._loop.in_turn(partial(self._resume, number))

    def _resume(self, number: int) -> None:
        if self._parked == number:
            self._loop.switch(self)

    def raise_in(self, exception: type[BaseException]) -> None:
        """End the task's wait with an exception, unless it waits for a thread, whose code would continue."""
        if self._parked and not self.in_a_thread:
            self._loop.switch(self, exception)

    # -- for itself

    def park(self, number: int) -> None:
        """Run other tasks until this wait is ended."""
        self._parked = number
        try:
            self._loop.hub.switch()
        finally:
            self._parked = 0

    def number(self) -> int:
        """Return the number of its next wait."""
        return next(self._waits)

    def alarm(self) -> "SwitchingAlarm":
        """Return a new alarm."""
        return SwitchingAlarm(self, self._loop)

    def awaited(self, wanted: Coroutine[Any, Any, T], context: contextvars.Context | None = None) -> T:
        """Await a coroutine in a copy of the task's context; return its result. It has ended, whatever this raises."""
        work = self._loop.loop.create_task(wanted, context=context or contextvars.copy_context())
        try:
            self._until_done(work)
        except BaseException:
            work.cancel()
            end = time.monotonic() + CLOSING
            while not work.done() and (left := end - time.monotonic()) > 0:
                with contextlib.suppress(Interrupted):  # it is on its way
                    self._until_done(work, left)
            work.add_done_callback(_heard)
            raise
        return work.result()

    def run_coroutine(self, wanted: Coroutine[Any, Any, T]) -> T:
        """The same, like `asyncio.run`: coroutines that it started and left behind are cancelled."""
        context, begun = contextvars.copy_context(), BegunTasks()
        context.run(begun_by_run.set, begun)
        self.runs_coroutine = True
        try:
            return self.awaited(wanted, context)
        except asyncio.CancelledError as error:
            if begun.is_astray:
                raise StrayCancellation from error
            raise
        finally:
            self.runs_coroutine = False
            for task in (left := list(begun)):
                task.cancel()
            if left:
                with contextlib.suppress(Interrupted):  # it has ended already
                    self._until_done(asyncio.gather(*left, return_exceptions=True), CLOSING)

    def _until_done(self, work: "asyncio.Future[Any]", seconds: float | None = None) -> None:
        alarm = self.alarm()
        work.add_done_callback(alarm.set_here)
        alarm.wait(seconds)

    def in_thread(self, do: Callable[[], T]) -> T:
        """Call ``do`` in a separate thread with the task's context, and return its result."""
        context, done, outcome = contextvars.copy_context(), self.alarm(), SimpleNamespace(error=Interrupted("stopped"))
        thread = threading.Thread(target=self._blocking, args=(context, do, outcome, done), name="task", daemon=True)
        self.in_a_thread = True
        try:
            thread.start()
            done.wait(None)
        finally:
            self.in_a_thread = False
        for variable, value in context.items():
            if variable.get(_MISSING) is not value:
                variable.set(value)
        if outcome.error is not None:
            try:
                raise outcome.error
            finally:
                del outcome  # it refers to this frame
        found: T = outcome.value
        return found

    def _blocking(
        self, context: contextvars.Context, do: Callable[[], object], outcome: SimpleNamespace, done: "SwitchingAlarm"
    ) -> None:
        section = InterruptibleSection(self._may, self._calls)
        with contextlib.suppress(BaseException):  # it may come late
            try:
                self.blocking = section
                outcome.value = context.run(do)
                outcome.error = None
            except BaseException as error:
                outcome.error = error
            finally:
                self.blocking = None
                section.over()
        section.over()  # what came may have come in the midst of that
        done.set()

    def once(self, key: Hashable, do: Callable[[], T]) -> T | None:
        """Call ``do`` in a thread; return its result, None if another task has just done so, or it failed there."""
        waiting_too = self._loop.flights.get(key)
        if waiting_too is not None:
            alarm = self.alarm()
            waiting_too.append(alarm)
            alarm.wait(None)
            return None
        others: list[SwitchingAlarm] = []
        self._loop.flights[key] = others
        self._loop.loads(1)
        try:
            return self.in_thread(do)
        finally:
            del self._loop.flights[key]
            self._loop.loads(-1)
            for one in others:
                one.set()

    def take_thread(self) -> None:
        """Wait until a thread may be started for this task; their number is limited."""
        self._has_thread = True
        try:
            self._take(self._loop.for_tasks)
        except BaseException:
            self._has_thread = False
            raise

    def give_thread(self) -> None:
        """Give the thread up."""
        if self._has_thread:
            self._has_thread = False
            self._loop.for_tasks.give()

    def tool_thread(self) -> Callable[[], None]:
        """Wait until a tool call's thread may start. Call the returned function when it has ended or is abandoned."""
        self._take(self._loop.for_tools)
        place = [self._loop.for_tools.give]

        def over() -> None:
            with contextlib.suppress(IndexError):  # another thread said so
                self._loop.call(place.pop())

        return over

    def _take(self, places: ThreadSlots) -> None:
        alarm = places.take(self)
        if alarm is not None:
            try:
                alarm.wait(None)
            except BaseException:
                if not places.leave(alarm):
                    places.give()  # it was just given
                raise

    def section(self, may: Callable[[], bool], calls: waiting.Calls | None = None) -> "SwitchingSection":
        """Start a section in which others may interrupt the task if ``may`` is true; in its ``calls`` if it waits."""
        self._may, self._calls = may, calls
        return SwitchingSection(self, self._loop, may, calls)

    def later(self, seconds: float, do: Callable[[], object]) -> asyncio.TimerHandle:
        """Call ``do`` later, on the loop."""
        return self._loop.loop.call_later(seconds, do)


class SwitchingAlarm:
    """Something that one task waits for."""

    __slots__ = ("_loop", "_number", "_set", "_task")

    def __init__(self, task: SwitchingTask, loop: Loop) -> None:
        self._task, self._loop = task, loop
        self._number = 0
        self._set = False

    def wait(self, seconds: float | None) -> bool:
        """Wait until `set`, for at most so many seconds. Returns False on timeout."""
        if self._set:
            self._set = False
            return True
        self._task = current() or self._task  # who waits: the steps of a coroutine may be different tasks
        self._number = number = self._task.number()
        timer = None if seconds is None else self._loop.loop.call_later(seconds, self._task.resume, number)
        try:
            self._task.park(number)
            return self._set
        finally:
            self._set = False
            if timer is not None:
                timer.cancel()

    def set_here(self, *_: object) -> None:
        """End the wait; called by the loop."""
        self._set = True
        self._task.resume(self._number)

    def set(self) -> None:
        """End the wait, from any thread."""
        self._loop.call(self.set_here)


class SwitchingSection:
    """A section of one task that others may interrupt where it waits."""

    def __init__(
        self, task: SwitchingTask, loop: Loop, may: Callable[[], bool], calls: waiting.Calls | None = None
    ) -> None:
        self._task, self._loop, self._may, self._calls, self._over = task, loop, may, calls, False
        self.told = False
        self._ends: float | None = None  # the time that the calls of its coroutine have
        self._timer: asyncio.TimerHandle | None = None

    @property
    def again(self) -> float:
        """The seconds until it is to be tried again."""
        blocking = self._task.blocking
        return AGAIN if blocking is None else blocking.again

    def break_in(self, exception: type[BaseException]) -> bool:
        """Raise it where the task waits now, if it does; otherwise the task checks before its next step."""
        if (blocking := self._task.blocking) is not None:
            self.told |= (is_told := blocking.break_in(exception))
            return is_told
        self._loop.call(self._loop.stop, partial(self._raise, exception))
        return True

    def _raise(self, exception: type[BaseException]) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._over or not self._may():
            return
        if self._has_time():
            self._timer = self._loop.loop.call_later(self.again, self._raise, exception)
        elif not self._task.in_a_thread:
            self.told = True
            self._task.raise_in(exception)
        elif (blocking := self._task.blocking) is not None and blocking.break_in(exception):
            self.told = True
        else:
            self._loop.loop.call_later(self.again, self._raise, exception)  # it is about to begin, or has just ended

    def _has_time(self) -> bool:
        """Whether calls of its coroutine are out, which may still end, and be recorded."""
        if not self._task.runs_coroutine or self._calls is None or not self._calls.awaits_answer:
            return False
        self._ends = self._ends or time.monotonic() + RETURNING
        return time.monotonic() < self._ends

    def over(self) -> None:
        """End the section: nothing is raised in it any more."""
        self._over = True


def _heard(work: "asyncio.Task[Any]") -> None:
    if not work.cancelled():
        work.exception()  # else asyncio logs that it was not looked at


_MISSING = object()


def current() -> SwitchingTask | None:
    """Return the calling task, if it is one of these."""
    found = getcurrent()
    return found if isinstance(found, SwitchingTask) else None
