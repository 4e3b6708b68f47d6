"""A bundle: the crew file and the files beside it, packed once, addressed by the sha256 of its content.

The same files give the same bundle on every machine: names sorted, no times, no owners, two modes. Which files it
holds, and which not, says `runner.bundles.selection`.
"""

import hashlib
import io
import json
import os
import stat
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import IO, cast

from runner.bundles.selection import (
    CALLS_FILE,
    DEFAULT_LIMIT,
    IGNORE_FILE,
    MAX_FILES,
    MAX_LIMIT,
    LeftOut,
    Selected,
    Selection,
    may_name_indexes,
    private,
    refuse_login,
)
from runner.bundles.target import Target
from runner.core.errors import BadCrew

ASKING = ("requirements.txt", "uv.lock", "pyproject.toml", ".python-version")
_OF_A_DATABASE = ("-wal", "-shm", "-journal")


@dataclass(frozen=True)
class Bundle:
    """A crew's code as it is stored: ``data`` is compressed, ``sha256`` is of the tar inside."""

    sha256: str
    data: bytes
    module: str  # what to import from it
    files: int
    size: int  # bytes of all files together
    asks: bool = False  # files that may ask for an environment are in it: see `runner.bundles.environment`
    left_out: tuple[LeftOut, ...] = ()  # what lies beside the crew file and is not in it; without caches


def pack(target: Target, *, limit: int = DEFAULT_LIMIT, own: Iterable[os.stat_result] = ()) -> Bundle:
    """Pack the crew file and what lies beside it, but for ``own``, the caller's files. Nothing is written to disk."""
    selection = Selection(target, min(limit, MAX_LIMIT), own)
    selected = sorted(selection.files(), key=lambda file: file.name)
    left_out = selection.left_out
    databases: list[str] = []
    crew_file = target.file.relative_to(target.root).as_posix()
    if all(file.name != crew_file for file in selected):
        raise BadCrew(f"{target.file.name} itself is left out by the ignore rules; take it out of {IGNORE_FILE}")
    sink, files, size, asks = _Sink(), 0, 0, False
    with tarfile.open(fileobj=cast("IO[bytes]", sink), mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for file in selected:
            try:
                content, mode = _read(file, selection.limit - size, selection)
            except FileNotFoundError:  # gone by now, as files of programs that work there are
                if file.name == crew_file:
                    raise BadCrew(f"{file.name}: it no longer exists") from None
                continue
            why = None if file.wanted or file.name == crew_file else private(content)
            if why is None and any(file.name == name + end for name in databases for end in _OF_A_DATABASE):
                why = "checkpoints"
            if why is not None:
                left_out.append(LeftOut(file.name, why))
                databases += [file.name] * (why == "checkpoints")
                continue
            if may_name_indexes(file.path.name) and not file.wanted:
                refuse_login(file.name, content.decode("utf-8", "replace"))
            size += len(content)
            files += 1
            asks |= file.path.name in ASKING or (file.name == crew_file and b"# /// script" in content)
            member = tarfile.TarInfo(file.name)  # its defaults: time 0, owner 0, no names
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    return Bundle(sink.sha256(), sink.data(), target.module, files, size, asks, tuple(sorted(left_out)))


def with_calls(bundle: Bundle, records: Mapping[str, str], *, limit: int = DEFAULT_LIMIT) -> tuple[Bundle, int]:
    """Return the bundle with the first recorded calls of its code that the limit allows, and their number."""
    kept: dict[str, str] = {}
    room = min(limit, MAX_LIMIT) - bundle.size - 2  # the braces
    for key, text in records.items():
        room -= len(json.dumps({key: text}, ensure_ascii=False).encode())  # its braces are the comma and the space
        if room < 0:
            break
        kept[key] = text
    if not kept or bundle.files >= MAX_FILES:
        return bundle, 0
    content = json.dumps(kept, ensure_ascii=False).encode()
    with io.BytesIO(zlib.decompress(bundle.data)) as plain:
        with tarfile.open(fileobj=plain, mode="a", format=tarfile.PAX_FORMAT) as tar:
            member = tarfile.TarInfo(CALLS_FILE)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        sink = _Sink()
        sink.write(plain.getvalue())
    return replace(bundle, sha256=sink.sha256(), data=sink.data(), size=bundle.size + len(content)), len(kept)


def contents(bundle: Bundle) -> list[tuple[str, int]]:
    """Return the names of its files, with their sizes in bytes."""
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(bundle.data)), mode="r:") as tar:
        return [(member.name, member.size) for member in tar]


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


def _read(file: Selected, left: int, selection: Selection) -> tuple[bytes, int]:
    """Return a file's content and mode. Raises `FileNotFoundError`, or `BundleTooLarge` if it outgrew the limit."""
    try:
        with file.path.open("rb") as stream:
            content = stream.read(left + 1)
            executable = os.fstat(stream.fileno()).st_mode & stat.S_IXUSR
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadCrew(f"{file.name}: cannot be read: {error.strerror}") from error
    if len(content) > left:
        raise selection.too_large()
    return content, 0o755 if executable else 0o644
