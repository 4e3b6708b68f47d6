"""`.ci/run`: which parts it has, how long each may take, and which of them fail it."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = {
    "tests": r"-m pytest (?!.*--soak)",
    "quick": r"crewai_tests.py --quick",
    "pythons": r"pythons.py --newest",
    "soak": r"-m pytest .*--soak",
    "table": r"crewai_tests.py$",
    "canary": r"crewai_canary.py",
}
PYTHON = """#!/usr/bin/env bash
[[ "$*" != *"-m venv"* ]] || { mkdir -p "${@: -1}/bin" && cp "$(dirname "$0")/timeout" "${@: -1}/bin/timeout"; }
"""
TIMEOUT = """#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
echo "limit $*"
for part in $FAILING; do [[ ! "$*" =~ ${part%=*} ]] || exit ${part##*=}; done
"""
"""Says what it was to run, and ends as the variable says of the first that its words match."""

Run = Callable[..., tuple[int, dict[str, int]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs it with commands that do nothing: gives its exit code, and the seconds that each part might take."""
    for name, text in (("python", PYTHON), ("timeout", TIMEOUT)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def running(*words: str, second: int = 0, failing: str = "") -> tuple[int, dict[str, int]]:
        environment = os.environ | {"PYTHON": str(tmp_path / "python"), "SECONDS": str(second), "FAILING": failing}
        command = [ROOT / ".ci/run", *words]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        asked = re.findall(r"(?m)^limit (\d+) (.*)", done.stdout)
        named = ((next(name for name, of in PARTS.items() if re.search(of, words)), limit) for limit, words in asked)
        return done.returncode, {name: int(limit) for name, limit in named}

    return running


@pytest.mark.parametrize(
    ("second", "limits"),
    [
        (0, {"tests": 1500, "quick": 180, "pythons": 300, "soak": 600, "table": 300, "canary": 300}),
        (1140, {"tests": 360, "quick": 180, "pythons": 300, "soak": 120, "table": 260, "canary": 300}),
        (1360, {"tests": 140, "quick": 180, "pythons": 80, "canary": 140}),
        (1499, {"tests": 1, "quick": 180}),
    ],
)
def test_each_part_has_an_end(second: int, limits: dict[str, int], run: Run) -> None:
    code, found = run(second=second)
    assert (code, list(found)) == (0, list(limits))
    for name, limit in limits.items():
        assert limit - 20 <= found[name] <= limit, name  # it takes the machine a moment to come there


@pytest.mark.parametrize(
    ("failing", "code", "last"),
    [
        ("pytest=1", 1, "tests"),
        ("pytest=124", 124, "tests"),
        ("pytest=3", 3, "tests"),
        ("quick=1", 1, "quick"),
        ("newest=1", 1, "pythons"),
        ("newest=124", 0, "canary"),
        ("--soak=1", 1, "soak"),
        ("--soak=124", 0, "canary"),
        ("crewai_tests.py$=1 canary=1", 0, "canary"),
    ],
)
def test_what_fails_it(failing: str, code: int, last: str, run: Run) -> None:
    ended, found = run(failing=failing)
    assert (ended, list(found)[-1]) == (code, last)


def test_for_chosen_tests_it_runs_nothing_else(run: Run) -> None:
    assert list(run("tests/house")[1]) == ["tests"]
