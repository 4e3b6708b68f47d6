"""Records which checkpoints running processes depend on, as files next to the checkpoints.

A run in flight has an empty file that is named after its newest checkpoint, and locked for as long as its process
lives. So what a dead one left is known, and removed by who comes next. Where a file system has no locks, no run is
known to be in flight.

Invariant: who lists the checkpoints and then the marks finds a mark for each line in flight. For that, a checkpoint of
a run is marked before others can see it (`marking_ahead`), and the mark of the one before goes after that.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextvars import ContextVar

from runner.core.file_locks import unheld
from runner.core.fork_safe_lock import ForkSafeLock

_END = ".live"
_LOOKS = 20

_marks: dict[str, int] = {}
_lock = ForkSafeLock()  # reentrant: a signal's handler may write a checkpoint too

_ahead: ContextVar[set[str] | None] = ContextVar("_ahead", default=None)
"""The marks of what a run writes just now, and does not stand on yet; None where it is no run that writes."""


def _after_fork() -> None:
    """Forget all marks in a forked child, because they are the parent's."""
    for fd in _marks.values():
        os.close(fd)
    _marks.clear()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def marking_ahead() -> Iterator[None]:
    """In here a run writes a checkpoint and then holds it: it is marked before others can see it.

    What is marked so and not held at the end is marked no more: the write failed, or the provider writes elsewhere.
    """
    ahead: set[str] = set()
    token = _ahead.set(ahead)
    try:
        yield
    finally:
        _ahead.reset(token)
        for path in ahead:
            _drop(path)


def marks_ahead() -> bool:
    """Whether it is a run that writes: what others can see of it is to be held already."""
    return _ahead.get() is not None


def mark_ahead(prefix: str, checkpoint_id: str) -> None:
    """If it is a run that writes: it will stand on this checkpoint, which others cannot see yet."""
    ahead = _ahead.get()
    if ahead is None:
        return
    path = f"{prefix}{checkpoint_id}{_END}"
    with contextlib.suppress(OSError):  # the checkpoint matters more
        _take(path)
        ahead.add(path)


def mark(prefix: str, checkpoint_id: str, instead_of: str | None = None) -> None:
    """A run of this process stands on a checkpoint, and no more on the one before. ``prefix`` begins a file's name."""
    path, ahead = f"{prefix}{checkpoint_id}{_END}", _ahead.get() or set()
    with _lock:
        for one in [one for one in ahead & _marks.keys() if _is_same(one, path)]:
            ahead.remove(one)
            _marks[path] = _marks.pop(one)
        _take(path)
    if instead_of is not None:
        unmark(prefix, instead_of)


def unmark(prefix: str, checkpoint_id: str) -> None:
    """Remove the mark of a run that is over."""
    _drop(f"{prefix}{checkpoint_id}{_END}")


def _take(path: str) -> None:
    with _lock:
        if path not in _marks and (fd := _locked(path)) is not None:
            _marks[path] = fd


def _drop(path: str) -> None:
    with _lock:
        fd = _marks.pop(path, None)
        if fd is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - names, not paths
            os.close(fd)


def marked(prefix: str) -> set[str]:
    """The checkpoints that any runs stand on. One look may miss a mark that moves: two are to say the same."""
    before: set[str] | None = None
    for _ in range(_LOOKS):
        found = _look(prefix)
        if found == before:
            break
        before = found
    return found


def _is_same(one: str, other: str) -> bool:
    """Whether two names are of one mark: a provider may spell the location in another way than it was given."""
    with contextlib.suppress(OSError):
        return one == other or os.path.samefile(one, other)  # noqa: PTH121 - names, not paths
    return False


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
            with unheld(path, os.O_RDWR):
                os.unlink(path)  # noqa: PTH108 - names, not paths
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks, or another process removed it
            pass
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
            os.unlink(path)  # noqa: PTH108 - names, not paths
            return None
        os.close(fd)
