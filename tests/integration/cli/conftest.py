"""The command line, in this process where that is sound (`cli`), as a process elsewhere (the fleet's `runner`)."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.cli import main, stdio


@dataclass(frozen=True)
class Said:
    """What a command left: its exit code, and what it printed where."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that a refusal is."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: "), self.err
        assert self.out == ""
        return lines[0].removeprefix("error: ")


@pytest.fixture
def cli(server, capfd, monkeypatch, tmp_path) -> Callable[..., Said]:
    """Runs a command in this process, on the empty server, in a folder of its own."""
    for name in [name for name in os.environ if name.startswith("RUNNER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(stdio, "READING_AFTER", (600.0, 600.0))  # however long a busy machine takes to read a file
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def run(*arguments: str | Path, **environment: str) -> Said:
        defaults = {"RUNNER_REDIS_URL": server.url, "RUNNER_CACHE_DIR": str(tmp_path / "cache")}
        for name, value in {**defaults, "RUNNER_STATE_DIR": str(tmp_path / "state"), **environment}.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        code = ended.value.code
        return Said(code if isinstance(code, int) else 0, out, err)

    return run


@pytest.fixture
def refused(cli, redis) -> Callable[..., str]:
    """Runs a command that is to be refused: one line, exit code 2, nothing stored. Gives the line."""

    def run(*arguments: str | Path, **environment: str) -> str:
        said = cli(*arguments, **environment)
        assert said.code == 2, said
        assert "Traceback" not in said.err
        assert redis.dbsize() == 0, redis.keys()
        return said.error

    return run


@pytest.fixture
def start(fleet) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts a command beside the test, which does not outlive it."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str | Path) -> "subprocess.Popen[str]":
        started.append(fleet.popen(*map(str, arguments)))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        with process:  # closes its pipes and waits
            pass
