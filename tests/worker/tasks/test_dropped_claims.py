"""A claim of a living worker that none of its processes performs does not live for two heartbeats."""

from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.core.jobs import Claim, Job
from runner.journal.shared_memory import Performed, digest, page, performed, performs
from runner.providers.redis import store
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.workers import Workers

ONE_TASK = 'crew = Crew(tasks=[Task(name="{name}", run=steps("{name}", 3, 0, held_at={held}))])'


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_a_claim_that_was_dropped_is_handed_back(
    pool: str, server: Any, fleet: Any, client: Client, redis: Redis, crew_of: Any, trace: Any, eventually: Any
) -> None:
    # Given a worker of which a process does a task, and a second task claimed in the name of that very process:
    # what a claim leaves behind whose answer was lost, or whose end was refused
    worker = fleet.start("--concurrency", "2", "--pool", pool)
    busy = client.submit(crew_of(ONE_TASK.format(name="a", held=1)))
    eventually(lambda: trace.held("a"), why="the first task is at work")
    mine = worker.about()["id"]
    workers = Workers(redis)
    (claim,) = workers.beat(mine, 5000).claims
    other = client.submit(crew_of(ONE_TASK.format(name="b", held=-1), "late"), queue="late")
    given = store.claim(PipelinedConnection(redis), Job(other.id, "main", "b", 1), worker=mine, process=claim.process)
    assert isinstance(given, Claim)
    # When its heart beats, Then the task is handed back, which is told, and no crash is counted
    (told,) = eventually(lambda: [e for e in other.events() if e.type == "task_recovered"])
    assert told.fields["reason"] == "no process of its worker was running it"
    eventually(lambda: "no process of this worker runs task" in fleet.log(), why="it is logged, after the store has it")
    task = f"runner:{{p0}}:run:{other.id}:branch:main:task:b"
    assert redis.hmget(task, "state", "attempt", "crashes") == ["queued", "2", None]
    # And what the process really does is left alone, though its claim is as old
    assert [held.ref for held in workers.beat(mine, 5000).claims] == [claim.ref]
    trace.let_go()
    assert busy.wait(30).status == "completed"
    assert worker.about()["id"] == mine
    # And whoever comes next does it
    fleet.start("--concurrency", "1", "--queue", "late")
    assert other.wait(30).status == "completed"
    assert trace.repeated() == 0


def test_what_the_store_refuses_for_a_moment_hangs_no_run(
    own_server: Any, own_fleet: Any, own_client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    own_fleet.start("--concurrency", "2")
    handle = own_client.submit(crew_of(ONE_TASK.format(name="a", held=1)))
    eventually(lambda: trace.held("a"), why="it is between two steps")
    with Redis.from_url(own_server.url, decode_responses=True) as redis:
        redis.config_set("min-replicas-to-write", 1)
        trace.let_go()
        # The next step's note is refused, or its record, and so may be the hand-back.
        refused = lambda: redis.info("errorstats").get("errorstat_NOREPLICAS", {}).get("count", 0)  # noqa: E731 - an expression with a name
        eventually(lambda: refused() >= 5, why="it is refused")
        redis.config_set("min-replicas-to-write", 0)
    assert handle.wait(30).status == "completed"


def test_a_task_that_the_store_does_not_list_as_ours_is_stopped(
    server: Any, fleet: Any, client: Client, redis: Redis, crew_of: Any, trace: Any, eventually: Any
) -> None:
    # Given a task at work, of which the store forgets the claim
    fleet.start("--concurrency", "1")
    handle = client.submit(crew_of(ONE_TASK.format(name="a", held=1)))
    eventually(lambda: trace.held("a"), why="the task is at work")
    run = f"runner:{{p0}}:run:{handle.id}"
    (claims,) = redis.keys("runner:{p0}:claims:*")
    # When it is as if it had not been claimed
    with redis.pipeline() as pipe:
        pipe.delete(claims)
        pipe.hdel(f"{run}:branch:main:task:a", "token", "worker", "process", "nonce", "begun")
        pipe.hset(f"{run}:branch:main:task:a", "state", "queued")
        pipe.zadd("runner:{p0}:queued", {f"{handle.id}|main|a": 1})
        pipe.execute()
    # Then the process stops, and the task is done once more from its recorded step
    eventually(lambda: trace.held("a") == 2, within=15, why="it is done again")
    trace.let_go()
    assert handle.wait(30).status == "completed"
    assert trace.steps()["step a 0"] == 1


def test_who_asks_for_a_claim_is_at_it() -> None:
    """The store may have given it before the answer is here."""
    mine = page(None, "7")
    mine.claiming("r|main|a")
    assert performed().get("7") is None, "nobody reads a page that is not shared"
    at = [performs(found, "r|main|a", 3) for found in (None, _at("r|main|a", 0), _at("r|main|a", 3))]
    assert at == [True, True, True]
    assert not any(performs(found, "r|main|a", 3) for found in (_at("r|main|a", 4), _at("r|main|b", 3), _at("", 0)))


def _at(ref: str, token: int) -> Performed:
    return Performed(digest(ref), token)
