"""Real processes for tests: a Redis of one's own, and workers that may be killed. Linux: they are found in /proc."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from runner.client.embedded import find_binary
from runner.providers.redis.address import several
from runner.providers.redis.connection import Client, connect
from runner.providers.redis.partitions import urls_of
from runner.providers.redis.workers import Workers
from runner.testing import leftovers

T = TypeVar("T")

launch: "Callable[..., subprocess.Popen[Any]]" = subprocess.Popen
"""How a fleet's processes are started."""


def eventually(look: Callable[[], T], *, within: float = 30.0, why: str = "") -> T:
    """Call ``look`` until its result is true, and return that.

    Raises `AssertionError` with the last result after the timeout.
    """
    __tracebackhide__ = True
    end = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:g} s: {why or look.__name__}; last seen: {found!r}")
        time.sleep(0.02)
    return found


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's direct children."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def _scratch(prefix: str) -> Path:
    """Create a folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    leftovers.remove_with_us(folder)
    return folder


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        leftovers.removed(folder)


class RedisServer:
    """A Redis server for tests, with an append-only file and a socket in ``folder``, to be killed and started at will.

    As a context manager it is started, and killed at the end; a folder that did not exist before is removed.
    """

    def __init__(self, folder: str | Path | None = None, arguments: tuple[str, ...] = ()) -> None:
        self._made = folder is None or not Path(folder).exists()
        # A socket's path must be short.
        self.folder = Path(folder).absolute() if folder is not None else _scratch("rt-")
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """The path of its socket."""
        return self.folder / "s.sock"

    @property
    def url(self) -> str:
        """The URL that `Client` and ``RUNNER_REDIS_URL`` take."""
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start the server and wait until it answers. Data written before a kill is restored."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [
                find_binary(), "--port", "0", "--unixsocket", self.socket, "--dir", self.folder, "--appendonly", "yes",
                "--save", "", "--logfile", self.folder / "log", *self.arguments,
            ]
        )  # fmt: skip
        leftovers.end_with_us(-self.process.pid)
        eventually(self._answers, why="the server answers")

    def _answers(self) -> bool:
        with contextlib.suppress(Exception), connect(self.url) as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            leftovers.ended(-self.process.pid)

    def flush(self) -> None:
        """Delete all of its data."""
        with connect(self.url) as client:
            client.flushall()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()
        if self._made:
            _remove(self.folder)


@dataclass
class WorkerProcess:
    """A ``runner worker`` as a process group: the parent, the worker proper, and its pool."""

    process: "subprocess.Popen[bytes]"
    log: Path
    redis: Client = field(repr=False)

    @property
    def pid(self) -> int:
        """The pid of the parent, which is also the process group's id."""
        return self.process.pid

    def alive(self) -> bool:
        """Whether the parent runs."""
        return self.process.poll() is None

    def about(self) -> dict[str, Any]:
        """What the worker registered, with its id; empty until then."""
        for worker in Workers(self.redis).registered():
            pid = worker.fields.get("pid", 0)
            with contextlib.suppress(ProcessLookupError):
                if pid and os.getpgid(pid) == self.pid:
                    return {**worker.fields, "id": worker.id}
        return {}

    def ready(self, within: float = 60.0) -> Self:
        """Wait until the worker has registered, and return it."""
        eventually(lambda: self.about() or not self.alive(), within=within, why="the worker registers")
        if not self.alive():
            raise AssertionError(f"the worker ended: {self.log.read_text('utf-8', 'replace')}")
        return self

    def main_pid(self) -> int:
        """The pid of the process with Celery's main loop. Raises `ProcessLookupError` if there is none now."""
        for pid in children_of(self.pid):
            return pid
        raise ProcessLookupError(f"the worker {self.pid} has no main process now")  # no 0: whom `os.kill` takes for all

    def children(self) -> list[int]:
        """The pids of a prefork pool; empty if there is none now."""
        with contextlib.suppress(ProcessLookupError):
            return children_of(self.main_pid())
        return []

    def signal_group(self, signum: int) -> None:
        """Send a signal to all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signum)

    def kill_group(self) -> None:
        """Kill all of its processes at once, as when the machine is lost."""
        self.signal_group(signal.SIGCONT)
        self.signal_group(signal.SIGKILL)
        self.process.wait()
        leftovers.ended(self.pid)

    def terminate(self) -> None:
        """Send SIGTERM to the parent, as a service manager does: the worker drains."""
        self.process.send_signal(signal.SIGTERM)


@dataclass
class Fleet:
    """Starts workers on one Redis, and kills those that are left when it ends (or its ``with`` does).

    Of several servers in ``url`` the first is where a worker is looked for.
    ``settings`` are environment variables for all of them; other ``RUNNER_…`` variables do not reach them.
    ``python`` is their interpreter: another may have other packages, and take longer until a worker is ready.
    """

    url: str
    folder: Path = field(default_factory=lambda: _scratch("rf-"))
    settings: dict[str, str] = field(default_factory=dict)
    python: str = sys.executable
    starts_within: float = 60.0
    workers: list[WorkerProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)  # text is taken, too

    def environment(self, **extra: str) -> dict[str, str]:
        """Return the environment variables of its processes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RUNNER_")}
        return {
            **kept,
            "RUNNER_REDIS_URL": self.url,
            "RUNNER_CACHE_DIR": str(self.folder / "cache"),
            "RUNNER_STATE_DIR": str(self.folder / "state"),
            **self.settings,
            **extra,
        }

    def start(self, *arguments: str, wait: bool = True, **environment: str) -> WorkerProcess:
        """Start a ``runner worker``, with two processes of one pool unless the arguments say otherwise."""
        pool = () if "--pool" in arguments else ("--pool", "prefork")
        log = self.folder / f"worker-{len(self.workers)}.log"
        with log.open("wb") as out:
            process = launch(
                [self.python, "-m", "runner", "worker", *(arguments or ("--concurrency", "2")), *pool],
                env=self.environment(**environment), stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        leftovers.end_with_us(process.pid)
        one = WorkerProcess(process, log, connect(urls_of(several(self.url)[0])[0]))
        self.workers.append(one)
        return one.ready(self.starts_within) if wait else one

    def runner(
        self, *arguments: str, timeout: float = 120, cwd: Path | None = None, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a ``runner`` command and return when it has ended."""
        command = [self.python, "-m", "runner", *arguments]
        pipe = subprocess.PIPE
        with launch(
            command, env=self.environment(**environment), stdout=pipe, stderr=pipe, text=True, cwd=cwd
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def popen(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """Start a ``runner`` command, in a process group of its own."""
        process = launch(
            [self.python, "-m", "runner", *arguments],
            env=self.environment(**environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        leftovers.end_with_us(process.pid)
        return process

    def log(self) -> str:
        """Return the output of all workers."""
        return "".join(worker.log.read_text("utf-8", "replace") for worker in self.workers)

    def end(self) -> None:
        """Kill all processes that are left."""
        for worker in self.workers:
            worker.kill_group()
            worker.redis.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()
        _remove(self.folder)
