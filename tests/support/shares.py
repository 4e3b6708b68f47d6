"""Which process of pytest-xdist does which tests: each begins with its share of the long ones. And where it begins to
read them.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

LONG = (
    "integration/providers/test_protocol.py",
    "integration/modelserver/test_offline.py",
    "integration/llm/test_grpc.py",
    "integration/llm/test_imports.py",
    "integration/client/test_two_environments.py",
    "integration/cli/test_browse.py",
    "unit/engine/test_simulation.py",
    "worker/tasks",
    "ops",
    "examples",
    "docs",
    "house",
    "worker/frameworks",
    "integration/cli/browser",
    "worker/adapters",
)
"""Files and folders of tests that take seconds each. The last one's wait for an environment that is made meanwhile."""
SHORT = "unit"  #: the folder of tests that take milliseconds


def parts(folder: Path) -> list[Path]:
    """The folders that ``folder`` with all its tests is made of, by name."""
    found: set[Path] = set()
    for one in filter(Path.is_dir, folder.iterdir()):
        tests = [file.relative_to(one) for file in one.rglob("test_*.py")]
        is_whole = any(len(file.parts) == 1 for file in tests)
        found |= {one if is_whole else one / file.parts[0] for file in tests}
    return sorted(found)


def turned(folders: Sequence[Path], number: int, processes: int) -> list[Path]:
    """``folders`` from another one on for each process, so that it is as far as the next one's beginning when that has
    read as much.

    A file is compiled by whoever is the first to read it. Where nothing is yet, and all read in one order, each
    compiles nearly everything: 10 s of the processor's time.
    """
    sizes = [sum(file.stat().st_size for file in folder.rglob("*.py")) for folder in folders]
    before = [sum(sizes[:at]) for at in range(len(sizes))]
    wanted = sum(sizes) * number / processes
    first = min(range(len(folders)), key=lambda at: abs(before[at] - wanted), default=0)
    return [*folders[first:], *folders[:first]]


def dealt(items: Sequence[pytest.Item], folder: Path, processes: int) -> list[pytest.Item]:
    """The tests of ``folder`` in an order that xdist's worksteal cuts into that many equal pieces, one for a process.

    Each piece begins with whole files of the long ones, and ends with its share of the short ones. Whoever is done
    takes over tests from the end of another's piece, so the short ones are what is left when the session ends.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    long = {file: files[file] for rank in LONG for file in files if file.is_relative_to(folder / rank)}
    pieces: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for file in long.values():
        min(pieces, key=len).extend(file)
    is_short = {file: file.is_relative_to(folder / SHORT) for file in files if file not in long}
    short = [item for item in items if is_short.get(item.path)]
    others = [item for item in items if is_short.get(item.path) is False]
    left = len(items)
    for number, piece in enumerate(pieces):  # as worksteal divides: what is left by how many have nothing yet
        size = left // (processes - number)
        wanted = max(0, size - len(piece))
        there = wanted * len(others) // max(1, len(others) + len(short))
        piece += others[:there] + short[: wanted - there]
        del others[:there], short[: wanted - there]
        left -= size
    return [item for piece in pieces for item in piece] + others + short
