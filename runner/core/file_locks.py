"""File locks that end with the process that holds them."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

LOCKS = Path("/proc/locks")


@contextlib.contextmanager
def unheld(path: Path | str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Context with the handle of a file or folder that no process holds exclusively, opened with these flags.

    Raises `BlockingIOError` if a process holds it; another `OSError` if it is gone, or cannot be locked.
    """
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    finally:
        os.close(handle)


def is_held(path: Path | str) -> bool:
    """Whether a process holds a lock on this file or folder."""
    try:
        with unheld(path, os.O_NOFOLLOW):
            return False
    except BlockingIOError:
        return True
    except OSError:  # it is gone
        return False


def holder(path: Path | str) -> int:
    """Return the pid that holds this file or folder exclusively; 0 if there is none, or the kernel does not say."""
    try:
        info = Path(path).stat()
        lines = LOCKS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return 0
    which = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    for line in lines:  # "1: FLOCK  ADVISORY  WRITE 21401 fe:00:2327659 0 EOF"; who waits has an arrow there
        match line.split():
            case [_, "FLOCK", _, "WRITE", pid, place, *_] if place == which and pid.isdigit():
                return int(pid)
    return 0
