"""The order in which a session's tests are done by several processes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ...support.shares import dealt

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
