"""SQLite databases in a task's folder that may be open: they are read and restored through SQLite.

A connection keeps the file that it opened: if another file takes its place, what is written by it afterwards is lost.
And a database is not only its file, but also the log beside it, which belongs to that file alone.
"""

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runner.core.errors import TaskError

_MAGIC = b"SQLite format 3\0"
_COPY = Path(__file__).with_name("sqlite_copy.py")
_LOGS = ("-wal", "-journal", "-shm")
_PAGES = 512  #: bytes: a database is some pages, each a multiple of this. Most files are no database by that alone
_Id = tuple[int, int]


def read(folder: Path, changed: Iterable[str]) -> dict[str, bytes | None]:
    """Return the changed databases that the task has open, and those with a log; with None for each log.

    What is in a log is in the database that is returned, too. Raises `TaskError` if one stays locked.
    """
    found: dict[str, bytes | None] = {}
    open_here: dict[_Id, int | None] | None = None
    for path in changed:
        name = next((path.removesuffix(log) for log in _LOGS if path.endswith(log)), path)
        if name not in found and (there := _id(folder / name, of_pages=True)) is not None:
            open_here = _open_files() if open_here is None else open_here
            logs = [f"{name}{log}" for log in _LOGS if (folder / f"{name}{log}").exists()]
            if (there in open_here or logs) and _starts(folder / name, open_here.get(there)) == _MAGIC:
                found |= {name: _sqlite("read", folder / name, "recorded"), **dict.fromkeys(logs)}
    return found


def restore(folder: Path, files: Mapping[str, bytes | None]) -> set[str]:
    """Restore those of these files that are databases which this process has open.

    Return their paths and those of their logs. Raises `TaskError` if one stays locked, as by a transaction of the task.
    """
    databases = {path: data for path, data in files.items() if data is not None and data.startswith(_MAGIC)}
    open_here = _open_files() if databases else {}
    done = set[str]()
    for path, data in databases.items():
        file = folder / path
        if _id(file) in open_here and file.resolve().is_relative_to(folder.resolve()):
            _sqlite("write", file, "restored", data)
            done |= {path, *(f"{path}{log}" for log in _LOGS)}
    return done


def _id(file: Path, *, of_pages: bool = False) -> _Id | None:
    """What file it is; None if it is none, or with ``of_pages`` if its size shows that it is no database."""
    with contextlib.suppress(OSError):
        info = file.lstat()
        if stat.S_ISREG(info.st_mode) and not (of_pages and (not info.st_size or info.st_size % _PAGES)):
            return info.st_dev, info.st_ino
    return None


def _open_files() -> dict[_Id, int | None]:
    """Return the files that the task has open, with descriptors, and those of processes it began, as a tool server."""
    found: dict[_Id, int | None] = dict.fromkeys(one for pid in _begun(Path("/proc/self")) for one in _files_of(pid))
    return {**found, **_files_of(Path("/dev"))}


def _begun(process: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for thread in (process / "task").iterdir():
            for pid in (thread / "children").read_text("utf-8").split():
                yield Path("/proc", pid)
                yield from _begun(Path("/proc", pid))


def _files_of(process: Path) -> dict[_Id, int]:
    found: dict[_Id, int] = {}
    with contextlib.suppress(OSError):
        for one in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                info = one.stat()
                if stat.S_ISREG(info.st_mode):
                    found[info.st_dev, info.st_ino] = int(one.name)
    return found


def _starts(file: Path, opened: int | None) -> bytes:
    """Return how a file starts, by the descriptor of it that is open: to open and close another one drops locks."""
    with contextlib.suppress(OSError):
        if opened is not None:
            return os.pread(opened, len(_MAGIC), 0)
        with file.open("rb") as there:
            return there.read(len(_MAGIC))
    return b""


def _sqlite(verb: str, file: Path, what: str, data: bytes | None = None) -> bytes:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(_COPY), verb, str(file)],
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        why = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise TaskError(
            f"what a tool wrote to {file.name} cannot be {what}: {why or f'exit code {done.returncode}'}; "
            "commit or close what the task has open there before a tool is used"
        )
    return done.stdout
