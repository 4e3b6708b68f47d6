"""How a task waits: its thread blocks or, if many share it, runs another task. Waiting code only calls `here`."""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Alarm(Protocol):
    """Something that one task waits for."""

    def wait(self, seconds: float | None) -> bool:
        """Wait until `set`, for at most so many seconds. Returns False on timeout."""

    def set(self) -> None:
        """End the wait, or the next one. From any thread."""


class Section(Protocol):
    """A section of a task that others may interrupt: see `InterruptibleSection`."""

    told: bool
    """Whether it was interrupted. Its code may have handled that."""

    @property
    def again(self) -> float:
        """The seconds until it is to be tried again."""

    def break_in(self, exception: type[BaseException]) -> bool:
        """Raise an exception in it. Returns False if that would do harm now: try again soon."""

    def over(self) -> None:
        """End the section: nothing is raised in it any more."""


class Calls(Protocol):
    """The calls of a task, for a section of it."""

    @property
    def awaits_answer(self) -> bool:
        """Whether the task is in a call whose result may still be recorded."""


class Timer(Protocol):
    """A delayed call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Waiter(Protocol):
    """A task that shares its thread with others. All methods are for the task itself."""

    local: Any
    """What is kept from one task to the next, and used by one at a time."""

    def alarm(self) -> Alarm:
        """Return a new alarm."""

    def awaited(self, wanted: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine in a copy of the task's context, and return its result."""

    def run_coroutine(self, wanted: Coroutine[Any, Any, T]) -> T:
        """The same, like `asyncio.run`: coroutines that it started and left behind are cancelled."""

    def in_thread(self, do: Callable[[], T]) -> T:
        """Call ``do``, which may block, in a separate thread with the task's context, and return its result."""

    def once(self, key: Hashable, do: Callable[[], T]) -> T | None:
        """The same for work that several tasks need. Returns None if another task has just done it, or failed at it."""

    def take_thread(self) -> None:
        """Wait until this task may have a thread of its own; their number is limited."""

    def give_thread(self) -> None:
        """Give up the thread, if the task has one."""

    def tool_thread(self) -> Callable[[], None]:
        """Wait until a thread for a tool call may be started. Call what is returned when the call ends or is left."""

    def section(self, may: Callable[[], bool], calls: Calls | None = None) -> Section:
        """Start a section in which others may interrupt the task if ``may`` is true; in its ``calls`` if it waits."""

    def later(self, seconds: float, do: Callable[[], object]) -> Timer:
        """Call ``do`` later."""


class Loop(Protocol):
    """The event loop of a thread that many tasks share."""

    def is_running_here(self) -> bool:
        """Whether it is the loop of the calling code."""


_find: Callable[[], Waiter | None] | None = None
_loop: Loop | None = None
shared = False  #: whether tasks of this process share a thread at all


def install(find: Callable[[], Waiter | None], loop: Loop) -> None:
    """From now on, ``find`` returns the calling task if it shares its thread."""
    global _find, _loop, shared
    _find, _loop, shared = find, loop, True


def is_shared_loop() -> bool:
    """Whether the calling code's event loop is shared by many tasks."""
    return _loop is not None and _loop.is_running_here()


def here() -> Waiter | None:
    """Return the calling task if it shares its thread with others; None if it may block the thread."""
    return None if _find is None else _find()


def sleep(seconds: float) -> None:
    """Return after so many seconds."""
    if (waiter := here()) is None:
        time.sleep(seconds)
    else:
        waiter.alarm().wait(seconds)


def in_thread(do: Callable[[], T]) -> T:
    """Call ``do`` where it may block, and return its result."""
    return do() if (waiter := here()) is None else waiter.in_thread(do)


async def awaited(value: Awaitable[T]) -> T:
    """Await a value inside of a coroutine: `asyncio.run` takes no other awaitables."""
    return await value


def result_of(value: Any) -> Any:
    """The value; where it is to be awaited, what it gives, on an event loop of its own."""
    return asyncio.run(awaited(value)) if inspect.isawaitable(value) else value


class TaskLock:
    """A reentrant lock for tasks that share a thread, which a task may hold while it waits.

    A thread's lock would be held by all of its tasks, or block them all. No stop interrupts a thread that acquires it.
    """

    __slots__ = ("_depth", "_guard", "_holder", "_queue")  # each task has four

    def __init__(self) -> None:
        self._guard = threading.Lock()  # held for a moment, never by who waits
        self._holder: object = None  # a task, or the number of a thread
        self._depth = 0
        # A tuple: it is short, and mostly empty, and a deque takes 760 bytes.
        self._queue: tuple[tuple[object, Alarm | threading.Event], ...] = ()

    def __enter__(self) -> None:
        task = here()
        me = task or threading.get_ident()
        on_loop = task is None and is_shared_loop()
        with self._guard:
            # A task that holds it waits, if its loop comes to something else: that does not wait for the task.
            if self._holder in (None, me) or (on_loop and not isinstance(self._holder, int)):
                self._holder = self._holder or me
                self._depth += 1
                return
            turn = me, threading.Event() if task is None else task.alarm()
            # The loop comes first: a task before it could not continue.
            self._queue = (turn, *self._queue) if on_loop else (*self._queue, turn)
        try:
            turn[1].wait(None)
        except BaseException:
            self._give_up(turn)
            raise

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._depth -= 1
            if self._depth:
                return
            self._holder = None
            if self._queue:
                (self._holder, alarm), *others = self._queue
                self._queue = tuple(others)
                self._depth = 1
                alarm.set()

    def _give_up(self, turn: Any) -> None:
        with self._guard:
            waits = turn in self._queue
            if waits:
                self._queue = tuple(one for one in self._queue if one is not turn)
        if not waits:  # it was just given
            self.__exit__()
