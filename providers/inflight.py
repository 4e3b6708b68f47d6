"""Which checkpoints the runs of living processes stand on, said beside them in their file system.

A run in flight has an empty file that is named after its newest checkpoint, and locked for as long as its process
lives. So what a dead one left is known, and removed by who comes next. Where a file system has no locks, no run is
known to be in flight.
"""

import contextlib
import fcntl
import os
import threading

_END = ".live"
_LOOKS = 20

_marks: dict[str, int] = {}
_lock = threading.RLock()  # a signal's handler may write a checkpoint too


def _after_fork() -> None:
    """The marks are the parent's."""
    global _lock
    _lock = threading.RLock()
    for fd in _marks.values():
        os.close(fd)
    _marks.clear()


os.register_at_fork(after_in_child=_after_fork)


def mark(prefix: str, checkpoint_id: str, instead_of: str | None = None) -> None:
    """A run of this process stands on a checkpoint, and no more on the one before. ``prefix`` begins a file's name."""
    path, before = f"{prefix}{checkpoint_id}{_END}", f"{prefix}{instead_of}{_END}"
    with _lock:
        fd = _marks.pop(before, None)
        if fd is not None:
            try:
                os.rename(before, path)  # noqa: PTH104  (names, not paths)
            except FileNotFoundError:
                os.close(fd)
                fd = None
        fd = _locked(path) if fd is None else fd
        if fd is not None:
            _marks[path] = fd


def unmark(prefix: str, checkpoint_id: str) -> None:
    """The run is over."""
    path = f"{prefix}{checkpoint_id}{_END}"
    with _lock:
        fd = _marks.pop(path, None)
        if fd is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108
            os.close(fd)


def marked(prefix: str) -> set[str]:
    """The checkpoints that runs stand on, of this process and of others.

    One look may miss a mark that moves on meanwhile: two are to say the same.
    """
    before: set[str] | None = None
    for _ in range(_LOOKS):
        found = _look(prefix)
        if found == before:
            break
        before = found
    return found


def _look(prefix: str) -> set[str]:
    folder, begins = os.path.split(prefix)
    found = set()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder or ".") as entries:
        for entry in entries:
            if (
                entry.name.startswith(begins)
                and entry.name.endswith(_END)
                and _lives(f"{prefix}{_id(entry, begins)}{_END}")
            ):
                found.add(_id(entry, begins))
    return found


def _id(entry: "os.DirEntry[str]", begins: str) -> str:
    return entry.name.removeprefix(begins).removesuffix(_END)


def _lives(path: str) -> bool:
    """Whether a mark's process does; the mark of a dead one is removed."""
    with _lock:
        if path in _marks:
            return True
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)  # noqa: PTH108
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks, or somebody else removed it
            return False
        finally:
            os.close(fd)
        return False


def _locked(path: str) -> int | None:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink:
                return fd
        except BlockingIOError:  # it is being removed
            pass
        except OSError:
            os.close(fd)
            os.unlink(path)  # noqa: PTH108
            return None
        os.close(fd)
