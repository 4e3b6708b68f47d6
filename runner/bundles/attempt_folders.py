"""The folder of an attempt: each attempt at a task has the same path, on each machine.

An agent's path (its working directory in a prompt, the path of a document) is part of its requests. With another path
it would make recorded calls again, and recorded answers would name files that do not exist.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from runner.core import file_locks, processes
from runner.core.clock import SYSTEM
from runner.core.file_locks import unheld
from runner.core.jobs import Job

OF_BEFORE = 7 * 24 * 3600.0  #: seconds that a folder of an older version was unused before it is removed
PATIENCE = 5.0  #: seconds for who holds a task's folder to leave it: it handed the task back, and is about to
POLL = 0.005  #: seconds between two looks at whether it did
LOOK = 0.1  #: and at whether it stands still, for which the locks of all processes are read
STOPPED = "T"  #: the state of a process that was stopped: it does not leave before it continues
PUBLIC = Path("/var/tmp")  #: where a user has a folder of his own, if his cache is hidden

_GONE = ".gone-"  # what the name of a folder begins with that is being deleted, or cannot be
_handles: set[int] = set()  # of the folders that this process holds


@dataclass(frozen=True, slots=True)
class HeldFolder:
    """The ``folder`` of one attempt, empty at first, in one that its process holds by a lock until it is left."""

    folder: Path
    handle: int

    def leave(self) -> None:
        """Release the folder. The next attempt gets the path at once, without waiting until everything is deleted."""
        if self.handle not in _handles:  # this process was forked from the one that holds it
            return
        own = self.folder.parent
        try:
            with contextlib.suppress(OSError):
                own = _set_aside(own)
        finally:
            _let_go(self.handle)
        if own != self.folder.parent:  # or `sweep` finds it
            _delete(own)


def take(store: str, cache: Path, job: Job) -> HeldFolder:
    """Take the folder of a job's attempt, and remove the files of a killed one. ``store`` is named without a password.

    An attempt that still lives is waited for. If it is frozen, or does not know that it lost its claim, it keeps its
    folder, and this one gets another. Raises `OSError`.
    """
    name = hashlib.sha256(job.ref.encode()).hexdigest()[:24]
    own = _root(cache) / hashlib.sha256(store.encode()).hexdigest()[:12] / name
    number, began = 1, SYSTEM.monotonic()
    next_look = began
    while (handle := _held(own)) is None:
        now = SYSTEM.monotonic()
        if stands_still := now >= next_look:
            next_look = now + LOOK
            stands_still = processes.state(file_locks.holder(own)) == STOPPED
        if number == 1 and now < began + PATIENCE and not stands_still:
            SYSTEM.sleep(POLL)
        else:
            number += 1
            own = own.with_name(f"{name}-{number}")
    folder = own / "files"
    try:
        before = None
        with contextlib.suppress(FileNotFoundError):
            before = _set_aside(folder)
        folder.mkdir(mode=0o700)
        if before is not None:
            _delete(before)
    except BaseException:
        _let_go(handle)
        raise
    return HeldFolder(folder, handle)


def sweep(cache: Path) -> None:
    """Remove the folders of killed attempts, of all stores: those that no process has locked."""
    for root in {_root(cache), cache.absolute() / "attempts"}:
        for place in root.glob("*/*"):
            gone = place
            with contextlib.suppress(OSError):
                if not place.name.startswith(_GONE):
                    with unheld(place, os.O_DIRECTORY | os.O_NOFOLLOW):  # no longer than a name takes
                        gone = _set_aside(place)
                _delete(gone)
        for store in root.glob("*"):
            with contextlib.suppress(OSError):  # it is not empty
                store.rmdir()
    for before in cache.glob("work/*/*"):  # of an older version, which held them by the worker's name alone
        with contextlib.suppress(OSError):
            if time.time() - before.stat().st_mtime > OF_BEFORE:
                _delete(before)


def _set_aside(folder: Path) -> Path:
    """Rename the folder, which only needs a right to its parent folder. Returns the new path."""
    return folder.rename(folder.with_name(f"{_GONE}{uuid.uuid4().hex}"))


def _delete(folder: Path) -> None:
    """Delete it with everything that this user may delete, also in read-only folders such as Go's cache."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.is_dir():
        return
    with contextlib.suppress(OSError):
        folder.chmod(0o700)
    for top, names, _ in os.walk(folder):
        for inside in (Path(top, name) for name in names):
            with contextlib.suppress(OSError):
                if not inside.is_symlink():
                    inside.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _held(own: Path) -> int | None:
    """Return a locked handle of this folder, created if necessary; None if another attempt has locked it."""
    while True:
        try:
            own.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(own, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        _handles.add(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(own.stat(), os.fstat(handle)):
                return handle
        except BlockingIOError:
            _let_go(handle)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            _let_go(handle)
            raise
        _let_go(handle)  # it was taken away between the two


def _let_go(handle: int) -> None:
    _handles.discard(handle)
    os.close(handle)


def _after_fork() -> None:
    """A lock is of all that have its handle: processes that a task forks may outlive the attempt, and hold nothing."""
    while _handles:
        os.close(_handles.pop())


os.register_at_fork(after_in_child=_after_fork)


def _root(cache: Path) -> Path:
    """Return the folder of all attempts: in the cache, unless that is below a hidden folder.

    Readers of folders pass over hidden ones. Then it is one of this user's that is not, if the machine has a place for
    it.
    """
    found = cache.absolute()
    if any(part.startswith(".") for part in found.resolve().parts):
        own = PUBLIC / f"crew-runner-{os.geteuid()}"
        if _is_own(own):
            found = own
    return found / "attempts"


def _is_own(folder: Path) -> bool:
    """Whether this folder is there, or could be made, is this user's alone, and programs in it may be run."""
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        info, around = folder.lstat(), folder.parent.stat()
        replaceable = around.st_mode & 0o022 and not around.st_mode & stat.S_ISVTX
        private = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o077
        runs = not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
        return private and runs and not replaceable and os.access(folder, os.W_OK | os.X_OK)
    return False
