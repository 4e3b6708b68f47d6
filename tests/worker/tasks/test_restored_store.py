"""The store goes back in time under living workers: what it forgot is done again, said, and counted."""

import contextlib
import os
import random
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.core.errors import NotFound
from runner.testing import Fleet, RedisServer, eventually

from ...support.power_cut import PowerCut
from ...support.soak import in_soak

TWO_TASKS = """
    crew = Crew(tasks=[
        Task(name="a", run=steps("a", 3, 0, held_at=1)),
        Task(name="b", run=steps("b", 2, 0, held_at=1)),
    ])
"""


class PowerLost(PowerCut):
    """The machine dies before what was written last is on disk."""

    def __init__(self, folder: Path, _backup: Callable[[str], Any]) -> None:
        super().__init__(RedisServer(folder / "s"))
        self.server.start()
        self.url = self.server.url

    def end(self) -> None:
        self.server.kill()


class Failover:
    """The master dies, and a replica that lagged behind takes its place."""

    def __init__(self, folder: Path, _backup: Callable[[str], Any]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.master = RedisServer(folder / "m", ("--port", str(port)))
        self.replica = RedisServer(folder / "r", ("--replicaof", "127.0.0.1", str(port)))
        self.master.start()
        self.replica.start()
        self.address = folder / "address"
        self.address.symlink_to(self.master.socket)
        self.url = f"unix://{self.address}"

    def remember(self) -> None:
        with Redis.from_url(self.master.url) as master, Redis.from_url(self.replica.url) as replica:
            written = master.info("replication")["master_repl_offset"]
            eventually(lambda: replica.info("replication")["master_link_status"] == "up", why="it replicates")
            eventually(lambda: replica.info("replication")["slave_repl_offset"] >= written, why="it has all of that")
            replica.replicaof("NO", "ONE")

    def go_back(self) -> None:
        self.address.unlink()
        self.address.symlink_to(self.replica.socket)
        self.master.kill()

    def end(self) -> None:
        self.master.kill()
        self.replica.kill()


class Restored:
    """A backup is put back into the server that runs: no connection is lost."""

    def __init__(self, folder: Path, backup: Callable[[str], Any]) -> None:
        self._take = backup
        self.server = RedisServer(folder / "s")
        self.server.start()
        self.url = self.server.url

    def remember(self) -> None:
        self._backup = self._take(self.url)

    def go_back(self) -> None:
        self._backup.restore()

    def end(self) -> None:
        self.server.kill()


@pytest.fixture(params=[PowerLost, Failover, Restored], ids=lambda how: how.__name__)
def store(request: pytest.FixtureRequest, backup: Callable[[str], Any]) -> Iterator[Any]:
    with RedisServer() as short:  # its folder has a path that is short enough for sockets
        found = request.param(short.folder, backup)
        yield found
        found.end()


def it_beats(redis: Any) -> None:
    """The worker shows that it lives: by the number of its beats it sees that the store went back."""
    (about,) = redis.keys("runner:{p0}:worker:*")
    before = int(redis.hget(about, "beats") or 0)
    eventually(lambda: int(redis.hget(about, "beats") or 0) > before + 2, why="it beats")


@pytest.mark.parametrize("pool", [*in_soak("prefork"), "shared"])
def test_what_the_store_forgot_is_done_again_told_and_counted(
    pool: str, store: Any, crew_of: Callable[..., Path], trace: Any
) -> None:
    with (
        Fleet(store.url) as fleet,
        Client(store.url) as client,
        Redis.from_url(store.url, decode_responses=True) as redis,
    ):
        # Given a store that remembers a run in its first task, after one of three steps
        worker = fleet.start("--concurrency", "1", "--pool", pool, RUNNER_LEASE="60")  # one that stands when it is back
        main = worker.main_pid()
        handle = client.submit(crew_of(TWO_TASKS))
        eventually(lambda: trace.held("a"), why="the first task is at work")
        store.remember()
        # When that is over, with two steps more and its commit, the next has recorded a step, there is another run, and
        # the worker has shown that it lives: all of it acknowledged, all of it forgotten
        trace.let_go("a")
        eventually(lambda: trace.held("b"), why="the second task is at work")
        unknown = client.submit(crew_of(TWO_TASKS, "late"))
        it_beats(redis)
        store.go_back()
        # Then the run goes on by itself, on the same worker
        eventually(lambda: trace.held("b") == 2, within=60, why="the second task is there again")
        trace.let_go()
        result = handle.wait(60)
        assert result.status == "completed"
        assert result.outputs == {"a": "0 1 2", "b": "0 1"}
        assert worker.main_pid() == main
        # And what was done twice is in doubt: what the steps themselves wrote down says how much that is
        assert trace.repeated() == 3
        assert 3 <= result.ledger["in_doubt"] <= 4  # one that began under the claim that was forgotten may count twice
        assert result.ledger["paid"] == 5
        # And it is told, among the run's events and in the worker's log
        told = [e.fields for e in handle.events() if e.type == "store_rewound"]
        steps: Counter[tuple[str, str]] = Counter()
        for fields in told:  # of one claim perhaps in two parts: it is looked at again once others have looked
            steps[fields["task"], fields["forgotten"]] += int(fields["steps"])
        assert steps == {("a", "commit"): 2, ("b", "claim"): 1}
        assert "the store was restored to an earlier state" in fleet.log()
        assert "no process of this worker runs task" in fleet.log()
        # And of a run that it never heard of it knows nothing
        with pytest.raises(NotFound):
            client.run(unknown.id)


IN_A_STEP = """
    def work_once():
        trace("step a 0")
        trace(f"pid {os.getpid()}")
        hold("in the step")
        return "done"

    def do(ctx):
        hold("before the step")
        return ctx.step("work", work_once)

    crew = Crew(tasks=[Task(name="a", run=do)])
"""


def test_a_step_of_which_the_store_forgot_all_is_in_doubt_where_its_process_dies_before_its_worker_looks(
    store: Any, crew_of: Callable[..., Path], trace: Any
) -> None:
    with (
        Fleet(store.url) as fleet,
        Client(store.url) as client,
        Redis.from_url(store.url, decode_responses=True) as redis,
    ):
        # Given a store that remembers a task before its only step
        fleet.start("--concurrency", "1")
        handle = client.submit(crew_of(IN_A_STEP))
        eventually(lambda: trace.held("before the step"), why="the task is at work")
        store.remember()
        # When the step is under way, the store goes back, and the step's process dies at once
        trace.let_go("before the step")
        eventually(lambda: trace.held("in the step"), why="it is in the step")
        it_beats(redis)
        store.go_back()
        (process,) = {int(line.split()[1]) for line in trace.lines() if line.startswith("pid ")}
        os.kill(process, signal.SIGKILL)
        trace.let_go()
        # Then the step is done again, and in doubt
        assert handle.wait(60).outputs == {"a": "done"}
        assert trace.repeated() == 1
        eventually(lambda: handle.wait(60).ledger["in_doubt"] == 1, why="its worker has looked")


HELD = """
    def do(ctx):
        trace(f"pid {os.getpid()}")
        for i in range(3):
            ctx.step(f"s{i}", trace, f"step {i}")
        hold("h")
        return "done"

    crew = Crew(tasks=[Task(name="a", run=do)])
"""


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_a_store_that_goes_back_again_and_again_while_processes_die_holds_no_worker_up(
    seed: int, crew_of: Callable[..., Path], trace: Any
) -> None:
    chance = random.Random(seed)

    def die() -> None:
        """The process of the attempt that began last does, if it has not yet."""
        before = trace.held("h")
        (*_, last) = [int(line.split()[1]) for line in trace.lines() if line.startswith("pid ")]
        with contextlib.suppress(ProcessLookupError):
            os.kill(last, signal.SIGKILL)
        eventually(lambda: trace.held("h") > before, within=60, why="another attempt is at work")

    with (
        RedisServer() as short,
        RedisServer(short.folder / "s") as server,
        Fleet(server.url) as fleet,
        Client(server.url) as client,
    ):
        # Given a worker, and a run that is at work on it
        fleet.start("--concurrency", "2", "--pool", "prefork", RUNNER_MAX_ATTEMPTS="1000", RUNNER_LEASE="2")
        handle = client.submit(crew_of(HELD))
        eventually(lambda: trace.held("h"), why="it is at work")
        # When the store goes back again and again, and a process dies before that, and at once
        for _ in range(30):
            cut = PowerCut(server)
            cut.remember()
            for _ in range(chance.randrange(3)):
                die()
            cut.go_back()
            die()
        # Then the worker was never found standing, the run ends, and no step is missing in its account
        assert "none was claimed for" not in fleet.log()
        trace.let_go()
        ledger = handle.wait(60).ledger
        assert ledger["paid"] + ledger["in_doubt"] >= sum(trace.steps().values())
