"""Everything is killed at random moments while several runs go on; at the end it is counted.

``RUNNER_CHAOS_SECONDS`` makes it longer than its few seconds, ``RUNNER_CHAOS_SEED`` repeats a sequence of blows.
"""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from runner.client import Client

from ...support.power_cut import PowerCut

SECONDS = float(os.environ.get("RUNNER_CHAOS_SECONDS", "12"))
SEED = int(os.environ.get("RUNNER_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)

STEPS = int(SECONDS * 3)
TASKS = """
    crew = Crew(checkpoint=None, tasks=[
        Task(name="first", run=steps("LABEL-first", N, 0.05)),
        *[Task(name=f"side{i}", run=steps(f"LABEL-side{i}", N, 0.05), async_execution=True) for i in range(3)],
        Task(name="join", run=steps("LABEL-join", N, 0.05)),
        Task(name="last", run=steps("LABEL-last", 6, 0.05)),
    ])
"""


class Blows:
    """What can happen to a fleet, at random."""

    def __init__(self, fleet: Any, server: Any, rand: random.Random) -> None:
        self.fleet, self.server, self.rand = fleet, server, rand
        self.log: list[str] = []

    def worker(self) -> Any:
        alive = [w for w in self.fleet.workers if w.process.poll() is None]
        return self.rand.choice(alive)

    def start(self) -> None:
        self.fleet.start("--concurrency", "2", "--pool", self.rand.choice(["prefork", "prefork", "shared"]),
                         wait=False, RUNNER_LEASE="1", RUNNER_DRAIN_TIMEOUT="2", RUNNER_MAX_ATTEMPTS="50")  # fmt: skip

    def kill_group(self) -> None:
        self.worker().kill_group()
        self.start()

    def terminate(self) -> None:
        self.worker().terminate()
        self.start()

    def kill_child(self) -> None:
        worker = self.worker()
        with contextlib.suppress(KeyError, IndexError, ProcessLookupError, OSError):
            os.kill(self.rand.choice(worker.children()), signal.SIGKILL)

    def kill_main(self) -> None:
        with contextlib.suppress(KeyError, ProcessLookupError, OSError):
            os.kill(self.worker().main_pid(), signal.SIGKILL)

    def freeze(self) -> None:
        worker = self.worker()
        worker.signal_group(signal.SIGSTOP)
        self.frozen.append((time.monotonic() + self.rand.uniform(0.2, 2.5), worker))

    frozen: list[tuple[float, Any]] = []

    def thaw(self, *, all_: bool = False) -> None:
        for due in [f for f in self.frozen if all_ or f[0] < time.monotonic()]:
            due[1].signal_group(signal.SIGCONT)
            self.frozen.remove(due)

    def kill_redis(self) -> None:
        self.server.kill()
        self.server.start()

    def cut_connections(self) -> None:
        with contextlib.suppress(Exception), Redis.from_url(self.server.url) as client:
            client.client_kill_filter(_type="normal", skipme=True)

    def any(self) -> None:
        blow = self.rand.choice(
            [self.kill_group, self.terminate, self.kill_child, self.kill_child, self.kill_main, self.freeze,
             self.kill_redis, self.cut_connections]
        )  # fmt: skip
        self.log.append(blow.__name__)
        blow()


class PowerCuts(Blows):
    """Power cuts of the store's machine, and what else can happen while all workers live: they know what is lost."""

    def kill_redis(self) -> None:
        cut = PowerCut(self.server)
        cut.remember()
        for _ in range(self.rand.randrange(4)):  # what is done in this time is lost
            time.sleep(self.rand.uniform(0.05, 0.4))
            self.rand.choice([self.kill_child, self.cut_connections])()
        cut.go_back()

    def any(self) -> None:
        blow = self.rand.choice([self.kill_child, self.kill_child, self.kill_redis, self.cut_connections])
        self.log.append(blow.__name__)
        blow()


def test_random_kills(own_server: Any, own_fleet: Any, own_client: Client, crew_of: Any, trace: Any) -> None:
    # A server that is killed loses nothing that it acknowledged, as it does while its disk is busy and fsync is behind
    own_server.kill()
    own_server.arguments = ("--appendfsync", "always")
    own_server.start()
    for about, ledger, lost in storm(Blows, own_server, own_fleet, own_client, crew_of, trace):
        assert (ledger["paid"], lost) == (STEPS * 5 + 6, 0), about


@pytest.mark.soak  # tests/worker/tasks/test_restored_store.py has a store that forgets, once
def test_power_cuts(own_server: Any, own_fleet: Any, own_client: Client, crew_of: Any, trace: Any) -> None:
    for about, ledger, lost in storm(PowerCuts, own_server, own_fleet, own_client, crew_of, trace):
        # Of what was lost some is done again, and paid again; a process that lives goes on with the rest
        assert 0 <= STEPS * 5 + 6 - ledger["paid"] <= lost <= ledger["in_doubt"], about


def storm(
    blows_of: type[Blows], server: Any, fleet: Any, client: Client, crew_of: Any, trace: Any
) -> Iterator[tuple[Any, dict[str, int], int]]:
    """Four runs in a storm. Of each: what to say if something is wrong, its ledger, and how many records were lost."""
    rand = random.Random(SEED)
    blows = blows_of(fleet, server, rand)
    blows.frozen = []
    for _ in range(3):
        blows.start()
    for worker in fleet.workers:
        worker.ready()
    crews = [TASKS.replace("LABEL", f"run{i}").replace(", N,", f", {STEPS},") for i in range(4)]
    handles = [client.submit(crew_of(crew, f"crew{i}")) for i, crew in enumerate(crews)]
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        # The pace of the blows, not a wait for something to happen.
        time.sleep(rand.uniform(0.1, 0.8))
        blows.any()
        blows.thaw()
    blows.thaw(all_=True)
    results = [handle.wait(90) for handle in handles]
    for i, (handle, result) in enumerate(zip(handles, results, strict=True)):
        rewound = [e.fields for e in handle.events() if e.type == "store_rewound"]
        about = (SEED, blows.log, result, rewound)
        assert result.status == "completed", about
        done = [e.fields["task"] for e in handle.events() if e.type == "task_completed"]
        assert sorted(done) == ["first", "join", "last", "side0", "side1", "side2"], (about, done)
        steps = {step: times for step, times in trace.steps().items() if step.startswith(f"step run{i}-")}
        assert len(steps) == STEPS * 5 + 6, about
        # Each time that a step was done is in the account: as paid, or in doubt.
        assert sum(steps.values()) <= result.ledger["paid"] + result.ledger["in_doubt"], (about, steps)
        yield about, result.ledger, sum(int(fields["steps"]) for fields in rewound)
    print(f"seed {SEED}: {len(blows.log)} blows, {sum(r.recoveries for r in results)} recoveries, "
          f"{sum(r.ledger['replayed'] for r in results)} steps replayed, {trace.repeated()} done twice, "
          f"{sum(r.ledger['in_doubt'] for r in results)} in doubt")  # fmt: skip
