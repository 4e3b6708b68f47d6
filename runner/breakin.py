"""Raise an exception in another thread of this process."""

import ctypes


def raise_in(thread: int, exception: type[BaseException] | None) -> None:
    """At the thread's next bytecode, so not out of a blocking call; ``None`` takes back what it has not met yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(exception) if exception else None
    )
