"""How a task waits: its thread blocks or, if many tasks share the thread, it runs another task meanwhile.

Who starts a worker says which of the two it is. What waits asks `here`, and knows of no threads and no event loops.
"""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Alarm(Protocol):
    """What one task waits for."""

    def wait(self, seconds: float | None) -> bool:
        """Until `set`, for so long at most. Returns False when the time is up."""

    def set(self) -> None:
        """End the wait, or the next one. From any thread."""


class Section(Protocol):
    """A section of a task, into which others may break: see `InterruptibleSection`."""

    def break_in(self, exception: type[BaseException]) -> bool:
        """Raise it there. False where that would do harm now: try again soon."""

    def over(self) -> None:
        """Nothing is raised any more."""


class Timer(Protocol):
    """What is to be done later."""

    def cancel(self) -> None:
        """Do not."""


class Waiter(Protocol):
    """A task that shares its thread with others. All of this is for the task itself."""

    local: Any
    """What is kept from one task to the next, and used by one at a time."""

    def alarm(self) -> Alarm:
        """Something to wait for."""

    def awaited(self, wanted: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives, in a copy of the task's context."""

    def run_coroutine(self, wanted: Coroutine[Any, Any, T]) -> T:
        """The same as `asyncio.run` does it: the coroutines that it began and left behind are cancelled."""

    def in_thread(self, do: Callable[[], T]) -> T:
        """What ``do`` gives, in a thread of its own with the task's context: code that may block."""

    def once(self, key: Hashable, do: Callable[[], T]) -> T | None:
        """The same for what several tasks need. None where it was just done for another one, or failed for that."""

    def take_thread(self) -> None:
        """Wait until this task may have a thread of its own: there are only so many."""

    def give_thread(self) -> None:
        """It needs none any more, if it had one."""

    def tool_thread(self) -> Callable[[], None]:
        """Wait until a thread may be begun for a use of a tool. Call what this returns when that ended, or is left."""

    def section(self, may: Callable[[], bool]) -> Section:
        """From here on others may break into the task, where ``may`` says so when it comes to it."""

    def later(self, seconds: float, do: Callable[[], object]) -> Timer:
        """Have it done later."""


class Loop(Protocol):
    """The event loop of a thread that many tasks share."""

    def is_running_here(self) -> bool:
        """Whether it is the one that calls this."""


_find: Callable[[], Waiter | None] | None = None
_loop: Loop | None = None
shared = False  #: whether tasks of this process share a thread at all


def install(find: Callable[[], Waiter | None], loop: Loop) -> None:
    """From here on ``find`` says which task it is that shares its thread and calls it, if one does."""
    global _find, _loop, shared
    _find, _loop, shared = find, loop, True


def is_shared_loop() -> bool:
    """Whether the event loop that calls this is there for many tasks."""
    return _loop is not None and _loop.is_running_here()


def here() -> Waiter | None:
    """The task that calls this, where it shares its thread with others; None where it may block that."""
    return None if _find is None else _find()


def sleep(seconds: float) -> None:
    """Return when so much has passed."""
    if (waiter := here()) is None:
        time.sleep(seconds)
    else:
        waiter.alarm().wait(seconds)


def in_thread(do: Callable[[], T]) -> T:
    """What ``do`` gives, where it may block."""
    return do() if (waiter := here()) is None else waiter.in_thread(do)


async def awaited(value: Awaitable[T]) -> T:
    """What it gives, as a coroutine: `asyncio.run` takes no other awaitables."""
    return await value


def result_of(value: Any) -> Any:
    """The value; where it is to be awaited, what it gives, on an event loop of its own."""
    return asyncio.run(awaited(value)) if inspect.isawaitable(value) else value


class TaskLock:
    """A re-entrant lock that a task may hold while it waits, for tasks that share a thread.

    A lock of the thread would be held by all of them, or stop them all. No stop breaks into a thread that takes it.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()  # held for a moment, never by who waits
        self._holder: object = None  # a task, or the number of a thread
        self._depth = 0
        self._queue: list[tuple[object, Alarm | threading.Event]] = []  # short, and a deque takes 760 bytes

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
            self._queue.insert(0 if on_loop else len(self._queue), turn)
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
                self._holder, alarm = self._queue.pop(0)
                self._depth = 1
                alarm.set()

    def _give_up(self, turn: Any) -> None:
        with self._guard:
            waits = turn in self._queue
            if waits:
                self._queue.remove(turn)
        if not waits:  # it was just given
            self.__exit__()
