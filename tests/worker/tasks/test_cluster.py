"""A Redis Cluster as the store: a master is killed under load, slots move under load, each verb does its work."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client, prepare
from runner.client.partitions import PartitionedClient
from runner.client.store import named_urls
from runner.core.errors import UsageError
from runner.providers.redis.address import clustered
from runner.providers.redis.cluster import slot_of
from runner.providers.redis.workers import Workers
from runner.testing import Fleet, ModelServer, Rule

from ...support.cluster import RedisCluster

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[3]
CODE = """
    from runner import Agent
    def task(name):
        return Task(name=name, run=lambda ctx: steps(f"{ctx.run_id} {name}", 8, 0.05)(ctx))
    a, b = task("a"), task("b")
    c = Task(name="c", run=lambda ctx: ctx.outputs["a"].raw, context=[a, b])
    asked = Task(name="asked", description="Draft", agent=Agent(role="writer", llm="openai/scripted"), context=[c])
    crew = Crew(process=Process.graph, tasks=[a, b, c, asked])
"""
VERBS = """
    def work(ctx):
        ctx.step("once", lambda: trace(f"step {ctx.inputs.get('n')}") or 1)
        if ctx.inputs.get("n") == "bad" and not os.path.exists(FLAG):
            raise ValueError("not yet")
        return f"worked {ctx.inputs.get('n')}"
    work = Task(name="work", run=work)
    crew = Crew(tasks=[work, Task(name="t", run=lambda ctx: f"text {ctx.feedback}", human_input=True)])
"""


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RedisCluster]:
    """Three masters, and a replica of each, or as many as the test says."""
    with RedisCluster(tmp_path / "cluster", 3, getattr(request, "param", 1)) as one:
        yield one


def slots(cluster: RedisCluster) -> list[int]:
    """Of the partitions, in their order."""
    found = [clustered(url) for url in named_urls(cluster.url)]
    return [slot_of(one.tag) for one in found if one is not None]


def begun(client: PartitionedClient, crew: Path, many: int = 3) -> dict[int, list[Any]]:
    """So many runs on each partition."""
    prepared = prepare(str(crew))
    return {
        place: [client.at(place).submit(prepared, new_id=lambda at=place: client.new_id(at)) for _ in range(many)]
        for place in range(len(client.urls))
    }


def serving(client: PartitionedClient, eventually: Any) -> None:
    for place in range(len(client.urls)):
        workers = Workers(client.at(place).store.watcher)
        eventually(lambda of=workers: of.alive(), within=60, why="each partition is served")


def at_work(
    fleet: Fleet, client: PartitionedClient, crew: Path, models: ModelServer, eventually: Any
) -> dict[int, list[Any]]:
    """Runs on each partition, and a worker that has begun to do them."""
    fleet.start("--concurrency", "6", wait=False, **models.environment)
    serving(client, eventually)
    return begun(client, crew)


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """Counts the calls of the model."""
    with ModelServer([Rule("Draft", "draft")]) as one:
        yield one


def test_a_killed_master_under_load(
    cluster: RedisCluster, models: ModelServer, crew_of: Callable[..., Path], trace: Any, eventually: Any
) -> None:
    with Client(cluster.url) as client, Fleet(cluster.url, settings={"RUNNER_LEASE": "2"}) as fleet:
        assert isinstance(client, PartitionedClient)
        # Given a worker in the midst of runs on each partition
        crew = crew_of(CODE)
        runs = at_work(fleet, client, crew, models, eventually)
        eventually(lambda: len(trace.steps()) > 20, why="they are at work")
        # When a master is killed
        slot = slots(cluster)[1]
        first = cluster.master_of(slot)
        cluster.kill(first)
        # Then all runs complete, those of its partition at its replica
        results = [run.wait(90) for some in runs.values() for run in some]
        assert [result.status for result in results] == ["completed"] * 9, (results, fleet.log())
        assert cluster.master_of(slot) not in (-1, first)
        assert trace.repeated() <= sum(result.ledger["in_doubt"] for result in results)
        # And each call of the model is in the account, which may be too high, and not too low
        assert {result.ledger["paid"] for result in results} == {16 + 1}
        assert 9 <= models.paid <= 9 + sum(result.ledger["in_doubt"] for result in results)
        # And what comes after is served at once
        for some in begun(client, crew, 1).values():
            assert some[0].wait(30).status == "completed"
        # And the killed one is its replica when it is back, and again its master when the other one is killed
        second = cluster.master_of(slot)
        cluster.start(first)
        eventually(cluster.is_whole, why="it is back")
        runs = begun(client, crew, 1)
        cluster.kill(second)
        assert {some[0].wait(60).status for some in runs.values()} == {"completed"}
        assert cluster.master_of(slot) == first


@pytest.mark.parametrize("cluster", [0], indirect=True, ids=["no replica"])  # on a busy machine one would take over
def test_slots_move_under_load(
    cluster: RedisCluster, models: ModelServer, crew_of: Callable[..., Path], trace: Any, eventually: Any
) -> None:
    with Client(cluster.url) as client, Fleet(cluster.url) as fleet:
        assert isinstance(client, PartitionedClient)
        crew = crew_of(CODE)
        runs = at_work(fleet, client, crew, models, eventually)
        eventually(lambda: len(trace.steps()) > 10, why="they are at work")
        # When the slots of two partitions move, one after the other, key by key
        for slot in slots(cluster)[:2]:
            at = cluster.master_of(slot)
            to = (at + 1) % 3
            cluster.begin_move(slot, to)
            moved, seen = 0, len(trace.steps())
            while many := cluster.move_keys(slot, at, to, many=5):
                moved += many
            assert moved > 20
            eventually(lambda seen=seen: len(trace.steps()) > seen, why="the other partitions continue meanwhile")
            cluster.end_move(slot, at, to)
            eventually(lambda slot=slot, to=to: cluster.master_of(slot) == to, why="all know of it")
        # Then all runs complete, and no step was done twice
        results = [run.wait(90) for some in runs.values() for run in some]
        assert [result.status for result in results] == ["completed"] * 9, (results, fleet.log())
        assert (trace.repeated(), sum(result.ledger["in_doubt"] for result in results)) == (0, 0), fleet.log()
        for some in begun(client, crew, 1).values():
            assert some[0].wait(30).status == "completed"
        assert models.paid == 9 + 3


def test_each_verb(cluster: RedisCluster, crew_of: Callable[..., Path], trace: Any, tmp_path: Path) -> None:
    # Given a user who may do what the page says, on each node
    page = (ROOT / "docs/operations.md").read_text()
    (user,) = re.findall(r"^user (runner .*)$", page, re.MULTILINE)
    (more,) = re.findall(r"needs on each node also `(.*?)`", page)
    for number in range(len(cluster.ports)):
        with cluster.node(number) as node:
            node.execute_command("ACL", "SETUSER", *user.replace("PASSWORD", "pw").split(), *more.split())

    def done(*command: str, code: int = 0) -> Any:
        found = fleet.runner(*command)
        assert found.returncode == code, (command, found.stdout, found.stderr)
        return json.loads(found.stdout) if "--json" in command else found.stdout

    flag = tmp_path / "flag"
    crew = str(crew_of(VERBS.replace("FLAG", repr(str(flag)))))
    with Fleet(f"{cluster.url.replace('//', '//runner:pw@')}?partitions=4") as fleet:
        fleet.start("--concurrency", "4", wait=False)
        # More partitions than masters, so that masters may be added
        asked = [done("submit", crew, "--input", f"n={n}", "--id", f"key {n}", "--json", code=5) for n in range(6)]
        again = done("submit", crew, "--input", "n=0", "--id", "key 0", "--json", code=5)
        assert again["run_id"] == asked[0]["run_id"]
        for one in asked:
            assert done("answer", one["run_id"], "--reject", "better", code=5) == ""
            assert done("answer", one["run_id"], "--approve") == "text better\n"
            shown = done("show", one["run_id"], "--json")
            assert (shown["status"], shown["queue"]) == ("completed", "runner")
        forked = done("fork", asked[1]["run_id"], "--input", "n=forked", "--json")
        assert (forked["status"], forked["outputs"]["work"]) == ("completed", "worked forked")
        failed = done("submit", crew, "--input", "n=bad", "--json", code=1)
        flag.touch()
        assert done("resume", failed["run_id"], "--json", code=5)["outputs"] == {"work": "worked bad"}
        assert done("cancel", failed["run_id"]) is not None
        assert {run["run_id"] for run in done("runs", "--json")} == {one["run_id"] for one in [*asked, failed]}
        assert done("checkpoint", "list", asked[0]["run_id"], "--json") is not None
        inputs = tmp_path / "inputs.jsonl"
        inputs.write_text("".join(f'{{"n": "e{n}"}}\n' for n in range(8)))
        plain = str(crew_of('crew = Crew(tasks=[Task(name="a", run=lambda ctx: ctx.inputs["n"])])', name="plain.py"))
        lines = [json.loads(line) for line in done("submit", plain, "--each", str(inputs)).splitlines()]
        assert sorted(line["result"] for line in lines) == [f"e{n}" for n in range(8)]
        doctor = fleet.runner("doctor")
        assert doctor.stdout.count("ok  Redis") == 4, doctor.stdout
        assert doctor.returncode == 0, doctor.stdout
        lines = [line for line in trace.lines() if line.startswith("step ")]
        assert sorted(lines) == sorted([*(f"step {n}" for n in range(6)), "step bad", "step forked"])
    for number in range(len(cluster.ports)):
        with cluster.node(number) as node:
            assert [(entry["username"], entry["object"]) for entry in node.acl_log()] == []
    with pytest.raises(UsageError, match="has 4 partitions since it was first used"):
        Client(f"{cluster.url}?partitions=3")
