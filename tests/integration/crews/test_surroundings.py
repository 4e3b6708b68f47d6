"""What is done before CrewAI is imported, seen with packages of its name that do the worst."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.adapters.crewai import process_setup

TAKES_SIGNALS = """
import signal
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGINT, signal.SIG_IGN)
"""


@pytest.fixture
def python(tmp_path: Path) -> Callable[[str, str], "subprocess.CompletedProcess[str]"]:
    """Runs a program where ``import crewai`` runs another."""

    def run(program: str, crewai: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "crewai.py").write_text(crewai)
        path = os.pathsep.join([str(tmp_path), *sys.path])
        return subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    return run


def test_signals_are_left_to_the_worker(python: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    program = """
import signal
from runner.adapters.crewai import process_setup as surroundings
mine = lambda *_: None
signal.signal(signal.SIGTERM, mine)
surroundings.preload("crewai")
import sys; assert "crewai" in sys.modules
assert signal.getsignal(signal.SIGTERM) is mine
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""
    done = python(program, TAKES_SIGNALS)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("imports", ["runner.tasks.worker", "runner.cli", "runner.engine", "runner.client.submission"])
def test_nobody_imports_crewai_who_has_no_crew_of_it(
    imports: str, python: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    done = python(f"import {imports}", "raise SystemExit(f'{__name__} was imported')")
    assert done.returncode == 0, done.stderr


def test_quiet_unless_it_is_asked_to_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"CREWAI_DISABLE_TELEMETRY": "false"}
    monkeypatch.setattr(os, "environ", found)
    process_setup.quiet()
    assert found == {**process_setup.QUIET, "CREWAI_DISABLE_TELEMETRY": "false"}


def test_of_callbacks_crewai_says_nothing_and_the_crew_what_it_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        process_setup.quiet()
        for text in ("function callbacks cannot be serialized and will prevent checkpointing. Use ...", "of its own"):
            warnings.warn(text, UserWarning, stacklevel=1)
    assert [str(one.message) for one in said] == ["of its own"]


@pytest.mark.parametrize(
    ("version", "is_said"), [("1.15.29", True), ("1.15.30", False), ("1.15.99", False), ("1.16.0", True)]
)
def test_a_version_that_nobody_tested_is_said(version: str, is_said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _name: version)
    assert (process_setup.untested() is not None) == is_said


def test_the_tested_versions_are_those_of_the_extra() -> None:
    least, less = process_setup.TESTED
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert f'crewai = ["crewai>={least},<{less}; ' in text
