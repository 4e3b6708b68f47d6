"""A bundle: the crew file and the files beside it, packed once, addressed by the sha256 of what is in it.

The same files give the same bundle on every machine: names sorted, no times, no owners, two modes. It holds regular
files only; what it never holds (caches, environments, secrets) stands in ``IGNORED``, and a ``.runnerignore`` beside
the files adds to that in gitignore's syntax, or takes back with ``!``.
"""

import contextlib
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from pathspec import GitIgnoreSpec

from runner.errors import BadCrew, BundleTooLarge, TaskError
from runner.source.target import Target

MIB = 1024 * 1024
#: The most that a bundle's files may hold together, uncompressed, unless ``--bundle-limit`` says otherwise.
DEFAULT_LIMIT = 32 * MIB
#: What no limit goes over, and no worker unpacks more than: a store's value and a worker's disk are finite.
MAX_LIMIT = 1024 * MIB
MAX_FILES = 20_000
IGNORE_FILE = ".runnerignore"

IGNORED = (
    # histories, caches and environments: large, and no part of the crew
    *(".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", "node_modules", ".tox", ".mypy_cache", ".pytest_cache"),
    *(".ruff_cache", "*.egg-info", ".checkpoints", ".DS_Store", IGNORE_FILE),
    *(".cache", ".local"),  # of a crew file in somebody's home: unpacked bundles are in there
    # secrets are never stored
    *(".env", ".env.*", "*.pem", "*.key", "id_rsa*", "id_ed25519*", ".ssh", ".aws", ".gnupg", ".netrc"),
)

_DEFAULTS = GitIgnoreSpec.from_lines(IGNORED)
_STALE_SECONDS = 3600  # a half-unpacked folder this old was left by a process that was killed


@dataclass(frozen=True)
class Bundle:
    """What is stored of a crew's code: ``data`` is compressed, ``sha256`` is of the tar inside."""

    sha256: str
    data: bytes
    module: str  # what to import from it
    files: int
    size: int  # bytes of all files together


@dataclass(frozen=True)
class _File:
    name: str  # in the bundle, with slashes
    path: Path
    size: int


def pack(target: Target, *, limit: int = DEFAULT_LIMIT) -> Bundle:
    """Pack the crew file and what lies beside it. Nothing is written to disk."""
    walk = _Walk(target, min(limit, MAX_LIMIT))
    files = sorted(walk.files(), key=lambda file: file.name)
    crew_file = target.file.relative_to(target.root).as_posix()
    if all(file.name != crew_file for file in files):
        raise BadCrew(f"{target.file.name} itself is left out by the ignore rules; take it out of {IGNORE_FILE}")
    sink, size = _Sink(), 0
    with tarfile.open(fileobj=cast("IO[bytes]", sink), mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for file in files:
            content, mode = _read(file, walk.limit - size, walk)
            size += len(content)
            member = tarfile.TarInfo(file.name)  # its defaults: time 0, owner 0, no names
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    return Bundle(sha256=sink.sha256(), data=sink.data(), module=target.module, files=len(files), size=size)


def unpack(data: bytes, sha256: str, cache: Path) -> Path:
    """The folder ``cache/<sha256>`` with the bundle's files; unpacked and verified only if it is not there yet.

    Processes may unpack the same bundle at once: each into a folder of its own, and one rename wins.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise TaskError(f"{sha256[:80]!r} is not the sha256 of a bundle")
    home = cache / sha256
    if home.is_dir():  # only a finished rename puts it there
        return home
    cache.mkdir(parents=True, exist_ok=True)
    _sweep(cache)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=cache, ignore_cleanup_errors=True) as scratch:
        try:
            with tempfile.SpooledTemporaryFile(max_size=DEFAULT_LIMIT, dir=scratch) as plain:
                _expand(data, sha256, plain)
                files = Path(scratch, "files")
                files.mkdir(mode=0o700)
                _extract(plain, files)
        except (zlib.error, tarfile.TarError, FileExistsError, NotADirectoryError) as error:
            raise _damaged(sha256, str(error)) from error
        try:
            files.rename(home)
        except OSError:
            if not home.is_dir():
                raise
    return home


class _Walk:
    """One walk over what a target includes, which ends as soon as it has seen too much."""

    def __init__(self, target: Target, limit: int) -> None:
        self.limit = limit
        self._target = target
        self._seen: list[_File] = []
        # A package's rules may lie in it or beside it; they are read from where their file is.
        self._base = target.include
        if not (target.include / IGNORE_FILE).is_file() and (target.root / IGNORE_FILE).is_file():
            self._base = target.root
        self._rules = self._read_rules(self._base / IGNORE_FILE)

    def files(self) -> list[_File]:
        """Every file that belongs in the bundle; BundleTooLarge once they are too many or too much."""
        total = folders = 0
        top = self._target.include
        stack: list[tuple[Path, tuple[tuple[int, int], ...]]] = [(top, (_identity(top.stat()),))]  # and what is above
        while stack:
            folder, above = stack.pop()
            folders += 1
            if folders > MAX_FILES:  # links to folders can multiply without a single file
                raise self._too_many("folders")
            below: list[tuple[Path, tuple[tuple[int, int], ...]]] = []
            for path, info in self._entries(folder):
                if stat.S_ISDIR(info.st_mode):
                    if _identity(info) not in above:  # else a link back to where we came from
                        below.append((path, (*above, _identity(info))))
                    continue
                self._seen.append(_File(self._name(path), path, info.st_size))
                total += info.st_size
                if total > self.limit:
                    raise self.too_large()
                if len(self._seen) > MAX_FILES:
                    raise self._too_many("files")
            stack += reversed(below)
        return self._seen

    def _entries(self, folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
        """The folders and regular files in a folder that are not ignored, links followed."""
        try:
            paths = sorted(folder.iterdir())
        except OSError as error:
            raise BadCrew(f"{self._name(folder)}: cannot be read: {error.strerror}") from error
        for path in paths:
            try:
                info = path.stat()
            except FileNotFoundError:
                continue  # a link to nothing, or gone by now
            except OSError as error:  # a link to itself, a folder we may not look into
                if path.is_symlink():
                    continue
                raise BadCrew(f"{self._name(path)}: cannot be read: {error.strerror}") from error
            is_folder = stat.S_ISDIR(info.st_mode)  # and no sockets, pipes or devices:
            if (is_folder or stat.S_ISREG(info.st_mode)) and not self._ignored(path, is_folder):
                yield path, info

    def _ignored(self, path: Path, is_folder: bool) -> bool:
        verdict = self._rules.check_file(path.relative_to(self._base).as_posix() + "/" * is_folder).include
        if verdict is not None:
            return verdict
        if is_folder:
            return (path / "pyvenv.cfg").exists()  # a virtual environment, whatever its name
        # A link must not carry a secret in under another name.
        return path.is_symlink() and _DEFAULTS.match_file(path.resolve().name)

    def _read_rules(self, file: Path) -> GitIgnoreSpec:
        try:
            own = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
            return GitIgnoreSpec.from_lines([*IGNORED, *own])
        except (OSError, ValueError) as error:  # ValueError: a pattern or an encoding that cannot be read
            raise BadCrew(f"{IGNORE_FILE}: cannot be read: {error}") from error

    def _name(self, path: Path) -> str:
        return path.relative_to(self._target.root).as_posix()

    def too_large(self) -> BundleTooLarge:
        """The error over the limit in bytes, with the biggest of what was seen."""
        sizes = {file.name: file.size for file in self._seen}
        biggest = ", ".join(f"{name} {_human(size)}" for name, size in self._biggest(sizes))
        return BundleTooLarge(
            f"the files beside {self._target.file.name} are over the bundle limit of {_human(self.limit)} "
            f"(biggest seen: {biggest}); leave some out with a {IGNORE_FILE} file in {self._base}, "
            f"or raise the limit with --bundle-limit or RUNNER_BUNDLE_LIMIT"
        )

    def _too_many(self, what: str) -> BundleTooLarge:
        most = self._biggest({file.name: 1 for file in self._seen})
        seen = f" (most in: {', '.join(f'{name} {count:,}' for name, count in most)})" if most else ""
        return BundleTooLarge(
            f"there are more than {MAX_FILES:,} {what} beside {self._target.file.name}{seen}; "
            f"leave some out with a {IGNORE_FILE} file in {self._base}"
        )

    def _biggest(self, weights: dict[str, int]) -> list[tuple[str, int]]:
        """The three heaviest entries of the walked folder, each narrowed to the part that makes it heavy."""
        prefix = self._name(self._target.include)
        sums: Counter[str] = Counter()
        for name, weight in weights.items():
            parts = PurePosixPath(name).parts
            for depth in range(1, len(parts) + 1):
                sums["/".join(parts[:depth]) + "/" * (depth < len(parts))] += weight
        start = 0 if prefix == "." else len(PurePosixPath(prefix).parts)
        shown = []
        for name, weight in sums.most_common():
            if name.rstrip("/").count("/") != start:
                continue
            inside = [(n, w) for n, w in sums.items() if n.startswith(name) and w * 5 >= weight * 4]
            shown.append(max(inside, key=lambda item: item[0].rstrip("/").count("/")))
        return shown[:3]


class _Sink:
    """Takes the tar as it is written: hashes it, and keeps it compressed only."""

    def __init__(self) -> None:
        self._hash, self._zlib, self._data = hashlib.sha256(), zlib.compressobj(6), bytearray()

    def write(self, block: bytes) -> int:
        self._hash.update(block)
        self._data += self._zlib.compress(block)
        return len(block)

    def sha256(self) -> str:
        return self._hash.hexdigest()

    def data(self) -> bytes:
        return bytes(self._data + self._zlib.flush())


def _read(file: _File, left: int, walk: _Walk) -> tuple[bytes, int]:
    """A file's content and its normal mode; it may have grown since it was seen, but not past the limit."""
    try:
        with file.path.open("rb") as stream:
            content = stream.read(left + 1)
            executable = os.fstat(stream.fileno()).st_mode & stat.S_IXUSR
    except OSError as error:
        raise BadCrew(f"{file.name}: cannot be read: {error.strerror}") from error
    if len(content) > left:
        raise walk.too_large()
    return content, 0o755 if executable else 0o644


def _expand(data: bytes, sha256: str, plain: IO[bytes]) -> None:
    """Decompress into ``plain``, never more than a bundle can be, and verify."""
    room = MAX_LIMIT + MAX_FILES * 4096  # the files, and their headers
    digest, stream, rest = hashlib.sha256(), zlib.decompressobj(), data
    while not stream.eof:
        block = stream.decompress(rest, MIB)
        rest = stream.unconsumed_tail
        if not block and not rest and not stream.eof:
            raise _damaged(sha256, "it ends too early")
        room -= len(block)
        if room < 0:
            raise _damaged(sha256, "it is larger than any bundle")
        digest.update(block)
        plain.write(block)
    if digest.hexdigest() != sha256:
        raise _damaged(sha256, "its content is not what its name says")
    plain.seek(0)


def _extract(plain: IO[bytes], home: Path) -> None:
    """Regular files and folders, below ``home`` only; each name once."""
    count = 0
    with tarfile.open(fileobj=plain, mode="r:") as tar:
        for member in tar:
            count += 1
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or not name.parts or "\0" in member.name or count > MAX_FILES:
                raise tarfile.TarError(f"{member.name[:80]!r} does not belong in a bundle")
            path = home / name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            content = tar.extractfile(member) if member.isreg() and not member.issparse() else None
            if content is None:
                raise tarfile.TarError(f"{member.name[:80]!r} is not a regular file")
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("xb") as out:
                shutil.copyfileobj(content, out)
            path.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)


def _sweep(cache: Path) -> None:
    """Remove what killed processes left half unpacked."""
    for left in cache.glob(".unpack-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _damaged(sha256: str, why: str) -> TaskError:
    return TaskError(f"the stored bundle {sha256[:12]} is damaged: {why}; submit the crew again")


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _human(size: int) -> str:
    if size < 1024:
        return f"{size} bytes"
    return f"{size / 1024:.1f} KiB" if size < MIB else f"{size / MIB:.1f} MiB"
