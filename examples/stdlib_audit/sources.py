"""Finds the source files, and deals them out in shares of equal size."""

import os
import platform
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

# What other people installed, what is compiled, and what was only written for one machine.
NOT_LIBRARY = {"site-packages", "dist-packages", "__pycache__", "lib-dynload"}
TEST_FOLDERS = {"test", "tests", "idle_test"}
CHUNK_BYTES = 200_000  # a fraction of a second of work: what a killed worker loses at most


class Source(NamedTuple):
    """One file: its path below the root, with forward slashes, and its size in bytes."""

    path: str
    size: int

    @property
    def is_test(self) -> bool:
        """Whether it belongs to a test suite."""
        return is_test(self.path)


def interpreter() -> str:
    """What runs here, as in "CPython 3.12.4"."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def library_root(inputs: Mapping[str, Any]) -> Path:
    """The folder to audit: the input `root`, or this interpreter's standard library."""
    return Path(inputs.get("root") or sysconfig.get_path("stdlib")).expanduser().absolute()


def find_sources(root: Path) -> list[Source]:
    """All Python files below the root, in order of path. A library that is zipped away has none."""
    sources = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in NOT_LIBRARY and not name.startswith("config-")]
        for name in files:
            path = Path(folder, name)
            if name.endswith(".py") and path.is_file():  # a link may lead nowhere
                sources.append(Source(path.relative_to(root).as_posix(), path.stat().st_size))
    return sorted(sources)


def is_test(path: str) -> bool:
    """Whether the path lies in a test suite."""
    return not TEST_FOLDERS.isdisjoint(PurePosixPath(path).parts[:-1])


def module_name(path: str) -> str:
    """The dotted name one would import, as in "json.decoder"."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def into_chunks(sources: Iterable[Source]) -> list[list[Source]]:
    """Neighbouring files together, up to CHUNK_BYTES: one chunk is one durable step."""
    chunks: list[list[Source]] = []
    room = 0
    for source in sources:
        if not chunks or source.size > room:
            chunks.append([])
            room = CHUNK_BYTES
        chunks[-1].append(source)
        room -= source.size
    return chunks


def into_shares(chunks: list[list[Source]], names: list[str]) -> dict[str, list[list[str]]]:
    """Deal the chunks out, the largest first, always to the share that has least: the shares come out even."""
    shares: dict[str, list[list[str]]] = {name: [] for name in names}
    load = dict.fromkeys(names, 0)
    for chunk in sorted(chunks, key=lambda chunk: (-_bytes(chunk), chunk)):
        name = min(names, key=load.__getitem__)
        shares[name].append([source.path for source in chunk])
        load[name] += _bytes(chunk)
    return {name: sorted(share) for name, share in shares.items()}


def _bytes(chunk: list[Source]) -> int:
    return sum(source.size for source in chunk)
