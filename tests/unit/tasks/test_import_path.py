"""A worker imports nothing of what lies beside its command, or where that was given."""

import sys
from pathlib import Path

import pytest

from runner.tasks import parent


@pytest.mark.parametrize(
    ("first", "named", "kept"),
    [("here", "", False), ("beside", "", False), ("here", "here", True), ("elsewhere", "", True)],
)
def test_what_was_not_asked_for_is_left_out(
    first: str, named: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "beside"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "beside/runner")])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / named) if named else "")
    monkeypatch.setattr(sys, "path", [str(tmp_path / first), "/lib"])
    parent._leave_working_directory()
    assert (sys.path[0] != "/lib") is kept
