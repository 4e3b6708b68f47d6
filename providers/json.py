"""Checkpoints as files: ``LOCATION/BRANCH/ID_p-PARENT.json``, for people to read and for tools to copy.

A file appears under its name when all of it is on the disk: it is written under a hidden name, synced, and renamed. Its
writer holds a lock on it meanwhile, so what a dead one left is known, and removed by the next writer.
"""

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from runner.core import fault_points
from runner.core.errors import BadCheckpoint
from runner.core.file_locks import unheld
from runner.providers import inflight
from runner.providers.base import (
    BaseProvider,
    CheckpointInfo,
    CheckpointNotFound,
    check_branch,
    check_keep,
    created_at,
    excess,
    is_whole,
    make_id,
    micros,
    seems_whole,
    torn,
)

_END = b"\n\n"
"""What our files end with. No JSON that we or others write has an empty line in it, so a part of a file never does."""

_ABANDONED = 3600.0  #: seconds after which a hidden file has no writer any more, where the file system has no locks

_STRANGE = 100  #: folders with files of which none is a checkpoint: a place with more of them is none of checkpoints

_LOOKS = 20
"""How often to look at a folder that changes: one look may miss a file that came while its forerunner went."""

_LINK = "_p-"
_NAME = re.compile(rf"(?!\.)(.+{_LINK}.+|\d{{8}}T\d{{6}}_[0-9a-f]+.*)\.json")

_ANY_JSON = re.compile(r"(?!\.).+\.json")

_HIDDEN = re.compile(r"\.\d{8}T\d{6}_[0-9a-f]{8}\.tmp")


class CheckpointFileNotFound(CheckpointNotFound, FileNotFoundError):
    """There is no such checkpoint file."""


@dataclass(frozen=True, slots=True)
class _File:
    """A checkpoint file as the directory tells it."""

    path: Path
    branch: str
    mtime_ns: int
    size: int

    @property
    def id(self) -> str:
        """The checkpoint's id."""
        return self.path.stem.partition(_LINK)[0]

    @property
    def parent_id(self) -> str | None:
        """The id of its parent."""
        parent = self.path.stem.partition(_LINK)[2]
        return None if parent in ("", "none") else parent

    @property
    def order(self) -> tuple[int, int, str]:
        """By the id's second, which survives copying; within it by the file's time; then by name."""
        made = micros(self.id)
        second = self.mtime_ns // 10**9 if made is None else made // 10**6
        return second, self.mtime_ns, self.path.name


class JsonProvider(BaseProvider):
    """Keeps checkpoints as JSON files below a directory; the default."""

    provider_type: Literal["json"] = "json"

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Write a file and sync it. Returns its path."""
        folder = _folder(location, branch)
        if parent_id is not None and ("/" in parent_id or "\0" in parent_id):
            raise ValueError(f"Not a checkpoint id: {parent_id!r}")
        whole = data.encode() + _END
        while True:
            checkpoint_id = make_id(parent_id)
            path = folder / f"{checkpoint_id}{_LINK}{parent_id or 'none'}.json"
            # Two processes may make one id in one microsecond; the hidden name is one process's only.
            if _write(path, folder / f".{checkpoint_id}.tmp", whole, micros(checkpoint_id) or 0):
                break
        _sweep_once(folder)
        return str(path)

    def prune(self, location: str, max_keep: int, *, branch: str = "main", head: str | None = None) -> int:
        """Remove the oldest files of a branch, and leave the lines in flight alone that are not ``head``'s.

        In a branch's folder where no file is named as checkpoints are, each JSON file is one: they were renamed.
        """
        check_keep(max_keep)
        folder = _folder(location, branch)
        removed = 0
        files, held = _files_of(folder, branch), set[str]()
        if not files and head is None:
            files = _files_of(folder, branch, _ANY_JSON)
        if head is not None:
            # What came while we looked for marks may have its mark since: it is in flight too.
            before, held = {file.id for file in files}, inflight.marked(_mark(folder))
            files = _files_of(folder, branch)
            held |= {file.id for file in files} - before
        for file in excess(files, max_keep, head, _complete, held):
            fault_points.reached("checkpoints pruned in part")
            with contextlib.suppress(FileNotFoundError):
                file.path.unlink()
                removed += 1
        _sweep(folder)
        return removed

    def hold(self, location: str, instead_of: str | None = None) -> None:
        """By a hidden file beside it, with a lock."""
        inflight.mark(_mark(Path(location).parent), self.extract_id(location), instead_of)

    def release(self, location: str) -> None:
        """Remove that file."""
        inflight.unmark(_mark(Path(location).parent), self.extract_id(location))

    def extract_id(self, location: str) -> str:
        """Return the checkpoint's id: the part of the file's name before ``_p-``."""
        return Path(location).stem.partition(_LINK)[0]

    def from_checkpoint(self, location: str) -> str:
        """Read a file."""
        try:
            data = Path(location).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise CheckpointFileNotFound(f"Checkpoint not found: {location}") from None
        try:
            text = data.decode().removesuffix(_END.decode())
        except UnicodeDecodeError:
            text = ""
        if not seems_whole(text):
            raise torn(location)
        return text

    def checkpoints(self, location: str, branch: str | None = None) -> list[CheckpointInfo]:
        """Return the checkpoint files below a directory, oldest first."""
        return [_info(file) for file in _files(location, branch)]

    def newest_first(self, location: str, branch: str | None = None) -> Iterator[CheckpointInfo]:
        """As above, from the newest; a file is opened when it is come to."""
        return (_info(file) for file in reversed(_files(location, branch)))


def _mark(folder: Path) -> str:
    return f"{folder}/."


def _folder(location: str, branch: str) -> Path:
    """The branch's folder. Raises ValueError for a name that leads out of the location, by a link too."""
    check_branch(branch)
    folder = Path(location) / branch
    if not folder.resolve().is_relative_to(Path(location).resolve()):
        raise ValueError(f"Branch name escapes checkpoint directory: {branch!r}")
    return folder


def _files(location: str, branch: str | None) -> list[_File]:
    if branch is not None:
        return _files_of(_folder(location, branch), branch)
    found: list[_File] = []
    strange = 0
    for folder, names, others in os.walk(location):
        names[:] = [name for name in names if not name.startswith(".")]
        here = _files_of(Path(folder), Path(folder).relative_to(location).as_posix())
        found += here
        strange += not here and any(not name.startswith(".") for name in others)
        if strange > _STRANGE:
            raise BadCheckpoint(
                f"{location} is not a checkpoint location: more than {_STRANGE} folders in it hold other files; "
                "name the directory that they were written to"
            )
    return sorted(found, key=lambda file: file.order)


def _files_of(folder: Path, branch: str, names_are: re.Pattern[str] = _NAME) -> list[_File]:
    try:
        before = set(filter(names_are.fullmatch, os.listdir(folder)))  # noqa: PTH208 - names, not paths
        for _ in range(_LOOKS):
            found = _scan(folder, branch, names_are)
            names = {file.path.name for file in found}
            if names == before:
                break
            before = names
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda file: file.order)


def _scan(folder: Path, branch: str, names_are: re.Pattern[str]) -> list[_File]:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if names_are.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat()
                    found.append(_File(folder / entry.name, branch, stat.st_mtime_ns, stat.st_size))
    return found


def _info(file: _File) -> CheckpointInfo:
    return CheckpointInfo(
        id=file.id,
        parent_id=file.parent_id,
        branch=file.branch,
        location=str(file.path),
        created_at=created_at(file.id, otherwise=file.mtime_ns / 1e9),
        size=file.size,
        complete=_complete(file),
    )


def _complete(file: _File) -> bool:
    """Ours tell by their end; what others wrote is read."""
    try:
        with file.path.open("rb") as open_file:
            if file.size > len(_END):
                open_file.seek(-len(_END), os.SEEK_END)
                if open_file.read() == _END:
                    return True
                open_file.seek(0)
            return is_whole(open_file.read())
    except OSError:
        return False


def _write(path: Path, hidden: Path, data: bytes, at_micros: int) -> bool:
    """Put a file in place, all of it and durably. Returns False if another process writes this id."""
    while True:
        try:
            fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            break
        except FileNotFoundError:
            _make(path.parent)
        except FileExistsError:
            return False
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        if not os.fstat(fd).st_nlink:
            return False  # it was swept before it was locked
        half = len(data) // 2
        _write_all(fd, data[:half])
        fault_points.reached("checkpoint begun, not whole")
        _write_all(fd, data[half:])
        # The id's own time, so that the order of times is the order of ids even where the clock went back.
        os.utime(fd, ns=(at_micros * 1000, at_micros * 1000))
        fault_points.reached("checkpoint whole, not synced")
        os.fsync(fd)
        fault_points.reached("checkpoint synced, not named")
        inflight.mark_ahead(_mark(path.parent), path.stem.partition(_LINK)[0])
        hidden.rename(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    _sync_folder(path.parent)
    fault_points.reached("checkpoint named, not told")
    return True


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _make(folder: Path) -> None:
    """Make a folder and those above it, so that they last."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in reversed(missing):
        _sync_folder(one.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that does not sync folders
            raise
    finally:
        os.close(fd)


def _sweep(folder: Path) -> None:
    """Remove what writers that died left under hidden names."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if _HIDDEN.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _sweep_one(entry.path)


@lru_cache(maxsize=256)
def _sweep_once(folder: Path) -> None:
    """With the first write of this process to a folder: those before it may have been killed."""
    _sweep(folder)


def _sweep_one(path: str) -> None:
    try:
        with unheld(path, os.O_RDWR):
            os.unlink(path)  # noqa: PTH108 - as opened
    except OSError:
        if Path(path).stat().st_mtime < time.time() - _ABANDONED:
            os.unlink(path)  # noqa: PTH108 - as opened
