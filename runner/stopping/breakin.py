"""Raise an exception in another thread of this process, at a place where that does no harm."""

import contextlib
import ctypes
import sys
import threading
from collections.abc import Collection
from types import CodeType

_LOCKING = {"threading": ("start", "set", "notify", "notify_all", "__enter__", "__exit__"), __name__: ("over",)}
"""Where a lock is held, or just being taken, that an exception could leave taken for ever; or an end is being made."""

_JOINING = {"asyncio.runners": ("close",), "concurrent.futures.thread": ("shutdown",)}
"""Where a thread waits for others, which no stop reaches while they are in a call."""

_NOT_IN = ("logging", "weakref", "_weakrefset")
"""The first takes locks at every turn. Out of the others' callbacks nothing is raised, as out of destructors."""


class _Spent(BaseException):
    """Raised and caught at once: the interpreter lowers its flag for raised exceptions only as it raises one."""


def _raise_in(thread: int, exception: type[BaseException]) -> None:
    """At the thread's next bytecode, so not out of a blocking call. It takes the place of what was not yet met there.

    Never taken back with NULL: that leaves the flag up, and while it is, 3.11 traces no line any more and 3.12 is slow.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))


def _spend() -> None:
    """Whatever was to be raised in this thread is not, and the interpreter's flag is down."""
    with contextlib.suppress(_Spent):
        _raise_here()


def _raise_here() -> None:
    while True:  # it comes out of the call
        _raise_in(threading.get_ident(), _Spent)


def _is_delicate(thread: int, hooks: Collection[CodeType]) -> bool:
    """Whether an exception would do harm where the thread is now: ask again soon.

    Among what is told, recorded and logged it could leave a lock taken for ever. While the thread starts another one,
    the interpreter may raise it in the new one instead, which then never begins. Out of the hook of a debugger or a
    profiler (``hooks``, or what traces a frame) it would end all tracing in the thread.
    """
    frame, called = sys._current_frames().get(thread), None
    while frame is not None:
        if frame.f_code in hooks or (called is not None and called is _code_of(frame.f_trace)):
            return True
        called = frame.f_code
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
    """What this thread does from here until `over`: others may break into it, and into nothing that comes after.

    `over` is to be called, in this thread, wherever the span was broken into: a thread that ends with an exception
    that it never met leaves the interpreter's flag up.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self._hooks = {code for hook in (sys.gettrace(), sys.getprofile()) if (code := _code_of(hook)) is not None}
        self._lock = threading.Lock()
        self._over = False
        self._broken_into = False
        self._going_on = threading.Lock()
        self._going_on.acquire()

    def break_in(self, exception: type[BaseException]) -> bool:
        """Raise it there, at the next bytecode. False where that would do harm now: try again soon."""
        with self._lock:
            if not self._over:
                if self.is_delicate():
                    return False
                self._broken_into = True
                _raise_in(self.thread, exception)
                # The flag is all threads'. It goes up again as that one next runs; until then, perhaps for as long as
                # it is in a call, the others go on without. Spent in a thread that nobody breaks into; it has begun
                # when this goes on, for until then the interpreter takes it for the one that starts it.
                with contextlib.suppress(RuntimeError):  # the interpreter ends
                    threading.Thread(target=_spend, name="spend", daemon=True).start()
            return True

    def is_delicate(self) -> bool:
        """Whether an exception would do harm where the thread is now."""
        return _is_delicate(self.thread, self._hooks)

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
        if self._broken_into:
            _spend()


def _code_of(hook: object) -> CodeType | None:
    """The code of a debugger's or profiler's hook, if it is one in Python."""
    found = getattr(hook, "__code__", getattr(type(hook), "__call__", None))  # noqa: B004
    return found if isinstance(found, CodeType) else getattr(found, "__code__", None)
