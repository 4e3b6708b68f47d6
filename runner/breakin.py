"""Raise an exception in another thread of this process, at a place where that does no harm."""

import ctypes
import sys


def raise_in(thread: int, exception: type[BaseException] | None) -> None:
    """At the thread's next bytecode, so not out of a blocking call; ``None`` takes back what it has not met yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(exception) if exception else None
    )


def is_delicate(thread: int) -> bool:
    """Whether an exception would do harm where the thread is now: ask again soon.

    Among what is told and recorded it could leave a lock taken for ever. While the thread starts another one, the
    interpreter may raise it in the new one instead, which then never begins.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(("runner.events.", "runner.state.")):
            return True
        if module == "threading" and frame.f_code.co_name == "start":
            return True
        frame = frame.f_back
    return False
