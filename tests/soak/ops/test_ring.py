"""A larger sample of the fault ring."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("crew", ["graph", "agents", "growing"])
def test_a_run_survives_what_happens_to_its_commands(crew: str) -> None:
    done = subprocess.run(
        [sys.executable, "ring.py", "--crews", crew, "--sample", "60"],
        cwd=ROOT / "ops" / "chaos", capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 wrong" in done.stdout.splitlines()[-1]
