"""A working directory that is one thread's, and that of the threads which it begins: only Linux has that."""

import ctypes
import functools
import os
import sys
import threading

_CLONE_FS = 0x200


def begin() -> None:
    """From here on the working directory of this thread is its own. Raises `OSError` where that may not be."""
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform != "linux" or libc.unshare(_CLONE_FS) != 0:
        raise OSError(ctypes.get_errno(), "a thread cannot have a working directory of its own here")


@functools.cache
def is_possible() -> bool:
    """Whether a thread may have one here: what a container is allowed may leave it out, as Docker's default does."""
    found: list[bool] = []

    def tried() -> None:
        try:
            begin()
        except (OSError, AttributeError):
            return
        found.append(True)

    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        thread = threading.Thread(target=tried)
        thread.start()
        thread.join()
    return bool(found)
