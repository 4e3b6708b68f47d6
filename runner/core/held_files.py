"""Files and folders that processes hold by a lock on them, which ends with the process."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def unheld(path: Path | str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Have a file or folder that no process holds alone, while in this context: its handle, opened with these flags.

    Raises `BlockingIOError` where a process holds it; another `OSError` where it is gone, or cannot be locked.
    """
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    finally:
        os.close(handle)


def is_held(path: Path | str) -> bool:
    """Whether a process holds this file or folder."""
    try:
        with unheld(path, os.O_NOFOLLOW):
            return False
    except BlockingIOError:
        return True
    except OSError:  # it is gone
        return False
