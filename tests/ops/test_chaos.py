"""The commands of ops/chaos, on little: kills at single calls, and a storm. Its README.md has the large ones."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(170)


def chaos(root: Path, *arguments: str) -> str:
    """Run one of the commands to its end; its last line."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root / "ops" / "chaos", capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_a_kill_at_some_calls_of_agents_and_of_functions(chaos_here: Callable[..., list[str]]) -> None:
    kinds = ("--kinds", "agents_streamed", "asynchronous")
    last = chaos_here("every_call", *kinds, "--moments", "flight", "--at", "2", "5", "12")[-1]
    assert last == "2 runs, 6 kills, 0 wrong"


@pytest.mark.soak  # tests/worker/tasks/test_chaos.py kills at random as well
def test_a_small_storm(root: Path) -> None:
    last = chaos(root, "run.py", "--runs", "3", "--kills", "8", "--workers", "1")
    assert last.startswith(
        "every call was paid once but for those in doubt; the ledgers' sums are the server's own count"
    )
