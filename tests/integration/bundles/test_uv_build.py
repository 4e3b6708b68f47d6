"""Environments that cannot be built, in the words of who has to do something about it."""

import os
from pathlib import Path

import pytest

from runner.bundles import uv_build
from runner.bundles.environment import asked_for
from runner.bundles.uv_build import TRIES, built
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
    says = (
        rf"^\.python-version needs Python {version}, which \S+ does not have and uv cannot get: install it there, or "
    )
    with pytest.raises(EnvironmentFailed, match=says):
        built(wanted, tmp_path / "cache")


KILLED = """#!/bin/sh
cd $5
echo $6 >> uv.log
[ $6 = venv ] && for last; do :; done && mkdir -p $last
[ $6 = pip ] && [ $(grep -c pip uv.log) -le {times} ] && kill -9 $$
exit 0
"""


@pytest.mark.parametrize(("times", "is_built"), [(TRIES - 1, True), (TRIES, False)])
def test_a_uv_that_is_killed_builds_it_again_from_the_beginning(
    times: int, is_built: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a uv that something kills so many times, as a machine that is short of memory does
    (program := tmp_path / "uv").write_text(KILLED.format(times=times))
    program.chmod(0o755)
    monkeypatch.setattr(uv_build, "uv", lambda: str(program))
    (tmp_path / "requirements.txt").write_text("not-installed==1.0\n")
    wanted = asked_for(tmp_path / "crew.py", tmp_path)
    assert wanted is not None
    # When the environment is built
    if is_built:
        assert built(wanted, tmp_path / "cache").parents[1].is_dir()
    else:
        with pytest.raises(EnvironmentFailed, match=r"could not be built: uv pip was killed by signal 9, as when"):
            built(wanted, tmp_path / "cache")
    # Then each time all of it was made anew
    assert (tmp_path / "uv.log").read_text().split() == ["venv", "pip"] * TRIES


SHIM = """#!/bin/sh
[ -f .python-version ] && echo "no uv in $(cat .python-version)" && exit 127
[ $6 = venv ] && for last; do :; done && mkdir -p $last
exit 0
"""


def test_a_shim_does_not_look_for_a_uv_of_the_python_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a uv that is a shim, which goes by the file that names a Python where it is started, as pyenv's does
    (program := tmp_path / "uv").write_text(SHIM)
    program.chmod(0o755)
    monkeypatch.setattr(uv_build, "uv", lambda: str(program))
    (folder := tmp_path / "agent").mkdir()
    (folder / ".python-version").write_text("3.99\n")
    wanted = asked_for(folder / "crew.py", folder)
    assert wanted is not None
    # Then it builds the environment
    assert built(wanted, tmp_path / "cache").parents[1].is_dir()


TELLS = """#!/bin/sh
[ $6 = venv ] && for last; do :; done && mkdir -p $last && exit 0
for last; do :; done
echo "no packages at $UV_DEFAULT_INDEX or $UV_FIND_LINKS with $last"
exit 1
"""


def test_uv_is_told_what_pip_is_configured_with_and_no_password_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a machine on which pip alone is configured, with a password
    (program := tmp_path / "uv").write_text(TELLS)
    program.chmod(0o755)
    monkeypatch.setattr(uv_build, "uv", lambda: str(program))
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:hunter2@packages.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "requirements.txt").write_text("not-installed==1.0\n")
    wanted = asked_for(tmp_path / "crew.py", tmp_path)
    assert wanted is not None
    # When an environment cannot be built
    with pytest.raises(EnvironmentFailed) as error:
        built(wanted, tmp_path / "cache")
    # Then uv looked there
    assert "no packages at https://me:***@packages.example/simple or /wheels with --no-index" in str(error.value)
