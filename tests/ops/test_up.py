"""`runner up`: everything on this machine, until it is asked to end."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..support import interpreters
from ..support.soak import in_soak


@dataclass
class Up:
    """`runner up` on an embedded server of its own."""

    process: "subprocess.Popen[bytes]"
    log: Path
    environment: dict[str, str]
    eventually: Callable[..., Any]

    def says(self, pattern: str) -> "re.Match[str]":
        found: re.Match[str] = self.eventually(
            lambda: re.search(pattern, self.log.read_text(), re.MULTILINE), why=f"up says {pattern}"
        )
        return found

    def everything(self) -> "Up":
        """Wait for each part to say that it is there."""
        self.says(r"^Redis at unix://\S+$")
        self.says(r"^flower      Flower at http://127\.0\.0\.1:\d+$")
        self.says(r"^worker      .* ready\.$")
        self.says(r"^(worker|supervisor) .* leads$")
        return self

    def runner(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return interpreters.run("-m", "runner", *arguments, env=self.environment)

    def left(self, command: str = "") -> list[int]:
        """Every process that was started for it and is still there, by the state folder in its environment."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # it ended meanwhile
                if entry.name.isdigit() and self._ours(entry):
                    line = (entry / "cmdline").read_text().replace("\0", " ")
                    found += [int(entry.name)] if line.endswith(command) else []
        return found

    def _ours(self, entry: Path) -> bool:
        folder = self.environment["RUNNER_STATE_DIR"].encode()
        return folder in (entry / "environ").read_bytes() or folder in (entry / "cmdline").read_bytes()


@pytest.fixture
def up(eventually: Callable[..., Any]) -> Iterator[Up]:
    folder = Path(tempfile.mkdtemp(prefix="ru-"))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNNER_")}
    environment = {
        **kept,
        "RUNNER_STATE_DIR": str(folder / "state"),
        "RUNNER_CACHE_DIR": str(folder / "cache"),
        "RUNNER_REDIS_GRACE": "0.2",
    }
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "runner", "up", "--concurrency", "1", "--port", "0"],
            env=environment, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    one = Up(process, log, environment, eventually)
    yield one
    if process.poll() is None:
        process.terminate()
        process.wait(60)
    eventually(lambda: not one.left(), why="all processes are gone")
    shutil.rmtree(folder)


@pytest.mark.parametrize("signum", [*in_soak(signal.SIGINT), signal.SIGTERM])
def test_it_runs_a_crew_and_ends_with_nothing_left(up: Up, small_crew: Path, signum: signal.Signals) -> None:
    up.everything()
    done = up.runner("submit", str(small_crew), "--json")
    assert json.loads(done.stdout)["result"] == "one, two", done.stderr
    up.process.send_signal(signum)
    assert up.process.wait(60) == 0
    up.eventually(lambda: not up.left(), why="all processes are gone")
    assert "Traceback" not in up.log.read_text()


def test_a_part_that_ends_by_itself_ends_all_and_is_named(up: Up) -> None:
    up.everything()
    [supervisor] = up.left("runner supervisor ")
    os.kill(supervisor, signal.SIGKILL)
    assert up.process.wait(60) == 1
    assert (
        up.log.read_text().splitlines()[-1]
        == "error: supervisor exited unexpectedly with status -9; everything was stopped"
    )


@pytest.mark.soak
def test_killed_it_leaves_nothing(up: Up) -> None:
    up.everything()
    up.process.kill()
    up.process.wait()
    up.eventually(lambda: not up.left(), why="all processes are gone")
