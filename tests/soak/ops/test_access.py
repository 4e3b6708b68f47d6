"""Rights are taken from the workers' user, and given back, under agents with calls."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(900)
def test_a_run_survives_what_happens_to_the_rights_of_its_workers() -> None:
    done = subprocess.run(
        [sys.executable, "access.py", "--trials", "1"],
        cwd=ROOT / "ops" / "chaos", capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 wrong" in done.stdout.splitlines()[-1]
