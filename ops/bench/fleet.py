"""Workers, each a process group of its own: the runner's, and plain Celery's."""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from redis import Redis
from servers import Server
from waiting import until

from runner.providers.redis.workers import Workers

HERE = Path(__file__).parent
CONCURRENCY = 2


@dataclass
class Group:
    """A process and everything it started."""

    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)

    def terminate(self) -> None:
        """As a service manager does: the first process alone is told."""
        self.process.terminate()


@dataclass
class Worker(Group):
    """`runner worker`, registered and consuming."""

    redis: Redis = field(repr=False)
    id: str = ""
    main: int = 0

    def find(self) -> bool:
        """Whether it has registered; then ``id`` and ``main`` are known."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the worker ended with {self.process.returncode}")
        for worker in Workers(self.redis).registered():
            with contextlib.suppress(ProcessLookupError, KeyError):
                if os.getpgid(worker.fields["pid"]) == self.process.pid:
                    self.id, self.main = worker.id, worker.fields["pid"]
                    return True
        return False

    def children(self) -> set[int]:
        """The pool's processes."""
        found: set[int] = set()
        for task in Path(f"/proc/{self.main}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found.update(map(int, task.read_text().split()))
        return found

    def consuming(self) -> bool:
        """Whether all of its pool is there and it waits for jobs."""
        wanted = f"name={self.id}:celery "
        lines = self.redis.execute_command("CLIENT", "LIST", "TYPE", "normal")
        return len(self.children()) >= CONCURRENCY and any(
            wanted in line and "cmd=brpop" in line for line in str(lines).splitlines()
        )

    def leads(self) -> bool:
        return Workers(self.redis).leader().startswith(f"{self.id}:")


class Fleet:
    """The runner's workers on one server; what stops is replaced by `fill`."""

    def __init__(self, server: Server, size: int, *arguments: str, **environment: str) -> None:
        self._server, self._size, self._arguments = server, size, arguments
        self._environment = environment
        self._redis = server.client()
        self.workers: list[Worker] = []

    def fill(self) -> None:
        """Wait until as many workers as wanted consume, and one of them leads."""
        self.workers = [w for w in self.workers if w.process.poll() is None]
        while len(self.workers) < self._size:
            self.workers.append(Worker(self._start(), self._redis))
        for worker in self.workers:
            until(worker.find, "the worker registers", within=120)
            until(worker.consuming, "the worker consumes", within=120)
        until(lambda: any(worker.leads() for worker in self.workers), "a worker leads")

    def _start(self) -> subprocess.Popen[bytes]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNNER_")}
        with (self._server.folder / "worker.log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "runner",
                    "worker",
                    "--pool",
                    "prefork",
                    "--concurrency",
                    str(CONCURRENCY),
                    *self._arguments,
                ],
                env={
                    **kept,
                    "RUNNER_REDIS_URL": self._server.url,
                    "RUNNER_CACHE_DIR": str(self._server.folder / "cache"),
                    **self._environment,
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> "Fleet":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no worker outlives the bench
        try:
            self.fill()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
        self._redis.close()


@contextlib.contextmanager
def celery_worker(server: Server):
    """A plain Celery worker that serves the peer's tasks."""
    with (server.folder / "peer.log").open("wb") as log:
        group = Group(
            subprocess.Popen(
                [
                    sys.executable, "-m", "celery", "-A", "peer", "worker", "--pool=prefork",
                    f"--concurrency={CONCURRENCY}", "--without-gossip", "--without-mingle", "--queues=peer",
                ],
                cwd=HERE, env={**os.environ, "BENCH_SOCKET": server.socket}, stdout=log, stderr=log,
                start_new_session=True,
            )
        )  # fmt: skip
    try:
        yield group
    finally:
        group.kill()
