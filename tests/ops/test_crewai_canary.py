"""What is said of a release of CrewAI that is newer than those tested. The trial itself needs one."""

import subprocess
from collections.abc import Callable
from types import ModuleType

import pytest

from runner.adapters.crewai.process_setup import TESTED


@pytest.fixture
def canary(compat: Callable[[str], ModuleType]) -> ModuleType:
    return compat("crewai_canary")


@pytest.mark.parametrize(
    ("newest", "wrong", "says", "warns"),
    [
        (None, None, "no package index tells", ""),
        (TESTED[0], None, f"CrewAI {TESTED[0]} is the newest, and of the tested range", ""),
        (TESTED[1], "", f"with CrewAI {TESTED[1]} crews send the same requests: widen TESTED", ""),
        (
            "99.0",
            "crews do not send the same requests\nE assert",
            "trying it",
            "WARNING: CrewAI 99.0 is out, and crews do",
        ),
    ],
)
def test_what_is_said(
    newest: str | None, wrong: str | None, says: str, warns: str,
    canary: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    tried: list[str] = []
    monkeypatch.setattr(canary, "newest", lambda: newest)
    monkeypatch.setattr(canary, "tried", lambda version: tried.append(version) or wrong)
    assert canary.main([]) == 0
    assert canary.main(["--strict"]) == bool(wrong)
    assert tried == ([] if wrong is None else [newest, newest])
    said = capsys.readouterr()
    assert says in said.out
    assert warns in said.err
    assert bool(warns) == bool(said.err)


@pytest.mark.parametrize("answer", ["", "no JSON", '{"install": []}'])
def test_an_index_that_does_not_tell(answer: str, canary: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        if not answer and "--version" not in command:
            raise subprocess.CalledProcessError(1, command)
        return subprocess.CompletedProcess(command, 0, answer)

    monkeypatch.setattr(subprocess, "run", run)
    assert canary.newest() is None
