"""Real servers, real workers. A test waits for what it expects, with a deadline, and says what it saw instead."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from redis import Redis

from runner.client import Client
from runner.embedded import find_binary

T = TypeVar("T")


def eventually(look: Callable[[], T], *, within: float = 30.0, why: str = "") -> T:
    """The first true answer of ``look``; fails with the last one when the time is up."""
    end = time.monotonic() + within
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            pytest.fail(f"not within {within:g} s: {why or look.__name__}; last seen: {found!r}")
        time.sleep(0.02)


@dataclass
class Server:
    """A Redis of our own: the embedded binary, on a socket, append-only file on."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    arguments: tuple[str, ...] = ()

    @property
    def socket(self) -> Path:
        return self.folder / "s.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                find_binary(), "--port", "0", "--unixsocket", self.socket, "--dir", self.folder, "--appendonly", "yes",
                "--save", "", "--logfile", self.folder / "log", *self.arguments,
            ]
        )  # fmt: skip
        eventually(self._answers, why="the server answers")

    def _answers(self) -> bool:
        with contextlib.suppress(Exception), Redis.from_url(self.url) as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def flush(self) -> None:
        with Redis.from_url(self.url) as client:
            client.flushall()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    """One server for the whole session; tests use `server`, which empties it."""
    folder = Path(tempfile.mkdtemp(prefix="rt-"))
    one = Server(folder)
    one.start()
    yield one
    one.kill()
    shutil.rmtree(folder)


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    """An empty server; fails the test if it leaves a key behind that nobody listed or that never goes."""
    shared_server.flush()
    yield shared_server
    shared_server.flush()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that the test may kill."""
    folder = Path(tempfile.mkdtemp(prefix="rt-"))
    one = Server(folder)
    one.start()
    yield one
    one.kill()
    shutil.rmtree(folder)


@pytest.fixture
def redis(server: Server) -> Iterator[Redis]:
    """A decoding client of the empty server."""
    with Redis.from_url(server.url, decode_responses=True) as client:
        yield client


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """The Python client on the empty server."""
    with Client(server.url) as one:
        yield one


@pytest.fixture
def write_crew(tmp_path: Path) -> Callable[..., Path]:
    """Writes a crew file (and files beside it) in a folder of its own; gives its path."""

    def write(code: str, name: str = "crew", **beside: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "crew.py").write_text(textwrap.dedent(code))
        for file, text in beside.items():
            (folder / file.replace("__", ".")).write_text(textwrap.dedent(text))
        return folder / "crew.py"

    return write


@dataclass
class WorkerProcess:
    """`runner worker` as a process group of its own."""

    process: subprocess.Popen[bytes]
    log: Path
    redis: Redis = field(repr=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    def about(self) -> dict[str, Any]:
        """What the worker registered; empty until it has."""
        for key in self.redis.scan_iter("runner:{p0}:worker:*"):
            about = json.loads(self.redis.hget(key, "about") or "{}")
            if about and Path(f"/proc/{about['pid']}").exists() and os.getpgid(about["pid"]) == self.pid:
                return {**about, "id": key.rsplit(":", 1)[1]}
        return {}

    def ready(self) -> "WorkerProcess":
        eventually(lambda: self.about() or self.process.poll() is not None, why="the worker registers")
        assert self.process.poll() is None, self.log.read_text()
        return self

    def main_pid(self) -> int:
        return int(self.about()["pid"])

    def children(self) -> list[int]:
        """The pool children's pids."""
        return children_of(self.main_pid())

    def signal_group(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signum)

    def kill_group(self) -> None:
        self.signal_group(signal.SIGCONT)
        self.signal_group(signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


def children_of(pid: int) -> list[int]:
    """Direct children that are alive."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


@dataclass
class Fleet:
    """Starts workers on a server and ends them all when the test does."""

    server: Server
    folder: Path
    workers: list[WorkerProcess] = field(default_factory=list)
    python: str = sys.executable

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNNER_")}
        return {
            **kept,
            "RUNNER_REDIS_URL": self.server.url,
            "RUNNER_CACHE_DIR": str(self.folder / "cache"),
            "RUNNER_STATE_DIR": str(self.folder / "state"),
            **extra,
        }

    def start(self, *arguments: str, wait: bool = True, **environment: str) -> WorkerProcess:
        log = self.folder / f"worker-{len(self.workers)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [self.python, "-m", "runner", "worker", *(arguments or ("--concurrency", "2"))],
                env=self.environment(**environment), stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        one = WorkerProcess(process, log, Redis.from_url(self.server.url, decode_responses=True))
        self.workers.append(one)
        return one.ready() if wait else one

    def runner(
        self, *arguments: str, timeout: float = 120, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a ``runner`` command to its end."""
        return subprocess.run(
            [self.python, "-m", "runner", *arguments],
            env=self.environment(**environment), capture_output=True, text=True, timeout=timeout, check=False, cwd=cwd,
        )  # fmt: skip

    def popen(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """Start a ``runner`` command."""
        return subprocess.Popen(
            [self.python, "-m", "runner", *arguments],
            env=self.environment(**environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def end(self) -> None:
        for worker in self.workers:
            worker.kill_group()
            worker.redis.close()


@pytest.fixture
def fleet(server: Server, tmp_path: Path) -> Iterator[Fleet]:
    """Workers on the empty server."""
    folder = Path(tempfile.mkdtemp(prefix="rf-"))
    one = Fleet(server, folder)
    yield one
    one.end()
    for worker in one.workers:  # shown where the test failed
        print(worker.log.read_text()[-4000:])
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_fleet(own_server: Server) -> Iterator[Fleet]:
    """Workers on a server that the test may kill."""
    folder = Path(tempfile.mkdtemp(prefix="rf-"))
    one = Fleet(own_server, folder)
    yield one
    one.end()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(name="eventually", scope="session")
def _eventually() -> Callable[..., Any]:
    """`eventually`, for test files (which cannot import this one)."""
    return eventually
