"""The last released commit, and what stands here, side by side on one store."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_HISTORY = 75


@pytest.mark.soak
def test_workers_of_two_versions_lose_nothing() -> None:
    """A short one of ``ops/chaos/two_versions.py``: swapped and killed at random, outputs of 100 KB, runs of both."""
    done = subprocess.run(
        [
            sys.executable, ROOT / "ops" / "chaos" / "two_versions.py", "--seed", "7",
            "--minutes", "0.4", "--phase", "6", "--pace", "2", "--at-once", "3",
        ],
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    if done.returncode == NO_HISTORY:
        pytest.skip(f"it needs the history of this repository: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines() if re.search(r"\S  ", line))
    table = {name.strip(): value.strip() for name, value in rows.items()}
    completed, _, runs = table["runs completed"].partition(" of ")
    assert completed == runs
    assert 0 < int(table["... submitted by the old version"]) < int(runs)
    assert " of old" in table["blows"]
