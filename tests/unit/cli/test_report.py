"""The last line that a command prints of a run."""

from collections import defaultdict
from typing import Any

import pytest

from runner.cli.following import report
from runner.client.handle import RunResult


@pytest.mark.parametrize(
    ("words", "branches", "line"),
    [
        ("r-1", ("f",), "completed: r-1, 1 task, 8 steps recorded; 120 tokens"),
        ("r-1", ("main", "f"), "completed: r-1, 1 task; on all branches 8 steps recorded; 120 tokens"),
        ("r-1 --branch f", ("f",), "completed: r-1 f, 1 task; on all branches 8 steps recorded; 120 tokens"),
    ],
)
def test_the_ledger_is_of_all_branches_and_says_so_where_there_are_others(
    words: str, branches: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger: dict[str, Any] = defaultdict(int, paid=8, prompt_tokens=100, completion_tokens=20, tools={}, cost=None)
    ledger["by"] = [{"branch": one} for one in branches]
    report(RunResult("r-1", "completed", "f", None, {"t": "done"}, ledger, 0, None), False, print, words)
    assert capsys.readouterr().err.splitlines()[-1] == line
