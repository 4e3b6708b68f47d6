"""The working folder of an attempt, and which of its files are kept.

It starts with the committed files: a copy of the project (for a task with a process of its own) or nothing, then what
earlier tasks left. New and changed files are kept with the task's output and with each step that made them, so a replay
elsewhere has them. Each attempt has a new folder, without the half-written files of a killed one.
"""

import base64
import binascii
import contextlib
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.core import waiting
from runner.core.errors import LeadsOutside, TaskError, needed_on_disk
from runner.core.safe_paths import remove_below, write_below

if TYPE_CHECKING:
    from runner.bundles.attempt_folders import HeldFolder

MOST = 16_000_000  #: bytes of new and changed files that are kept with a task

_SKIPPED = frozenset({".git", "__pycache__", ".venv", "node_modules"})  # folders that are not looked into
_EARLIER = 10 * 10**9  # nanoseconds: what is laid out is that old, so that any write shows in its time

Content = str | Mapping[str, Any] | bool | None
"""A file as it is stored: its text; other bytes as ``{"base64": ...}``; a program so, too, with ``"executable": True``;
False where it is gone; None for the text of the task's output."""
Files = Mapping[str, Content]
_Snapshot = dict[str, tuple[int, int, int, int]]


_RLock = type(threading.RLock())  # which is made without a call of Python
_NOTHING: AbstractSet[str] = frozenset()


class Workdir:
    """The folder of one attempt, at the ``place`` that is taken when it is first asked for.

    ``begin`` gives the folder that it is a copy of, or None, and the files that were left before, oldest first.
    ``keeps`` says of a path in it whether it may be stored.
    """

    def __init__(
        self,
        place: Callable[[], "HeldFolder"],
        begin: Callable[[], tuple[Path | None, Iterable[Files]]],
        keeps: Callable[[str], bool],
    ) -> None:
        self._take = place
        self._begin = begin
        self._keeps = keeps
        self._lock = waiting.TaskLock() if waiting.shared else _RLock()
        self.made = False
        self._seen: _Snapshot = {}
        self._begun_with = _NOTHING
        self._changed: dict[str, int] = {}  # what differs from the beginning, and its ordinal among the changes noticed
        self._count = 0

    @property
    def folder(self) -> Path:
        """Return its path."""
        with self._lock:
            if not self.made:
                with needed_on_disk():
                    self._make()
            return self._folder

    def mark(self) -> int:
        """Return this point in time, for `changed`: what was written before is not changed since."""
        with self._lock:
            if self.made:
                self._look()
            return self._count

    @property
    def noticed(self) -> int:
        """The point in time of the last look."""
        return self._count

    def changed(self, since: int = 0) -> dict[str, Content]:
        """Return the files that are new, changed or removed since a `mark`. Raises `TaskError` if they are too big."""
        with self._lock:
            if not self.made:
                return {}
            self._look()
            found: dict[str, Content] = {}
            total = 0
            changed = [path for path, number in self._changed.items() if number > since and self._is_kept(path)]
            databases = _open_databases().read(self._folder, changed) if changed else {}
            for path in filter(self._is_kept, dict.fromkeys((*changed, *databases))):
                data = databases[path] if path in databases else self._read(path, MOST - total)
                if data is not None:
                    total += len(data)
                    self._check_size(path, total)
                found[path] = False if data is None else stored(data, self._seen.get(path, (0, 0, 0, 0))[3] != 0)
            return found

    def not_kept(self) -> dict[str, list[str]]:
        """Return the names of new or changed files that are not stored, by reason, in a form to be shown."""
        with self._lock:
            if not self.made:
                return {}
            there = [path for path in self._changed if path in self._seen]
            others: set[str] = set()
            _snapshot(self._folder, others)
            others -= self._begun_with
            found = {
                "by the names of secrets and caches": [path for path in there if not self._keeps(path)],
                "by names that are not UTF-8": [path for path in there if self._keeps(path) and not _is_text(path)],
                "links and special files": [path for path in others if not path.endswith("/")],
                "empty folders": [path for path in others if path.endswith("/")],
            }
            return {why: sorted(map(_shown, paths)) for why, paths in found.items() if paths}

    def _is_kept(self, path: str) -> bool:
        return self._keeps(path) and _is_text(path)

    def lay(self, files: Files) -> None:
        """Write these files into the folder, as they were left."""
        with self._lock:
            folder = self.folder
            with needed_on_disk():
                _lay(folder, files)
                self._look()

    def remove(self) -> None:
        """Remove the folder."""
        with self._lock:
            if self.made:
                self._place.leave()

    def _make(self) -> None:
        original, files = self._begin()
        self._place = self._take()
        self._folder = self._place.folder
        try:
            if original is not None:
                _copy(original, self._folder)
            for one in files:
                _lay(self._folder, one)
            begun_with: set[str] = set()
            self._seen, self._begun_with = _snapshot(self._folder, begun_with), begun_with
        except BaseException:  # the disk is full, or the task is stopped
            self._place.leave()
            raise
        self.made = True

    def _look(self) -> None:
        now = _snapshot(self._folder)
        for path in now.keys() | self._seen.keys():
            if now.get(path) != self._seen.get(path):
                self._count += 1
                self._changed[path] = self._count
        self._seen = now

    def _read(self, path: str, left: int) -> bytes | None:
        try:
            with (self._folder / path).open("rb") as file:
                return file.read(left + 1)
        except FileNotFoundError:
            return None

    def _check_size(self, path: str, total: int) -> None:
        if total > MOST:
            sizes = [(found[1], name) for name, found in self._seen.items() if name in self._changed]
            size, name = max(sizes, default=(0, path))
            raise TaskError(
                f"the task left {sum(size for size, _ in sizes) / 1e6:.0f} MB of new and changed files in its folder "
                f"(the biggest: {name!r}, {size / 1e6:.0f} MB), but at most {MOST / 1e6:.0f} MB are kept with a task: "
                "write what others need to storage that all workers reach, and the rest to a folder of tempfile"
            )


class TaskFiles:
    """The files that a task's code sees: those of its bundle, and its folder."""

    @property
    def bundle_root(self) -> Path:
        """Return the folder of the bundle."""
        raise NotImplementedError

    @property
    def workdir(self) -> Path:
        """Return the folder in which the task's files are kept."""
        raise NotImplementedError

    def path(self, name: str | os.PathLike[str]) -> Path:
        """Return the path of a file of the bundle. Raises `ValueError` if it is outside of that."""
        bundle = self.bundle_root
        found = Path(os.path.normpath(bundle / name))
        if not found.is_relative_to(bundle):
            raise ValueError(
                f"ctx.path({os.fspath(name)!r}) points outside the crew's folder: it is for files beside the crew"
            )
        return found


class LocalFiles(TaskFiles):
    """Those of a kickoff in this process. ``root`` returns the folder of its code; it writes where the process is."""

    def __init__(self, root: Callable[[], Path]) -> None:
        self._root = root

    @property
    def bundle_root(self) -> Path:
        """Return the folder of the code."""
        return self._root()

    @property
    def workdir(self) -> Path:
        """Return the working directory."""
        return Path.cwd()


current: ContextVar[TaskFiles | None] = ContextVar("runner_task_files", default=None)
"""Those of the task that is at work on the fleet."""


def stored(data: bytes, executable: bool = False) -> Content:
    """Return a file's bytes in the form in which they are stored."""
    if executable:
        return {"base64": base64.b64encode(data).decode(), "executable": True}
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_of(content: Any, raw: str) -> bytes | None:
    """Return the bytes of a stored file, None if it was removed; ``raw`` is its task's output."""
    if content is False:
        return None
    if isinstance(content, Mapping):
        try:
            return base64.b64decode(content["base64"])
        except (binascii.Error, KeyError, TypeError):
            return b""
    return (raw if content is None else str(content)).encode("utf-8", "replace")


def is_executable(content: Any) -> bool:
    """Whether a stored file is executable."""
    return isinstance(content, Mapping) and content.get("executable") is True


def record_fields(raw: str, files: Files) -> dict[str, Any]:
    """Return the files of a task as stored in the record of its output; a text equal to ``raw`` is stored once."""
    return {"files": {path: None if content == raw else content for path, content in files.items()}}


def _lay(folder: Path, files: Files) -> None:
    found = {path: bytes_of(content, "") for path, content in files.items()}
    restored = _open_databases().restore(folder, found)
    for path in restored:
        with contextlib.suppress(FileNotFoundError):  # one that the database does not need any more
            _make_old(folder / path)
    for path in found.keys() - restored:
        data = found[path]
        with contextlib.suppress(LeadsOutside):  # an output_file, which is reported to the submitter
            if data is not None:
                _make_old(write_below(folder, path, data, executable=is_executable(files[path])))
            else:
                remove_below(folder, path)


def _open_databases() -> Any:
    from runner.bundles import open_databases  # few commands have use for it

    return open_databases


def _copy(original: Path, folder: Path) -> None:
    for top, folders, files in os.walk(original):
        there = folder / Path(top).relative_to(original)
        for name in folders:
            (there / name).mkdir()
        for name in files:
            source = Path(top, name)
            _clone(source, there / name)
            if os.access(source, os.X_OK):
                (there / name).chmod(0o755)
            _make_old(there / name)


def _clone(source: Path, target: Path) -> None:
    """Copy a file, sharing its blocks with the original until one is written to, if the file system can."""
    with source.open("rb") as there, target.open("xb") as here:
        left = os.fstat(there.fileno()).st_size
        try:
            while left > 0 and (done := os.copy_file_range(there.fileno(), here.fileno(), left)):
                left -= done
        except (OSError, AttributeError):  # not between these file systems, or not on this one
            here.seek(here.seek(0, os.SEEK_END))
            there.seek(here.tell())
        if left:
            shutil.copyfileobj(there, here)


def _make_old(file: Path) -> None:
    then = time.time_ns() - _EARLIER
    os.utime(file, ns=(then, then))


def _is_text(name: str) -> bool:
    """Whether a name can be stored: one that is not UTF-8 has no spelling in JSON that all read alike."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    return name if name.isprintable() else name.encode("unicode_escape").decode()


def _snapshot(folder: Path, others: set[str] | None = None) -> _Snapshot:
    """Every regular file in it, by what changes when it is written.

    ``others`` gets what is no such file, and is not followed: links and special files, and empty folders with a slash.
    """
    found: _Snapshot = {}
    left = [""]
    while left:
        inside = left.pop()
        empty = inside != ""
        with contextlib.suppress(FileNotFoundError), os.scandir(folder / inside) as entries:
            for entry in entries:
                empty = False
                path = f"{inside}{entry.name}"
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _SKIPPED:
                            left.append(f"{path}/")
                    elif entry.is_file(follow_symlinks=False):
                        info = entry.stat(follow_symlinks=False)
                        found[path] = (info.st_mtime_ns, info.st_size, info.st_ino, info.st_mode & stat.S_IXUSR)
                    elif others is not None:
                        others.add(path)
        if empty and others is not None:
            others.add(inside)
    return found
