"""What the kernel says of processes."""

import os
import subprocess
from pathlib import Path

import pytest

from runner.core import processes

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")


@pytest.mark.slow
def test_a_process_runs_until_it_has_ended() -> None:
    assert processes.runs(os.getpid())
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert processes.state(ended.pid) == "Z"
        assert not processes.runs(ended.pid)
    assert not processes.runs(ended.pid)


@pytest.mark.parametrize("none", ["", "..", "self", "net"])
def test_what_is_no_number_is_no_process(none: str) -> None:
    assert not processes.runs(none)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 0),
        (SystemExit(), 0),
        (SystemExit(3), 3),
        (SystemExit(257), 1),
        (SystemExit("why"), 1),
        (ValueError("why"), 1),
    ],
    ids=repr,
)
def test_a_forked_process_leaves_with_the_code_that_python_would_give(
    error: BaseException | None, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    processes.leave(error)
    assert left == [code]
    assert ("ValueError: why" in capsys.readouterr().err) == isinstance(error, ValueError)
