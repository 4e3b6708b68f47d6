"""Where on a machine an attempt at a task has its folder: the same path for each attempt, on each machine.

What an agent says of where it is (its working directory in a prompt, the path of a document) is part of what it asks.
Elsewhere it would ask again for what is recorded, and recorded answers would name files that are not there.
"""

import contextlib
import fcntl
import hashlib
import itertools
import os
import shutil
import stat
import time
import uuid
from pathlib import Path

from runner.bundles.task_files import Place
from runner.core.held_files import unheld
from runner.core.jobs import Job

OF_BEFORE = 7 * 24 * 3600.0  #: seconds that a folder of an older version was unused before it is removed
PUBLIC = Path("/var/tmp")  #: where a user has a folder of his own, if his cache is hidden


def take(store: str, cache: Path, job: Job) -> Place:
    """The place of a job's attempt. ``store`` says whose job, without a password.

    What a killed attempt left there is removed. Where one still lives, which lost its claim and does not know yet, it
    keeps its folder, and this one has the next. Raises `OSError`.
    """
    place = _of_store(store, cache)
    name = hashlib.sha256(job.ref.encode()).hexdigest()[:24]
    names = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
    own, handle = next((place / one, held) for one in names if (held := _held(place / one)) is not None)
    folder = own / "files"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
    except BaseException:
        os.close(handle)
        raise
    return Place(folder, handle)


def sweep(cache: Path) -> None:
    """Take away what killed attempts left, of all stores: what no process holds."""
    for root in {_root(cache), cache.absolute() / "attempts"}:
        for place in root.glob("*/*"):
            gone = place.with_name(
                f".gone-{uuid.uuid4().hex}"
            )  # held no longer than a name takes: a new attempt has it
            with contextlib.suppress(OSError):
                with unheld(place, os.O_DIRECTORY | os.O_NOFOLLOW):
                    place.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        for store in root.glob("*"):
            with contextlib.suppress(OSError):  # it is not empty
                store.rmdir()
    for before in cache.glob("work/*/*"):  # of an older version, which held them by the worker's name alone
        with contextlib.suppress(OSError):
            if time.time() - before.stat().st_mtime > OF_BEFORE:
                shutil.rmtree(before, ignore_errors=True)


def _held(own: Path) -> int | None:
    """A handle of this folder, made if it is not there, and locked; None where another process holds it."""
    while True:
        try:
            own.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(own, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(own.stat(), os.fstat(handle)):
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # it was taken away between the two


def _of_store(store: str, cache: Path) -> Path:
    return _root(cache) / hashlib.sha256(store.encode()).hexdigest()[:12]


def _root(cache: Path) -> Path:
    """In the cache; where that is below a hidden folder, which readers of folders pass over, in one of this user's
    that is not, if the machine has a place for it."""
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
