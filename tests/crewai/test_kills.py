"""Kills at every call of crews of CrewAI: ops/chaos has the command, and its README the whole of it."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)  # a quarter of a minute where nobody else is at work


def test_a_kill_at_every_call_costs_that_call(crewai_python: str) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [crewai_python, root / "ops/chaos/crewai_calls.py", "--crews", "tools", "--moments", "flight",
         "--at-once"],
        env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "1 runs, 5 kills, 0 wrong"
