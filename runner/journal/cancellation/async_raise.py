"""Raises an exception in another thread of this process, outside critical sections."""

import _thread
import contextlib
import ctypes
import os
import site
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from runner.core import waiting
from runner.journal.cancellation.calls_in_flight import SOON, CallLooks
from runner.journal.cancellation.cancel_scope import Wakeup

_LOCKING = {
    "threading": ("start", "set", "notify", "notify_all", "__enter__", "__exit__"),
    "importlib._bootstrap": ("acquire", "release", "__enter__", "__exit__", "_get_module_lock", "_lock_unlock_module"),
    "runner.bundles.loader": ("__enter__", "__exit__", "__del__"),
    "runner.core.context_value": ("__enter__",),
    "runner.journal.cancellation.timing": ("timed",),
    "runner.journal.cancellation.cancel_scope": ("__enter__", "__exit__"),
    "runner.llm.recording.recorded_call": ("whole", "whole_async", "post", "streamed", "refused"),
    "runner.tasks.stops": ("__exit__",),
    __name__: ("over", "_hooks", "_spend_elsewhere"),
}
"""Where a lock is held, or just being taken, that an exception could leave taken for ever; where a context variable is
set, that it could leave so; where a call or a write begins or ends, which counts; where an answer is that is recorded
next; or where an end is being made."""

_MARGIN = 10  # frames above that of a task as it begins, which are gone while it runs

_JOINING = {"asyncio.runners": ("close",), "concurrent.futures.thread": ("shutdown",)}
"""Where a thread waits for others, which no stop reaches while they are in a call."""

_NOT_IN = ("logging", "weakref", "_weakrefset")
"""The first takes locks at every turn. Out of the others' callbacks nothing is raised, as out of destructors."""


_LIBRARIES = tuple(
    f"{path}{os.sep}" for path in (Path(os.__file__).parent, *site.getsitepackages(), site.getusersitepackages())
)
"""Where what is imported is the process's, and not one task's."""

IMPORT = 10.0  #: seconds for which the import of a library is not broken into


class _Spent(BaseException):
    """Raised and caught at once, because the interpreter clears its flag only when it raises an exception."""


def _raise_in(thread: int, exception: type[BaseException]) -> None:
    """Raise at the thread's next bytecode, so not out of a blocking call. Replaces an exception still pending there.

    Never withdraw it with NULL: that leaves the flag set, with which 3.11 no longer traces lines and 3.12 is slow.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))


def _spend() -> None:
    """Discard the pending exception of this thread, and clear the interpreter's flag."""
    with _unobserved(), contextlib.suppress(_Spent):
        _raise_here()


def _spend_and_say(done: Callable[[], object]) -> None:
    try:
        _spend()
    finally:
        done()


def _spend_elsewhere() -> None:
    """Do the same in a new thread. Until it runs, the interpreter takes it for its parent thread: see `_LOCKING`."""
    spent = threading.Lock()
    spent.acquire()
    with contextlib.suppress(RuntimeError):  # the interpreter ends
        _thread.start_new_thread(_spend_and_say, (spent.release,))
        spent.acquire(timeout=1.0)


def _raise_here() -> None:
    while True:  # it comes out of the call
        _raise_in(threading.get_ident(), _Spent)


@dataclass(frozen=True, slots=True)
class _Hooks:
    """The observers of a thread: debugger, profiler, coverage. Their code takes locks, and must not be interrupted."""

    trace: Callable[..., Any] | None
    profile: Callable[..., Any] | None
    codes: frozenset[CodeType]
    """Of those hooks that are in Python."""
    packages: frozenset[str]
    """Of those that are in C, and call Python: coverage does, for each new file."""
    below: int
    """So many of the thread's frames began before: a program that coverage runs has that's below all its own."""

    def put_back(self) -> None:
        """Set the hooks of this thread again that CPython removed because an exception came out of them."""
        if self.trace is not None and sys.gettrace() is None:
            sys.settrace(self.trace)
        if self.profile is not None and sys.getprofile() is None:
            sys.setprofile(self.profile)


_NO_HOOKS = _Hooks(None, None, frozenset(), frozenset(), 0)


def _hooks() -> _Hooks:
    """Return the observers of this thread."""
    trace, profile = sys.gettrace(), sys.getprofile()
    if trace is profile is None and not hasattr(sys, "monitoring"):  # as of nearly each task
        return _NO_HOOKS
    found = [(hook, _code_of(hook)) for hook in (trace, profile, *_monitors()) if hook is not None]
    return _Hooks(
        trace,
        profile if callable(profile) else None,
        frozenset(code for _, code in found if code is not None),
        frozenset(type(hook).__module__.partition(".")[0] for hook, code in found if code is None) - {"builtins"},
        max(len(list(_frames(sys._getframe()))) - _MARGIN, 0),
    )


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _monitors() -> Iterator[object]:
    """Yield the callbacks of `sys.monitoring`, from Python 3.12 on. It returns a callback only when it is exchanged."""
    monitoring: Any = getattr(sys, "monitoring", None)
    for tool in range(6) if monitoring is not None else ():
        for event in (1 << n for n in range(18)) if monitoring.get_tool(tool) is not None else ():
            with contextlib.suppress(ValueError):  # no such event
                if (callback := monitoring.register_callback(tool, event, None)) is not None:
                    monitoring.register_callback(tool, event, callback)
                    yield callback


@contextlib.contextmanager
def _unobserved() -> Iterator[None]:
    """Suspend hooks in Python in this thread: they would let other threads run, and could be interrupted."""
    trace, profile = sys.gettrace(), sys.getprofile()
    try:
        if callable(profile):
            sys.setprofile(None)
        if trace is not None:
            sys.settrace(None)
        yield
    finally:
        if trace is not None:
            sys.settrace(trace)
        if callable(profile):
            sys.setprofile(profile)


def _in_critical_section(thread: int, hooks: _Hooks) -> bool:
    """Whether an exception would do harm where the thread is now; then ask again soon.

    In code that emits, records or logs it could leave a lock locked for ever. While the thread starts another one,
    the interpreter may raise it in the new thread instead, which then never begins. In the hook of a debugger, a
    profiler or coverage (``hooks``, or a frame's trace function) it would leave the hook's locks locked.
    """
    frame, called = sys._current_frames().get(thread), None
    if frame is not None and frame.f_code is contextlib._GeneratorContextManager.__enter__.__code__:
        return True  # what it entered is not yet left if this does not return
    frames = list(_frames(frame))
    for below, frame in zip(range(len(frames) - 1, -1, -1), frames, strict=True):
        if frame.f_code in hooks.codes or (called is not None and called is _code_of(frame.f_trace)):
            return True
        called = frame.f_code
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(("runner.events.", "runner.snapshots.")) or module in _NOT_IN:
            return True
        if frame.f_code.co_name in _LOCKING.get(module, ("__del__",)):
            return True
        if below >= hooks.below and module.partition(".")[0] in hooks.packages:
            return True
    return False


def _is_importing(thread: int) -> bool:
    """Whether the thread imports a library.

    An interrupted import would leave a partial package for all later tasks: Python drops the package but keeps its
    modules, and later creates another package without them; a module in C may not be loaded twice.
    """
    return any(
        frame.f_code.co_name == "<module>"
        and frame.f_code.co_filename.startswith(_LIBRARIES)
        and frame.f_back is not None
        and frame.f_back.f_globals.get("__name__") == "importlib._bootstrap"
        for frame in _frames(sys._current_frames().get(thread))
    )


def _raise_outside_critical_section(
    thread: int, critical: Callable[[], bool], exception: type[BaseException], may: Callable[[], bool]
) -> bool:
    """Raise it there, unless that is harmful or not allowed, or the thread has moved on during the check.

    The check runs no hook, and starts with a fresh turn of the interpreter's lock, so other threads do not run between
    its last look and the raising. From there the thread can get into a hook only up to its first instruction.
    """
    with _unobserved():
        time.sleep(0)
        frame = sys._current_frames().get(thread)
        at = frame and frame.f_lasti
        if critical() or not may():
            return False
        own = thread == threading.get_ident()
        if not own and (sys._current_frames().get(thread) is not frame or (frame and frame.f_lasti) != at):
            return False
        _raise_in(thread, exception)
        return True


def is_joining(thread: int) -> bool:
    """Whether the thread waits for threads that it started to end."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_name in _JOINING.get(str(frame.f_globals.get("__name__")), ()):
            return True
        frame = frame.f_back
    return False


class InterruptibleSection:
    """A section of this thread, from its creation until `over`, that other threads may interrupt; nothing after it.

    ``may`` says whether that is allowed now. It is asked while the thread stands still: after an earlier check the
    thread could continue, perhaps into a write. ``calls`` says whether the thread may be in a call, of which it then
    lost the result: see `calls_in_flight`. Call `over` in this thread wherever the section was interrupted: a thread
    that ends with a pending exception leaves the interpreter's flag set.
    """

    def __init__(self, may: Callable[[], bool] = lambda: True, calls: waiting.Calls | None = None) -> None:
        self.thread, self._may, self._calls = threading.get_ident(), may, calls
        self._looks: CallLooks | None = None
        self._hooks = _hooks()
        self._lock = threading.Lock()
        self._over = False
        self.told = False
        self._importing: float | None = None  # since when it is known to import a library
        self._going_on = threading.Lock()
        self._going_on.acquire()

    def break_in(self, exception: type[BaseException]) -> bool:
        """Raise it there, at the next bytecode. Returns False if that would do harm now: try again soon."""
        with self._lock:
            if self._over:
                return True
            with _unobserved():  # a hook that ran here while the flag is up would be called without end on 3.11
                if not _raise_outside_critical_section(self.thread, self.in_critical_section, exception, self._may):
                    return False
                self.told = True
                # The flag is all threads'. It goes up again as that one next runs; until then, perhaps for as long as
                # it is in a call, the others continue without it. Spent in a thread that is not interrupted.
                _spend_elsewhere()
                Wakeup.wake_thread(self.thread)
            return True

    def in_critical_section(self) -> bool:
        """Whether an exception would do harm where the thread is now."""
        return _in_critical_section(self.thread, self._hooks) or self._waits_for_import() or self._may_get_an_answer()

    @property
    def again(self) -> float:
        """The seconds until a section that could not be broken into is to be tried again."""
        return SOON if self._looks is None else self._looks.again

    def _may_get_an_answer(self) -> bool:
        if self._calls is None or not self._calls.awaits_answer:
            self._looks = None
            return False
        self._looks = self._looks or CallLooks(self.thread)
        return not self._looks.may_end(sys._current_frames().get(self.thread))

    def _waits_for_import(self) -> bool:
        if not _is_importing(self.thread):
            self._importing = None
            return False
        if self._importing is None:
            self._importing = time.monotonic()
        return time.monotonic() - self._importing < IMPORT  # one that hangs ends, too

    def wait(self, seconds: float) -> bool:
        """Wait until the section is over, for at most ``seconds``; only one thread may. Returns whether it is over."""
        return self._going_on.acquire(timeout=seconds) or self._over

    def over(self) -> None:
        """End the section: nothing is raised after this. If an exception comes out of this call, call it again.

        It takes plain locks only, which an exception never leaves locked.
        """
        with self._lock:
            if not self._over:
                self._over = True
                self._going_on.release()
        if self.told:
            _spend()
            self._hooks.put_back()


def _code_of(hook: object) -> CodeType | None:
    """Return the code of a debugger's or profiler's hook, if it is written in Python."""
    found = getattr(hook, "__code__", getattr(type(hook), "__call__", None))  # noqa: B004 - its code, not whether it can be called
    return found if isinstance(found, CodeType) else getattr(found, "__code__", None)
