"""Everything is killed at random moments while several runs go on; at the end it is counted.

``RUNNER_CHAOS_SECONDS`` makes it longer than its few seconds, ``RUNNER_CHAOS_SEED`` repeats a sequence of blows.
"""

import contextlib
import os
import random
import signal
import time
from typing import Any

from redis import Redis

from runner.client import Client

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


def test_random_kills(own_server: Any, own_fleet: Any, own_client: Client, crew_of: Any, trace: Any) -> None:
    rand = random.Random(SEED)
    blows = Blows(own_fleet, own_server, rand)
    blows.frozen = []
    for _ in range(3):
        blows.start()
    for worker in own_fleet.workers:
        worker.ready()
    crews = [TASKS.replace("LABEL", f"run{i}").replace(", N,", f", {STEPS},") for i in range(4)]
    handles = [own_client.submit(crew_of(crew, f"crew{i}")) for i, crew in enumerate(crews)]
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        # The pace of the blows, not a wait for something to happen.
        time.sleep(rand.uniform(0.1, 0.8))
        blows.any()
        blows.thaw()
    blows.thaw(all_=True)
    results = [handle.wait(90) for handle in handles]
    told = (SEED, blows.log)
    for handle, result in zip(handles, results, strict=True):
        assert result.status == "completed", (told, result)
        done = [e.fields["task"] for e in handle.events() if e.type == "task_completed"]
        assert sorted(done) == ["first", "join", "last", "side0", "side1", "side2"], (told, done)
        assert result.ledger["paid"] == STEPS * 5 + 6, (told, result.ledger)
    print(f"seed {SEED}: {len(blows.log)} blows, {sum(r.recoveries for r in results)} recoveries, "
          f"{sum(r.ledger['replayed'] for r in results)} steps replayed, {trace.repeated()} done twice, "
          f"{sum(r.ledger['in_doubt'] for r in results)} in doubt")  # fmt: skip
    # A Redis killed with the append-only file fsynced each second may lose what it was told in the last moment only
    # at power loss, not when its process dies: so each step above what is in doubt was done exactly once.
    assert trace.repeated() <= sum(result.ledger["in_doubt"] for result in results), told
    assert sum(trace.steps().values()) - trace.repeated() == 4 * (STEPS * 5 + 6), told
