"""The unpacked bundles on a machine: locked while a process uses them, and removed when space is needed.

A process that uses a bundle has a shared lock on its folder, which ends with the process; the folder's time is that of
its last use. Removal takes an exclusive lock and renames the folder first: a process that had just opened it sees that.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from runner.bundles.unpacking import CALLS, calls_beside, unpack
from runner.core.file_locks import unheld

UNUSED = 7 * 24 * 3600.0  #: seconds after which an unused bundle is removed
HALF = 60.0  #: seconds that who unpacks may take to lock its folder

_NAME = re.compile(r"[0-9a-f]{64}")
_sizes: dict[tuple[str, int], int] = {}


def hold(sha256: str, cache: Path, fetch: Callable[[], bytes]) -> tuple[Path, int]:
    """Return the folder of a bundle, unpacked from the result of ``fetch`` if necessary, and a handle.

    The folder stays until the handle is closed, or the process ends. Raises the errors of `unpack`.
    """
    home = cache / sha256
    while True:
        try:
            handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            unpack(fetch(), sha256, cache)
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            if _is(home, handle):
                os.utime(handle)
                return home, handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # it was taken away between the two


def calls(home: Path) -> dict[str, str]:
    """Return the recorded calls that go with the code in a bundle's folder."""
    try:
        found: dict[str, str] = json.loads(calls_beside(home).read_bytes())
    except FileNotFoundError:
        return {}
    return found


def tidy(cache: Path, limit: float) -> None:
    """Remove bundles unused for long, and the least recently used while all take more than ``limit`` bytes.

    What killed processes left partly unpacked or removed goes, too. Bundles in use stay.
    """
    found = []
    with contextlib.suppress(FileNotFoundError):
        for path in cache.iterdir():
            with contextlib.suppress(OSError):
                info = path.stat()
                if _NAME.fullmatch(path.name):
                    found.append((info.st_mtime, _size(path, info.st_ino), path))
                elif path.name.startswith((".unpack-", ".gone-")) and time.time() - info.st_mtime > HALF:
                    _remove(path)
                elif (
                    path.suffix == CALLS and time.time() - info.st_mtime > UNUSED and not path.with_suffix("").exists()
                ):
                    path.unlink()  # of one that was killed between the two
    room = limit - sum(size for _, size, _ in found)
    for used, size, path in sorted(found):
        if room >= 0 and time.time() - used < UNUSED:
            break
        if _remove(path):
            room += size


def _remove(path: Path) -> bool:
    """Remove a folder that no process has locked. Returns whether it is gone."""
    gone = path.with_name(f".gone-{uuid.uuid4().hex}")
    try:
        with unheld(path, os.O_DIRECTORY):
            calls_beside(path).unlink(missing_ok=True)  # first: who finds no folder unpacks both
            path.rename(gone)
    except OSError:  # it is used, or another worker of this machine was first
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _is(home: Path, handle: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(home.stat(), os.fstat(handle))
    return False


def _size(folder: Path, inode: int) -> int:
    """Return the size in bytes of all files of a bundle, which do not change."""
    known = (str(folder), inode)
    if known not in _sizes:
        files = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
        files += [beside] if (beside := calls_beside(folder)).is_file() else []
        _sizes[known] = sum(file.lstat().st_size for file in files)
    return _sizes[known]
