"""How long until a task whose worker is gone does its next step elsewhere.

A crew of one task walks: step after step, each leaving a mark with its process and the time. The time that counts is
from just before the signal to the first mark of a step in a process that the signal did not hit.
"""

import itertools
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleet import HERE, Fleet, Worker
from servers import Server
from table import Row, spread
from waiting import until

from runner.client import Client, Prepared, RunHandle, prepare

CREW = prepare(f"{HERE / 'crews' / 'crew.py'}:walker")


@dataclass
class Walk:
    """One run of the walking crew."""

    handle: RunHandle
    path: Path

    def marks(self) -> list[tuple[str, int, int, float]]:
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text().splitlines():
            word, i, pid, at = line.split()
            found.append((word, int(i), int(pid), float(at)))
        return found

    def process(self) -> int:
        """Where it is now."""
        return self.marks()[-1][2]

    def first_step_elsewhere(self, gone: set[int], within: float) -> float:
        """When a step first began outside of ``gone``."""

        def look() -> float:
            return next((at for word, _, pid, at in self.marks() if word == "begin" and pid not in gone), 0.0)

        return until(look, "a step elsewhere", within=within, every=0.01)

    def repeated(self) -> int:
        """Steps done more than once."""
        return sum(n - 1 for n in Counter(i for word, i, _, _ in self.marks() if word == "end").values())

    def end(self) -> None:
        Path(f"{self.path}.stop").touch()
        result = self.handle.wait(60)
        if result.status != "completed":
            raise RuntimeError(f"the run {result.status}: {result.error}")


@dataclass
class Times:
    """What the kills of one row took, by whether the worker led; and what they cost."""

    leading: list[float] = field(default_factory=list)
    following: list[float] = field(default_factory=list)
    repeated: int = 0

    def all(self) -> list[float]:
        return self.leading + self.following

    def mix(self) -> str:
        kinds = (("leading", self.leading), ("not leading", self.following))
        return "; ".join(f"{name} {spread(times)}" for name, times in kinds if times)


class Stage:
    """Two workers and a walk on one of them, again and again."""

    def __init__(self, server: Server, fleet: Fleet, client: Client, seconds: float) -> None:
        self._folder = server.folder
        self._fleet = fleet
        self._client = client
        self._inputs = {"inside": seconds}
        self._crew: Prepared = CREW
        self._numbers = itertools.count()

    def walk(self) -> Walk:
        path = self._folder / f"marks-{time.monotonic_ns()}-{next(self._numbers)}"
        handle = self._client.submit(self._crew, {"marks": str(path), **self._inputs})
        walk = Walk(handle, path)
        until(lambda: len(walk.marks()) >= 10, "ten marks")
        return walk

    def holder(self, walk: Walk) -> Worker:
        return next(worker for worker in self._fleet.workers if walk.process() in worker.children())

    def walk_on(self, *, leading: bool) -> tuple[Walk, Worker]:
        """A walk on the worker that leads, or on the other one: as many walks as it takes, then one is left."""
        walks: list[Walk] = []
        while True:
            walks.append(self.walk())
            worker = self.holder(walks[-1])
            if worker.leads() == leading:
                break
        for other in walks[:-1]:
            other.end()
        return walks[-1], worker

    def at_any_moment(self) -> None:
        """The kill falls anywhere in a step."""
        time.sleep(random.uniform(0.05, 0.2))


def killed_child(server: Server, client: Client, count: int) -> Times:
    times = Times()
    with Fleet(server, 2) as fleet:
        stage = Stage(server, fleet, client, 0.02)
        for leading in alternately(count):
            walk, worker = stage.walk_on(leading=leading)
            stage.at_any_moment()
            pid = walk.process()
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            took = walk.first_step_elsewhere({pid}, 20) - began
            (times.leading if leading else times.following).append(took)
            walk.end()
            times.repeated += walk.repeated()
            until(worker.consuming, "the pool is whole again")
    return times


def gone_worker(server: Server, client: Client, how: str, count: int, *arguments: str, seconds: float = 0.02) -> Times:
    """A whole worker is killed, frozen or asked to end (``how``: a method of `Group`)."""
    times = Times()
    with Fleet(server, 2, *arguments) as fleet:
        stage = Stage(server, fleet, client, seconds)
        for leading in alternately(count):
            fleet.fill()
            walk, worker = stage.walk_on(leading=leading)
            stage.at_any_moment()
            gone = worker.children()
            began = time.monotonic()
            getattr(worker, how)()
            took = walk.first_step_elsewhere(gone, 30) - began
            (times.leading if leading else times.following).append(took)
            walk.end()
            times.repeated += walk.repeated()
            if how == "terminate":
                worker.process.wait(30)
            worker.kill()
    return times


def alternately(count: int) -> Iterator[bool]:
    return itertools.islice(itertools.cycle([False, True]), count)


def row(name: str, what: str, times: Times, limit: float, note: str = "") -> Row:
    every = times.all()
    middle = statistics.median(every)
    kills = len(every)
    return Row(
        name=name,
        what=f"{what}; steps done twice: {times.repeated} in {kills}",
        value=middle,
        ours=f"{spread(every)}: {times.mix()}{note}",
        goal=f"< {limit:g} s median",
        reached=middle < limit,
        samples={"leading": times.leading, "following": times.following},
    )


def measure(server: Server, wanted: set[str], kills: int) -> Iterator[Row]:
    with Client(server.url) as client:
        if "child" in wanted:
            yield row("child", "SIGKILL of a pool child: next step elsewhere", killed_child(server, client, kills), 0.1)
        if "worker" in wanted:
            times = gone_worker(server, client, "kill", kills)
            yield row("worker", "SIGKILL of a whole worker: next step elsewhere", times, 0.2)
        if "frozen" in wanted:
            times = gone_worker(server, client, "freeze", max(2, kills // 5))
            yield row("frozen", "SIGSTOP of a whole worker, lease 5 s (default)", times, 5.5)
            times = gone_worker(server, client, "freeze", max(2, kills // 2), "--lease", "0.5")
            yield row("frozen-short", "SIGSTOP of a whole worker, `--lease 0.5`", times, 1.0)
        if "term" in wanted:
            times = gone_worker(server, client, "terminate", kills, seconds=0.005)
            yield row("term", "SIGTERM, in or between steps of 5 ms: next step elsewhere", times, 0.1)
