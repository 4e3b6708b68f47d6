"""The order in which a session's tests are read, and done, by several processes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ...support.shares import dealt, parts, turned

TESTS = Path("/tests")


def items(*counts: tuple[str, int]) -> list[Any]:
    return [SimpleNamespace(path=TESTS / file, number=number) for file, many in counts for number in range(many)]


LONG = items(("docs/a.py", 3), ("ops/a.py", 2), ("worker/adapters/a.py", 2), ("worker/tasks/a.py", 4))
SHORT = items(("integration/a.py", 20), ("unit/a.py", 30))


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7])
def test_each_process_begins_with_whole_files_of_long_tests(processes: int) -> None:
    given = [*SHORT[:20], *LONG, *SHORT[20:]]
    found = dealt(given, TESTS, processes)
    assert sorted(map(id, found)) == sorted(map(id, given)), "each once"
    pieces, left = [], found
    for number in range(processes):  # as worksteal does
        many = len(left) // (processes - number)
        pieces.append(left[:many])
        left = left[many:]
    where = {str(item.path): number for number, piece in enumerate(pieces) for item in piece if item in LONG}
    assert len(set(where.values())) == min(processes, 4)
    for piece in pieces:
        kinds = [item in LONG for item in piece]
        assert kinds == sorted(kinds, reverse=True), "the long ones come first"
        quick = [item.path.is_relative_to(TESTS / "unit") for item in piece]
        assert quick == sorted(quick), "the short ones last"
        assert quick[-1], "what others take from its end is short"
        for one in LONG:
            if one in piece:
                assert where[str(one.path)] == pieces.index(piece), "a file is not divided"


def test_those_that_wait_for_an_environment_are_the_last_of_the_long_ones() -> None:
    order = list(dict.fromkeys(str(item.path.relative_to(TESTS)) for item in dealt(LONG + SHORT, TESTS, 1)))
    assert order == [
        "worker/tasks/a.py", "ops/a.py", "docs/a.py", "worker/adapters/a.py", "integration/a.py", "unit/a.py"
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, size in {
        "docs/test_a.py": 10, "unit/core/test_a.py": 40, "unit/engine/test_a.py": 10, "unit/engine/more/test_b.py": 30,
        "worker/conftest.py": 10, "worker/tasks/test_a.py": 100, "support/fleet.py": 50,
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#" * size)
    return tmp_path


def test_all_tests_are_in_one_part_each(folder: Path) -> None:
    names = [str(part.relative_to(folder)) for part in parts(folder)]
    assert names == ["docs", "unit/core", "unit/engine", "worker/tasks"]
    (folder / "worker/test_of_all.py").touch()
    assert parts(folder)[-1] == folder / "worker"
    here = Path(__file__).parents[2]
    found = [file for part in parts(here) for file in part.rglob("test_*.py")]
    assert sorted(found) == sorted(here.rglob("test_*.py")), "no test file stands outside of a folder"


@pytest.mark.parametrize(("processes", "begun"), [(1, [0]), (2, [0, 3]), (4, [0, 2, 3, 3])])
def test_each_process_reads_all_and_begins_with_another_part(folder: Path, processes: int, begun: list[int]) -> None:
    all_parts = parts(folder)
    found = [turned(all_parts, number, processes) for number in range(processes)]
    assert [all_parts.index(one[0]) for one in found] == begun
    assert all(sorted(one) == all_parts for one in found)
