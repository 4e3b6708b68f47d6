"""The settings table in docs/operations.md is whole."""

import re
from pathlib import Path

#: Between the runner's own processes, or for tests.
INTERNAL = {
    *("RUNNER_CONCURRENCY", "RUNNER_POOL", "RUNNER_LOGLEVEL", "RUNNER_WORKER_ID", "RUNNER_EXIT_CODE"),
    *("RUNNER_CRASH_AT", "RUNNER_ASKED_FD"),
}


def test_every_variable_that_is_read_is_in_the_table_and_no_other(root: Path) -> None:
    read: set[str] = set()
    for folder in ("runner", "tasks", "providers"):
        for path in (root / folder).rglob("*.py"):
            read |= set(re.findall(r"\"(RUNNER_[A-Z_]+)", path.read_text()))
    table = set(re.findall(r"^\| `(RUNNER_[A-Z_]+)`", (root / "docs/operations.md").read_text(), re.MULTILINE))
    assert table == read - INTERNAL
