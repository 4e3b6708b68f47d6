"""A worker that has no main process now is nobody: a pid of 0 stands for our own group, and `os.kill` takes it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.testing import WorkerProcess


@pytest.mark.slow
def test_a_worker_without_a_main_process_has_no_pid_for_it(tmp_path: Path) -> None:
    # Given a worker's parent that has no child, as between two of them
    none: Any = None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as parent:
        worker = WorkerProcess(parent, tmp_path / "log", none)
        # Then there is nobody to send a signal to
        with pytest.raises(ProcessLookupError, match="has no main process now"):
            worker.main_pid()
        assert worker.children() == []


@pytest.mark.parametrize("pid", [0, -1, 1])
def test_no_test_sends_a_signal_to_all(pid: int) -> None:
    with pytest.raises(AssertionError, match="the test run itself"):
        os.kill(pid, 0)


def test_no_test_sends_a_signal_to_its_own_group() -> None:
    with pytest.raises(AssertionError, match="the test run itself"):
        os.killpg(os.getpgrp(), 0)
