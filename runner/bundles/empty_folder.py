"""The working directory of processes that do tasks of many runs: an empty folder, so that relative paths lead nowhere.

They would lead somewhere else on each machine, and where a crew is only tried they would lead to the right place.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

ADVICE = (
    "relative paths do not work on a worker: ctx.path('data/x.csv') is a file beside the crew, ctx.workdir a folder "
    "whose files are kept; in a flow's method, self.path and self.workdir"
)

FRESH = 60.0  #: seconds that who made a folder may take to lock it

_here: list[Path] = []


def enter(cache: Path) -> None:
    """Have this process be nowhere, for good: in a folder of its own, which has a lock until the process is gone.

    Its name is unique: containers that share a cache have processes of the same number.
    """
    nowhere = _folders(cache)
    nowhere.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=nowhere))
    folder.chmod(0o500)
    with contextlib.suppress(OSError):  # a file system without locks: nothing is swept there
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_SH)
    os.chdir(folder)
    _here[:] = [folder]


def sweep(cache: Path) -> None:
    """Take away the folders of processes that are gone."""
    with contextlib.suppress(OSError):
        for folder in _folders(cache).iterdir():
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > FRESH:
                    _remove(folder)


def leave() -> None:
    """It was elsewhere for a while."""
    if _here:
        os.chdir(_here[0])


def is_here() -> bool:
    """Whether this process is nowhere just now."""
    try:
        return bool(_here) and Path.cwd().samefile(_here[0])
    except OSError:
        return False


def stray_files() -> list[str]:
    """What was written here by a relative path although that is not permitted: root can. It is removed."""
    if not _here or not (found := os.listdir(_here[0])):  # noqa: PTH208 - for each task, and in nearly all nothing
        return []
    for name in found:
        path = _here[0] / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return sorted(found)


def is_led_astray(error: BaseException | None) -> bool:
    """Whether an error comes of a relative path, in a process that is nowhere."""
    if not _here or not isinstance(error, OSError) or not isinstance(error.filename, str | bytes):
        return False
    try:
        return not Path(os.fsdecode(error.filename)).is_absolute() and Path.cwd() == _here[0]
    except OSError:
        return False


def _remove(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)


def _folders(cache: Path) -> Path:
    return cache.absolute() / "nowhere"
