"""Keys that somebody overwrites with another type: who is refused removes them, and they count as deleted."""

import inspect
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from redis import Redis

from runner.core.jobs import Claim
from runner.journal.acknowledged_writes import Logs
from runner.providers.redis import keys, outages, overwritten
from runner.providers.redis.connection import connect, patient
from runner.providers.redis.restored_store import LostWrites
from runner.testing import RedisServer, eventually

from .conftest import Clock, LossyLine
from .driver import QUEUE, Driver, plan_of, task_of
from .test_reserved import Scene

RUN = keys.run_key("r-1")
MAIN = keys.branch_key("r-1", "main")
index = partial(keys.key, home=keys.HOME)


def overwrite(redis: Redis, name: str) -> None:
    """It holds what is of another type."""
    is_text = redis.type(name) == "string"
    redis.delete(name)
    if is_text:
        redis.rpush(name, "somebody else's")
    else:
        redis.set(name, "somebody else's")


@pytest.fixture(autouse=True)
def is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "MENDED", 10.0)


@pytest.fixture
def mending(server: RedisServer, redis: Redis, clock: Clock) -> Iterator[Driver]:
    """A driver whose clients are those of workers: they mend."""
    with connect(server.url) as asks_once, patient(server.url) as waits:
        line = LossyLine(waits)
        yield Driver(asks_once, line)
        line.close()


def test_a_write_that_meets_one_removes_it_and_is_done(mending: Driver, redis: Redis, caplog: Any) -> None:
    caplog.set_level(logging.WARNING)
    mending.submit(plan_of("a", "b: a"))
    events = keys.key("events_key", run=RUN)
    overwrite(redis, events)
    mending.work()
    assert mending.runs.get("r-1").status == "completed"
    assert caplog.messages == [f"key {events} held a string instead of a stream: removed, so it counts as deleted"]


@pytest.mark.parametrize("name", ["active_key", "runs_key", "expiring_key"])
def test_an_index_of_runs_is_made_again(mending: Driver, redis: Redis, name: str) -> None:
    for run in ("r-1", "r-2", "r-3"):
        mending.submit(plan_of("a"), run)
        if run == "r-1":
            mending.work()
    before = {one: set(redis.zrange(index(one), 0, -1)) for one in ("active_key", "runs_key", "expiring_key")}
    assert all(before.values())
    overwrite(redis, index(name))
    mending.work(limit=1)
    mending.submit(plan_of("a"), "r-4")
    for one, listed in before.items():
        over = {"r-2"} if one == "active_key" else set()
        assert set(redis.zrange(index(one), 0, -1)) >= listed - over
    mending.work()
    assert redis.zcard(index("active_key")) == 0


def test_a_queue_that_was_overwritten_gets_its_jobs_again(mending: Driver, redis: Redis, clock: Clock) -> None:
    queue = "runner:p2:somewhere"
    mending.submit(plan_of("a"), queue=queue)
    overwrite(redis, queue)
    clock.go_on(10_000)
    assert mending.workers.redeliver(1000) == 0  # it met the key: what it holds counts as deleted
    clock.go_on(10_000)
    assert mending.workers.redeliver(1000) == 1
    (job,) = mending.jobs(queue)
    assert isinstance(mending.claim(job), Claim)


def test_what_is_not_of_this_store_is_left(mending: Driver, redis: Redis, server: RedisServer) -> None:
    mending.submit(plan_of("a"))
    others = {
        "runner": "text",
        "runner:own": "text",
        "jobs:own": "text",
        "runner:{states:x}:held": "text",
        QUEUE: "list",
    }
    for name, kind in others.items():
        if kind == "text":
            redis.set(name, "mine")
    before = {name: redis.dump(name) for name in others}
    with connect(server.url) as client:
        assert not client.mend()
        overwrite(redis, keys.key("events_key", run=RUN))
        redis.delete(index("mending_key"))
        assert client.mend()
    assert {name: redis.dump(name) for name in others} == before


def test_one_looks_at_a_time_and_the_others_wait(mending: Driver, redis: Redis, server: RedisServer) -> None:
    mending.submit(plan_of("a"))
    overwrite(redis, index("active_key"))
    redis.set(index("mending_key"), "another process", px=60_000)
    with connect(server.url) as client:
        assert not client.mend()
        with pytest.raises(outages.NotNow, match="WRONGTYPE") as refused:
            client.zcard(index("active_key"))
        assert "one of its keys was overwritten" in outages.format_store_error(refused.value)
        redis.set(index("mending_key"), "one that stays")
        assert not client.mend()
        assert client.mend()
        assert client.zcard(index("active_key")) == 1


def test_who_works_waits_however_long_another_process_looks(
    redis: Redis, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> int:
        return int(redis.info("commandstats").get("cmdstat_strlen", {}).get("calls", 0))

    monkeypatch.setattr(outages, "MENDED", 0.0)
    overwrite(redis, index("active_key"))
    redis.set(index("mending_key"), overwritten.LOOKING, px=60_000)
    with patient(server.url) as client, ThreadPoolExecutor(1) as pool:
        found = pool.submit(client.zcard, index("active_key"))
        before = asked()
        eventually(lambda: asked() > before + 2, why="it waits")
        redis.delete(index("active_key"), index("mending_key"))
        assert found.result(30) == 0


def test_who_may_not_remove_it_is_told_so(server: RedisServer, redis: Redis, caplog: Any) -> None:
    redis.execute_command("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+@read", "+@connection")
    overwrite(redis, index("active_key"))
    try:
        with connect(f"unix://reader:x@{server.socket}") as client, pytest.raises(outages.NotNow, match="WRONGTYPE"):
            client.zcard(index("active_key"))
    finally:
        redis.execute_command("ACL", "DELUSER", "reader")
    assert "could not be looked for" in caplog.text


@pytest.mark.parametrize("state", ["queued", "delayed", "reaped"])
def test_of_many_runs_one_that_was_overwritten_is_mended_as_well(
    mending: Driver, redis: Redis, clock: Clock, state: str
) -> None:
    """Scripts for several runs pass over it, and say so."""
    for run in ("r-1", "r-2"):
        mending.submit(plan_of("a"), run)
    if state != "queued":
        claims = [claim for job in mending.jobs() if isinstance(claim := mending.claim(job), Claim)]
    if state == "delayed":
        for claim in claims:
            mending.task(claim).retry(1.0, "it raised", replayed=0)
    redis.delete(QUEUE)
    overwrite(redis, keys.key("events_key", run=RUN))
    for _ in range(2):
        clock.go_on(10_000)
        if state == "reaped":
            mending.workers.reap("w0", reason="it is gone", max_attempts=5)
        mending.workers.move_due()
        mending.workers.redeliver(1000)
        mending.workers.beat("w0", 5000, "{}")
        mending.work()
    assert [mending.runs.get(run).status for run in ("r-1", "r-2")] == ["completed"] * 2


def test_steps_that_were_lost_with_the_record_of_their_task_count_as_in_doubt(
    mending: Driver, redis: Redis, logs: Logs
) -> None:
    mending.submit(plan_of("a"))
    number = mending.workers.beat("w0", 5000).number
    task = task_of(mending, logs, mending.take("a")["a"])
    for name in ("s#1", "s#2"):
        task.record_step(name, "1", replayed=0)
    task.begin_step()
    mending.line.settle()
    redis.delete(keys.key("task_key", branch_key=MAIN, name="a"), keys.key("journal_key", branch_key=MAIN, name="a"))
    mending.workers.check_runs(0)
    assert mending.runs.get("r-1").status == "failed"
    assert mending.workers.beat("w0", 5000).number <= number, "so it sees that the store lost something"
    mending.resume("r-1")
    again = task_of(mending, logs, mending.take("a")["a"])
    for name in ("s#1", "s#2", "s#3"):
        again.record_step(name, "1", replayed=0)
    LostWrites("w0")(mending.workers.client, logs.claims)
    assert redis.hmget(RUN, "paid", "in_doubt") == ["5", "3"]


def test_steps_that_were_lost_with_their_journal_are_done_again_and_count_as_in_doubt(
    mending: Driver, redis: Redis, logs: Logs
) -> None:
    done: list[str] = []

    def steps(claim: Claim, *names: str) -> None:
        task = task_of(mending, logs, claim)
        for name in names:
            if name not in claim.recorded:
                done.append(name)
                task.record_step(name, "1", replayed=0)

    mending.submit(plan_of("a"))
    number = mending.workers.beat("w0", 5000).number
    steps(mending.take("a")["a"], "s#1", "s#2")
    overwrite(redis, keys.key("journal_key", branch_key=MAIN, name="a"))
    mending.workers.reap("w0", process="p0", reason="its process died", max_attempts=5)
    claim = mending.take("a")["a"]
    assert not claim.recorded
    steps(claim, "s#1", "s#2", "s#3")
    assert mending.workers.beat("w0", 5000).number <= number, "so it sees that the store lost something"
    LostWrites("w0")(mending.workers.client, logs.claims)
    task_of(mending, logs, claim).commit('{"raw":"a"}', (), replayed=0)
    run = mending.runs.get("r-1")
    assert run.status == "completed"
    again = len(done) - len(set(done))
    assert again == 2
    assert redis.hmget(RUN, "paid", "in_doubt") == ["5", str(again)]


def test_a_step_without_a_script_that_meets_one_is_recorded_and_counts_once(mending: Driver, redis: Redis) -> None:
    scene = Scene(mending)
    scene.step()
    assert mending.line.watcher is not None
    journal = keys.key("journal_key", branch_key=MAIN, name="a")
    overwrite(redis, journal)
    scene.step()
    assert redis.hkeys(journal) == ["s#3"]
    assert redis.hget(RUN, "paid") == "3"


def test_each_key_is_described_where_it_is_listed() -> None:
    lines = inspect.getsource(keys).splitlines()
    listed = {found[1]: i for i, line in enumerate(lines) if (found := re.match(r'    "(\w+)": \(', line))}
    assert listed.keys() == keys.KEYS.keys()
    assert [of for of, i in listed.items() if "#" not in lines[i] + lines[i - 1]] == []
