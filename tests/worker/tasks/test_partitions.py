"""Several servers, workers of all of them: one server is killed and comes back, a worker is killed for good."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client, prepare
from runner.client.partitions import PartitionedClient
from runner.providers.redis.workers import Workers
from runner.testing import Fleet, RedisServer
from runner.testing import fleet as testing_fleet

from ...support.soak import in_soak

pytestmark = pytest.mark.timeout(180)

CREW = """
    crew = Crew(tasks=[
        Task(name="first", run=steps("@", 3, 0, 2)),
        Task(name="second", run=steps("@ again", 2, 0)),
    ])
"""


KEEPS = ("--appendfsync", "always")  #: a server that is killed has all that it acknowledged


@pytest.fixture
def servers() -> Iterator[list[RedisServer]]:
    """Three servers, which the test may kill."""
    with RedisServer(arguments=KEEPS) as a, RedisServer(arguments=KEEPS) as b, RedisServer(arguments=KEEPS) as c:
        yield [a, b, c]


def test_a_server_and_a_worker_die_and_nothing_is_lost_nor_done_twice(
    servers: list[RedisServer], crew_of: Any, trace: Any, eventually: Any
) -> None:
    urls = ",".join(server.url for server in servers)
    with Client(urls) as client, Fleet(urls, settings={"RUNNER_LEASE": "1"}) as fleet:
        assert isinstance(client, PartitionedClient)
        first, second = (fleet.start("--concurrency", "3", wait=False) for _ in range(2))
        for place in range(3):
            workers = Workers(client.at(place).store.watcher)
            eventually(lambda of=workers: len(of.alive()) == 2, within=60, why="both workers serve each server")
        runs = {
            f"{place}{n}": client.at(place).submit(
                prepare(str(crew_of(CREW.replace("@", f"{place}{n}"), name=f"crew{place}{n}.py"))),
                new_id=lambda at=place: client.new_id(at),
            )
            for place in range(3)
            for n in range(2)
        }
        for label in runs:
            eventually(lambda of=label: trace.held(of), why="its third step is under way")
        servers[0].kill()
        for label, run in runs.items():  # of the others all goes on
            if label[0] == "1":
                trace.let_go(label)
                assert run.wait(60).status == "completed"
        servers[0].start()
        first.kill_group()
        for label in runs:
            trace.let_go(label)
        results = {label: run.wait(90) for label, run in runs.items()}
        assert {(one.status, one.result) for one in results.values()} == {("completed", "0 1")}
        done = [line for line in trace.lines() if line.startswith("step")]
        for label in runs:  # a step that is recorded is not done again
            assert [done.count(f"step {label} {i}") for i in range(2)] == [1, 1]
            assert [done.count(f"step {label} again {i}") for i in range(2)] == [1, 1]
        assert {run["run_id"] for run in json.loads(fleet.runner("runs", "--json").stdout)} == {
            r.id for r in runs.values()
        }
        second.terminate()
        assert second.process.wait(30) == 0
        assert [Workers(client.at(place).store.watcher).alive() for place in range(3)] == [[], [], []]


def test_a_batch_goes_to_all_servers(servers: list[RedisServer], crew_of: Any, eventually: Any) -> None:
    urls = ",".join(server.url for server in servers)
    prepared = prepare(str(crew_of('crew = Crew(tasks=[Task(name="a", run=lambda ctx: ctx.inputs["n"])])')))
    with Client(urls) as client, Fleet(urls) as fleet:
        assert isinstance(client, PartitionedClient)
        fleet.start("--concurrency", "3")
        assert client.runs() == []  # each server knows its place now: until then all have to be there
        servers[2].kill()
        batch = client.submit_many(prepared, ({"n": str(n)} for n in range(60)), id="all", at_once=9)
        over = {}
        for number, result in batch:
            over[number] = result.result
            if len(over) == 30:  # more than one server's share
                servers[2].start()
        assert over == {n + 1: str(n) for n in range(60)}
        kept = [client.at(place).store.runs.newest(100) for place in range(3)]
        assert all(10 < len(one) < 32 for one in kept)
        again = dict(client.submit_many(prepared, ({"n": str(n)} for n in range(60)), id="all", at_once=9))
        assert {number: result.result for number, result in again.items()} == over
        assert [client.at(place).store.runs.newest(100) for place in range(3)] == kept  # none was submitted twice
        assert dict(client.resume_many(batch.id)) == {}


@pytest.mark.parametrize(
    "command", [("flower", "--port", "0"), *in_soak((("up", "--port", "0", "--concurrency", "1"),))]
)
def test_flowers_start_while_a_server_is_away(
    command: tuple[str, ...], servers: list[RedisServer], tmp_path: Path, eventually: Any
) -> None:
    urls = ",".join(server.url for server in servers[:2])
    with Client(urls) as client, Fleet(urls) as fleet:
        assert client.runs() == []  # each server knows its place now: until then all have to be there
        servers[1].kill()
        with (tmp_path / "said").open("w") as log:
            environment = fleet.environment(PYTHONUNBUFFERED="1")
            arguments = [sys.executable, "-m", "runner", *command]
            process = testing_fleet.launch(arguments, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            said = (tmp_path / "said").read_text
            eventually(lambda: said().count("Flower at http://") == 1, within=60, why="that of the first starts")
            eventually(lambda: "its Flower waits: Redis at " in said(), why="it says which server is away")
            assert process.poll() is None
            servers[1].start()
            eventually(lambda: said().count("Flower at http://") == 2, within=60, why="that of the other follows")
        finally:
            process.terminate()
            assert process.wait(60) == 0, said()
