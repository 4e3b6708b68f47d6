"""Raise an exception in another thread of this process, at a place where that does no harm."""

import ctypes
import sys
import threading

_LOCKING = {"threading": ("start", "set", "notify", "notify_all", "__enter__", "__exit__"), __name__: ("over",)}
"""Where a lock is held, or just being taken, that an exception could leave taken for ever; or an end is being made."""

_JOINING = {"asyncio.runners": ("close",), "concurrent.futures.thread": ("shutdown",)}
"""Where a thread waits for others, which no stop reaches while they are in a call."""

_NOT_IN = ("logging", "weakref", "_weakrefset")
"""The first takes locks at every turn. Out of the others' callbacks nothing is raised, as out of destructors."""


def raise_in(thread: int, exception: type[BaseException] | None) -> None:
    """At the thread's next bytecode, so not out of a blocking call; ``None`` takes back what it has not met yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(exception) if exception else None
    )


def is_delicate(thread: int) -> bool:
    """Whether an exception would do harm where the thread is now: ask again soon.

    Among what is told, recorded and logged it could leave a lock taken for ever. While the thread starts another one,
    the interpreter may raise it in the new one instead, which then never begins.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(("runner.events.", "runner.state.")) or module in _NOT_IN:
            return True
        if frame.f_code.co_name in _LOCKING.get(module, ("__del__",)):
            return True
        frame = frame.f_back
    return False


def is_joining(thread: int) -> bool:
    """Whether the thread waits for those that it began to end."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_name in _JOINING.get(str(frame.f_globals.get("__name__")), ()):
            return True
        frame = frame.f_back
    return False


class Span:
    """What this thread does from here until `over`: others may break into it, and into nothing that comes after."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self._lock = threading.Lock()
        self._over = False
        self._going_on = threading.Lock()
        self._going_on.acquire()

    def break_in(self, exception: type[BaseException]) -> bool:
        """Raise it there, at the next bytecode. False where that would do harm now: try again soon."""
        with self._lock:
            if not self._over:
                if is_delicate(self.thread):
                    return False
                raise_in(self.thread, exception)
            return True

    def wait(self, seconds: float) -> bool:
        """Until it is over, for so long; returns whether it is. For one other thread."""
        return self._going_on.acquire(timeout=seconds) or self._over

    def over(self) -> None:
        """Nothing is raised any more once this has returned. What comes in the midst of it comes out of it: call again.

        Takes plain locks only, which an exception never leaves taken.
        """
        with self._lock:
            if not self._over:
                self._over = True
                self._going_on.release()
        raise_in(self.thread, None)
