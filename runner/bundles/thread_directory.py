"""A working directory for each thread: the thread shares it only with threads that it starts. Only Linux has this."""

import ctypes
import functools
import os
import sys
import threading

_CLONE_FS = 0x200


def unshare() -> None:
    """Give the current thread a working directory of its own. Raises `OSError` if the system refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform != "linux" or libc.unshare(_CLONE_FS) != 0:
        raise OSError(ctypes.get_errno(), "a thread cannot have a working directory of its own here")


@functools.cache
def is_supported() -> bool:
    """Whether the system allows it: a container may not, as with Docker's default profile."""
    found: list[bool] = []

    def tried() -> None:
        try:
            unshare()
        except (OSError, AttributeError):
            return
        found.append(True)

    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        thread = threading.Thread(target=tried)
        thread.start()
        thread.join()
    return bool(found)
