"""Unpacks a bundle into a folder on the worker's disk."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from runner.bundles.selection import CALLS_FILE, DEFAULT_LIMIT, MAX_FILES, MAX_LIMIT, MIB
from runner.core.errors import BundleDamaged, TaskError

CALLS = ".calls"  #: how the name of a file ends that has a bundle's recorded calls


def unpack(data: bytes, sha256: str, cache: Path) -> Path:
    """Return the folder ``cache/<sha256>`` with the bundle's files, unpacked and verified if need be.

    Of processes that unpack it at once one wins. Recorded calls lie beside the folder (`calls_beside`).
    """
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise TaskError(f"{sha256[:80]!r} is not the sha256 of a bundle")
    home = cache / sha256
    if home.is_dir():  # only a finished rename puts it there
        return home
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=cache, ignore_cleanup_errors=True) as scratch:
        lock = os.open(scratch, os.O_RDONLY | os.O_CLOEXEC)  # a sweep sees that it is in use
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with tempfile.SpooledTemporaryFile(max_size=DEFAULT_LIMIT, dir=scratch) as plain:
                _expand(data, sha256, plain)
                files = Path(scratch, "files")
                files.mkdir(mode=0o700)
                _extract(plain, files)
                calls = files / CALLS_FILE
                if calls.is_file():
                    calls.chmod(0o600)
                    _sync_one(calls)
                    calls.rename(calls_beside(home))  # first: where the folder is, they are
                _sync(files)
        except (zlib.error, tarfile.TarError, FileExistsError, NotADirectoryError) as error:
            raise _damaged(sha256, str(error)) from error
        finally:
            os.close(lock)
        try:
            files.rename(home)
        except OSError:
            if not home.is_dir():
                raise
        _sync_one(cache)
    return home


def calls_in(data: bytes, sha256: str) -> dict[str, str]:
    """Return the recorded calls that go with the code in a bundle's data. Raises `BundleDamaged`."""
    with tempfile.SpooledTemporaryFile(max_size=DEFAULT_LIMIT) as plain:
        try:
            _expand(data, sha256, plain)
        except zlib.error as error:
            raise _damaged(sha256, str(error)) from error
        with tarfile.open(fileobj=plain, mode="r:") as tar:
            content = tar.extractfile(CALLS_FILE) if CALLS_FILE in tar.getnames() else None
            found: dict[str, str] = json.load(content) if content is not None else {}
            return found


def calls_beside(home: Path) -> Path:
    """Where the recorded calls of the code in an unpacked bundle are; most have none."""
    return home.with_name(home.name + CALLS)


def _expand(data: bytes, sha256: str, plain: IO[bytes]) -> None:
    """Decompress into ``plain``, never more than a bundle can be, and verify."""
    room = MAX_LIMIT + MAX_FILES * 4096  # the files, and their headers
    digest, stream, rest = hashlib.sha256(), zlib.decompressobj(), data
    while not stream.eof:
        block = stream.decompress(rest, MIB)
        rest = stream.unconsumed_tail
        if not block and not rest and not stream.eof:
            raise _damaged(sha256, "it is truncated")
        room -= len(block)
        if room < 0:
            raise _damaged(sha256, "it is larger than any bundle")
        digest.update(block)
        plain.write(block)
    if digest.hexdigest() != sha256:
        raise _damaged(sha256, "its content does not match its hash")
    plain.seek(0)


def _extract(plain: IO[bytes], home: Path) -> None:
    """Regular files and folders, below ``home`` only; each name once."""
    count = 0
    with tarfile.open(fileobj=plain, mode="r:") as tar:
        for member in tar:
            count += 1
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or not name.parts or "\0" in member.name or count > MAX_FILES:
                raise tarfile.TarError(f"{member.name[:80]!r} is not allowed in a bundle")
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


def _sync(folder: Path) -> None:
    """Write all of it to the disk: after a power cut, a folder with its final name is whole."""
    for place, _, names in os.walk(folder):
        for name in names:
            _sync_one(Path(place, name))
        _sync_one(Path(place))


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _damaged(sha256: str, why: str) -> BundleDamaged:
    return BundleDamaged(f"the stored bundle {sha256[:12]} is damaged: {why}; submit the crew again")
