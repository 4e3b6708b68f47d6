"""Environments that cannot be built, in the words of who has to do something about it."""

import os
from pathlib import Path

import pytest

from runner.bundles.building import built
from runner.bundles.environment import asked_for
from runner.core.errors import EnvironmentFailed


@pytest.mark.parametrize("version", ["3.4.1", "3.99.1", ">=3.99"])
def test_a_python_that_is_not_there_is_said_in_one_line(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    monkeypatch.setenv("PATH", os.defpath)
    (tmp_path / ".python-version").write_text(version)
    wanted = asked_for(tmp_path / "crew.py", tmp_path)
    assert wanted is not None
    says = rf"^Python {version} is asked for, and is not on this machine, .*: install it there, or change \.python-v"
    with pytest.raises(EnvironmentFailed, match=says):
        built(wanted, tmp_path / "cache")
