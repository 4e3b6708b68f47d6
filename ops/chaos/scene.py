"""Where it happens: a Redis of its own, a model server that counts, workers to kill, and what they leave behind."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis

from runner.client import Client, Prepared, prepare
from runner.embedded import find_binary
from runner.testing import Call, ModelRequest, ModelServer

HERE = Path(__file__).resolve().parent
CALLS, TOOLS = 12, 18  #: what one run of the crew asks of the model, and how often it uses a tool
KINDS = ("agents", "agents_streamed", "client", "client_streamed", "asynchronous", "asynchronous_streamed")

_RUN = re.compile(r"run=(\S+) task=(\w+)")


def label_of(request: ModelRequest) -> str:
    """Which run asks."""
    found = _RUN.search(request.text)
    return found[1] if found else "?"


def script(request: ModelRequest) -> Any:
    """Three times two tools, then an answer: made of the conversation alone."""
    found = _RUN.search(request.text)
    place = f"{found[1]}/{found[2]}" if found else "?"
    if request.turn < 3:
        return [Call("look", {"thing": f"{place}/{request.turn}/{n}"}) for n in range(2)]
    return f"{place} has seen {len(request.results)}"


def until(look: Callable[[], Any], what: str, within: float = 60.0) -> Any:
    """Wait for it."""
    end = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {within:g} s: {what}")
        time.sleep(0.01)
    return found


def crew(kind: str) -> Prepared:
    """One of the crews, ready to be submitted."""
    return prepare(f"{HERE / 'crews' / 'paid.py'}:{kind}")


@dataclass
class Worker:
    """`runner worker` as a process group of its own."""

    process: "subprocess.Popen[bytes]"
    pool: str

    def alive(self) -> bool:
        return self.process.poll() is None

    def main(self) -> int:
        """The pid of the process that Celery's main loop is in; 0 if there is none now."""
        return next(iter(children_of(self.process.pid)), 0)

    def children(self) -> list[int]:
        """Its pool's."""
        main = self.main()
        return children_of(main) if main and self.pool == "prefork" else []

    def kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def children_of(pid: int) -> list[int]:
    """Direct children that are alive."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


@dataclass
class Scene:
    """All of it."""

    folder: Path
    url: str
    client: Client
    models: ModelServer
    environment: dict[str, str] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)

    def start(self, *, concurrency: int = 1, pool: str = "prefork", **environment: str) -> Worker:
        with (self.folder / "workers.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "runner", "worker", "--concurrency", str(concurrency), "--pool", pool],
                env={**self.environment, **environment}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        worker = Worker(process, pool)
        self.workers.append(worker)
        return worker

    def ready(self, count: int) -> None:
        """Wait until so many workers have registered."""
        until(lambda: len(self.client.store.workers.alive()) >= count, f"{count} workers register")

    def tools(self) -> Counter[str]:
        """How often each tool call was done."""
        trace = Path(self.environment["CHAOS_TRACE"])
        return Counter(trace.read_text().splitlines()) if trace.exists() else Counter()

    def log(self) -> str:
        """The end of what the workers said."""
        return (self.folder / "workers.log").read_text("utf-8", "replace")


@contextlib.contextmanager
def scene(*, delay: float = 0.0, **environment: str) -> Iterator[Scene]:
    """A scene for as long as the context lasts."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    socket = folder / "s.sock"
    redis = subprocess.Popen(
        [find_binary(), "--port", "0", "--unixsocket", socket, "--dir", folder, "--appendonly", "yes", "--save", "",
         "--logfile", folder / "redis.log"]
    )  # fmt: skip
    url = f"unix://{socket}"
    one: Scene | None = None
    try:
        until(lambda: _answers(url), "the server answers")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUNNER_", "OPENAI_"))}
        with ModelServer(script, delay=delay) as models, Client(url) as client:
            given = {
                **kept, **models.environment, "RUNNER_REDIS_URL": url, "CHAOS_TRACE": str(folder / "trace"),
                "RUNNER_CACHE_DIR": str(folder / "cache"), "RUNNER_STATE_DIR": str(folder / "state"), **environment,
            }  # fmt: skip
            # Forks are quick when the vendor's client is there already: what is killed is calls, not imports.
            (folder / "site").mkdir()
            (folder / "site" / "sitecustomize.py").write_text("import openai")
            given["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder / "site"), kept.get("PYTHONPATH"))))
            one = Scene(folder, url, client, models, given)
            yield one
    finally:
        for worker in one.workers if one else ():
            worker.kill_group()
        redis.kill()
        redis.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(url: str) -> bool:
    with contextlib.suppress(Exception), Redis.from_url(url) as client:
        return bool(client.ping())
    return False
