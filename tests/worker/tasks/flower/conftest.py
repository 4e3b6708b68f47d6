"""A guarded Redis, a worker older and a worker younger than Flower, and Flower between them."""

import base64
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from redis import Redis

from runner.client.embedded import find_binary
from runner.testing import fleet as testing_fleet

PASSWORD = "pw/Redis:s3cret@x"
AUTH = "me:open, sesame"


@dataclass
class Processes:
    """`runner` commands with logs, ended with the test."""

    folder: Path
    eventually: Callable[..., Any]
    environment: dict[str, str] = field(default_factory=dict)
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, name: str, *command: str, **environment: str) -> "Part":
        log = self.folder / f"{name}.log"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNNER_")}
        with log.open("wb") as out:
            process = testing_fleet.launch(
                command, env={**kept, **self.environment, **environment}, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return Part(process, log, self.eventually)

    def runner(self, name: str, *arguments: str, **environment: str) -> "Part":
        return self.start(name, sys.executable, "-m", "runner", *arguments, **environment)

    def flower(self, *arguments: str, **environment: str) -> "Flower":
        """Flower on a free port, once it listens."""
        part = self.runner(f"flower-{len(self.started)}", "flower", "--port", "0", *arguments, **environment)
        found = part.says(r"Flower at (http://\S+)")
        return Flower(part.process, part.log, self.eventually, found[1])

    def end(self) -> None:
        for process in reversed(self.started):
            if process.poll() is None:
                process.terminate()
        for process in reversed(self.started):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass
class Part:
    """One process and what it printed."""

    process: "subprocess.Popen[bytes]"
    log: Path
    eventually: Callable[..., Any]

    def printed(self) -> str:
        return self.log.read_text()

    def says(self, pattern: str) -> "re.Match[str]":
        """Wait for it to print this."""
        found = self.eventually(
            lambda: re.search(pattern, self.printed()) or self.process.poll() is not None,
            why=f"{self.log.name} says {pattern}",
        )
        assert found is not True, f"ended with {self.process.returncode}: {self.printed()}"
        return found

    def ended(self, within: float = 60) -> int:
        """Wait for its end; gives the exit code."""
        return self.process.wait(within)


@dataclass
class Flower(Part):
    """Flower, as a browser or a script sees it."""

    url: str

    def get(self, path: str, auth: str | None = AUTH) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path)
        if auth:
            request.add_header("Authorization", "Basic " + base64.b64encode(auth.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture(scope="module")
def processes(eventually: Callable[..., Any]) -> Iterator[Processes]:
    """Processes on a guarded Redis of their own."""
    with _guarded(eventually) as started:
        yield started


@pytest.fixture
def processes_of_one_test(eventually: Callable[..., Any]) -> Iterator[Processes]:
    """As `processes`, for a test that takes Redis away."""
    with _guarded(eventually) as started:
        yield started


@contextlib.contextmanager
def _guarded(eventually: Callable[..., Any]) -> Iterator[Processes]:
    folder = Path(tempfile.mkdtemp(prefix="rw-"))
    started = Processes(folder, eventually)
    socket = folder / "s.sock"
    url = f"unix://:{quote(PASSWORD, safe='')}@{socket}"
    started.start(
        "redis", str(find_binary()), "--port", "0", "--unixsocket", str(socket), "--dir", str(folder),
        "--appendonly", "yes", "--save", "", "--requirepass", PASSWORD,
    )  # fmt: skip
    started.environment = {"RUNNER_REDIS_URL": url, "RUNNER_CACHE_DIR": str(folder / "cache")}

    def answers() -> bool:
        with contextlib.suppress(Exception), Redis.from_url(url) as client:
            return bool(client.ping())
        return False

    try:
        eventually(answers, why="the server answers")
        yield started
    finally:
        started.end()
        shutil.rmtree(folder, ignore_errors=True)
