"""Runs that begin in one script: each is stored as it would be by itself."""

import json
from typing import Any

import pytest
from redis import Redis

from runner.core.plan import Plan, PlannedTask
from runner.providers.records import NewRun
from runner.providers.redis import keys
from runner.providers.redis.batches import Batches
from runner.providers.redis.envelope import DIRECT

from .driver import QUEUE, Driver

OWN = {"id", "inputs", "beginning", "batch", "created_at"}  #: what a run's hash does not share with that of another
FIELDS = {
    **{"crew": "many", "adapter": "native", "bundle": "sha", "module": "crew", "attr": "crew", "queue": QUEUE},
    **{"keep": "600000", "max_checkpoints": "0", "envelope": DIRECT},
}
PLAN = Plan(
    "many",
    (PlannedTask("a"), PlannedTask("b", timeout=3), PlannedTask("c", pool="thread"), PlannedTask("d", ("a", "b"))),
)


def stored(redis: Redis, run_id: str) -> dict[str, Any]:
    """What is in the keys of a run, but for what is its own and for the ids of entries."""
    run, read = keys.run_key(run_id), {"hash": redis.hgetall, "set": redis.smembers}
    found: dict[str, Any] = {}
    for key in redis.scan_iter(f"{run}*"):
        kind = redis.type(key)
        entries = redis.xrange(key) if kind == "stream" else []
        found[key.removeprefix(run)] = read[kind](key) if kind in read else [one for _, one in entries]
    found[""] = {field: value for field, value in found[""].items() if field not in OWN}
    return found


@pytest.mark.parametrize("on", ["", ",task_completed,"])
def test_each_is_stored_as_by_itself(driver: Driver, redis: Redis, on: str) -> None:
    """Also where a key of one of them was there before, and where one begins with something else."""
    fields = {**FIELDS, "plan": PLAN.digest, "checkpoint_on": on}
    driver.runs.put_bundle("sha", b"code")
    assert driver.runs.create("r-0", PLAN, {**fields, "inputs": "{}"}) == "created"
    redis.sadd(keys.key("open_key", branch_key=keys.branch_key("r-3", "main")), "a")
    runs = [NewRun(f"r-{number}", number, json.dumps({"n": number}), "2" * (number == 4)) for number in range(1, 6)]
    assert Batches(redis).create("b-1", PLAN, fields, [*runs, runs[0]]) == ["created"] * 5 + ["exists"]
    for run in runs:
        assert stored(redis, run.id) == stored(redis, "r-0")
        own = dict(zip(OWN, redis.hmget(keys.run_key(run.id), list(OWN)), strict=True))
        assert (own["id"], own["inputs"], own["beginning"] or "") == (run.id, run.inputs, run.initial_state)
        assert own["batch"] == "b-1"
    sent = [json.loads(text)["headers"]["id"] for text in reversed(redis.lrange(QUEUE, 0, -1))]
    assert sent == [f"r-{number}.main.{task}.1" for number in range(6) for task in "abc"]
    queued = redis.zrange(keys.key("queued_key", home=keys.HOME), 0, -1)
    assert sorted(queued) == sorted(f"r-{number}|main|{task}" for number in range(6) for task in "abc")


def test_each_begins_with_its_checkpoint(driver: Driver, redis: Redis) -> None:
    fields = {**FIELDS, "plan": PLAN.digest, "checkpoint_on": ",crew_kickoff_started,"}
    driver.runs.put_bundle("sha", b"code")
    Batches(redis).create("b-1", PLAN, fields, [NewRun(f"r-{number}", number, "{}") for number in (1, 2)])
    for run_id in ("r-1", "r-2"):
        (checkpoint,) = driver.runs.checkpoints(run_id, "main")
        assert driver.runs.branch(run_id, "main").head == checkpoint.id


def test_those_of_another_broker_wait_in_the_outbox(driver: Driver, redis: Redis) -> None:
    fields = {**FIELDS, "plan": PLAN.digest, "checkpoint_on": "", "envelope": ""}
    driver.runs.put_bundle("sha", b"code")
    Batches(redis).create("b-1", PLAN, fields, [NewRun(f"r-{number}", number, "{}") for number in (1, 2)])
    wait = redis.zrange(keys.key("outbox_key", home=keys.HOME), 0, -1)
    assert sorted(wait) == sorted(f"r-{number}|main|{task}|1" for number in (1, 2) for task in "abc")
    assert not redis.exists(QUEUE)
