"""Many random histories of runs and workers, each other ones than before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


@pytest.mark.timeout(0)
def test_every_history_agrees_with_the_model_and_keeps_the_laws():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", TESTS / "integration/providers/test_protocol.py"],
        env={"RUNNER_TEST_EXAMPLES": "300", **os.environ},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
