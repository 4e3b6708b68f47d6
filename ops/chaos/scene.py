"""Where it happens: a Redis of its own, a model server that counts, workers to kill, and what they leave behind."""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.client import Client, Prepared, prepare
from runner.testing import Call, Fleet, ModelRequest, ModelServer, RedisServer, WorkerProcess, eventually

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


def crew(kind: str) -> Prepared:
    """One of the crews, ready to be submitted."""
    return prepare(f"{HERE / 'crews' / 'paid.py'}:{kind}")


@dataclass
class Scene:
    """All of it."""

    fleet: Fleet
    client: Client
    models: ModelServer

    def start(self, *, concurrency: int = 1, pool: str = "prefork") -> WorkerProcess:
        return self.fleet.start("--concurrency", str(concurrency), "--pool", pool, wait=False)

    @property
    def workers(self) -> list[WorkerProcess]:
        return [worker for worker in self.fleet.workers if worker.alive()]

    def ready(self, count: int) -> None:
        """Wait until so many workers have registered."""
        eventually(lambda: len(self.client.store.workers.alive()) >= count, within=60, why=f"{count} workers register")

    def tools(self) -> Counter[str]:
        """How often each tool call was done."""
        trace = Path(self.fleet.settings["CHAOS_TRACE"])
        return Counter(trace.read_text().splitlines()) if trace.exists() else Counter()

    def log(self) -> str:
        """What the workers said."""
        return self.fleet.log()


@contextlib.contextmanager
def scene(answers: Callable[[ModelRequest], Any] = script, *, delay: float = 0.0, **settings: str) -> Iterator[Scene]:
    """A scene for as long as the context lasts, with a model that ``answers`` so."""
    with (
        RedisServer() as redis,
        ModelServer(answers, delay=delay) as models,
        Client(redis.url) as client,
        Fleet(redis.url) as fleet,
    ):
        # Forks are quick when the vendor's client is there already: what is killed is calls, not imports.
        site = fleet.folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text("import openai")
        path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
        fleet.settings = {
            **models.environment, "CHAOS_TRACE": str(fleet.folder / "trace"), "PYTHONPATH": path, **settings,
        }  # fmt: skip
        yield Scene(fleet, client, models)
