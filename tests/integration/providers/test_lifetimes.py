"""What a run leaves behind, and for how long; and the account and the events that it keeps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from redis import Redis

from runner.core.errors import ClaimLost, Conflict, NotFound
from runner.core.ledger import AccountKey, Counters, Usage
from runner.core.states import RunStatus
from runner.journal.recorder import DoneStep
from runner.providers.records import NewRun
from runner.providers.redis.batches import Batches
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.store import ClaimedTask

from ...conftest import eventually
from .conftest import Clock
from .driver import KEEP, Driver, plan_of
from .observed import TEST_KEY

HOME = "runner:{p0}"
BUNDLE = f"{HOME}:bundle:sha"


def left(redis: Redis, of: str = f"{HOME}:run:") -> set[str]:
    return {key for key in redis.keys("*") if key.startswith(of)}


def straggler(driver: Driver, **options: str) -> tuple[str, object]:
    """A run that failed while another of its tasks went on."""
    run = driver.submit(plan_of("fails", "slow"), **options)
    claims = driver.take("fails", "slow")
    driver.task(claims["fails"]).fail("it cannot be done", replayed=0)
    return run, claims["slow"]


def test_a_journal_begun_after_the_run_was_over_goes_with_it(driver: Driver) -> None:
    run, slow = straggler(driver)
    task = driver.task(slow)
    task.record_step("ask#1", "1", replayed=0)
    assert 0 < driver.redis.pttl(f"{HOME}:run:{run}:branch:main:journal:slow") <= KEEP
    assert all(driver.redis.pttl(key) > 0 for key in left(driver.redis))


def test_a_run_that_is_resumed_lives_on_and_so_does_all_it_has(driver: Driver) -> None:
    run, slow = straggler(driver)
    driver.task(slow).record_step("ask#1", "1", replayed=0)
    assert driver.resume(run) == "resumed"
    assert {driver.redis.pttl(key) for key in left(driver.redis)} == {-1}


@pytest.mark.parametrize("keep", ["0", "50"])
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_all_of_a_run_expires_and_it_is_forgotten(driver: Driver, clock: Clock, end: str, keep: str) -> None:
    run = driver.submit(plan_of("a", "b", "c: a b"), keep=keep, checkpoint_on=",*,")
    claims = driver.take("a", "b")
    driver.task(claims["a"]).record_step("ask#1", "1", replayed=0)
    if end == "failed":
        driver.task(claims["b"]).fail("it cannot be done", replayed=0)
    elif end == "cancelled":
        driver.runs.cancel(run, "enough")
    else:
        for claim in claims.values():
            driver.commit(claim)
        driver.work()
    eventually(lambda: not left(driver.redis), why="its keys expire")
    assert driver.runs.newest() == []
    with pytest.raises(NotFound, match="only kept for a while"):
        driver.runs.get(run)
    clock.go_on(50)
    assert driver.workers.trim() == 1
    driver.workers.reap("w0", reason="it left", max_attempts=5)
    driver.workers.reap("w1", reason="it left", max_attempts=5)
    assert left(driver.redis, of="") <= {TEST_KEY, "jobs"}


def test_a_task_that_outlives_its_run_revives_nothing(driver: Driver) -> None:
    _, slow = straggler(driver, keep="1")
    eventually(lambda: not left(driver.redis), why="its keys expire")
    task = driver.task(slow)
    for write in (
        lambda: task.record_step("ask#1", "1", replayed=0),
        lambda: task.release(replayed=0),
        lambda: driver.task(slow).commit('{"raw":"late"}', [], replayed=0),
    ):
        with pytest.raises(ClaimLost):
            write()
    assert driver.workers.reap("w0", reason="it left", max_attempts=5) == []
    assert not left(driver.redis)


def test_a_bundle_is_kept_as_long_as_a_run_may_need_it(driver: Driver, redis: Redis) -> None:
    assert driver.runs.put_bundle("sha", b"packed")
    assert 0 < redis.pttl(BUNDLE) <= 3_600_000, "an hour, unless a run comes"
    long = driver.submit(plan_of("a"), "r-long", bundle="sha", keep=str(KEEP))
    short = driver.submit(plan_of("a"), "r-short", bundle="sha", keep="1000")
    assert redis.pttl(BUNDLE) == -1
    driver.runs.cancel(long, "enough")
    assert redis.pttl(BUNDLE) == -1
    driver.runs.cancel(short, "enough")
    assert redis.pttl(BUNDLE) > KEEP - 60_000, "the one that is kept longer decides"
    assert driver.resume(long) == "resumed"
    assert redis.pttl(BUNDLE) == -1
    assert driver.runs.bundle("sha") == b"packed"


def test_a_run_whose_bundle_is_gone_is_not_resumed(driver: Driver, redis: Redis) -> None:
    driver.runs.put_bundle("sha", b"packed")
    run = driver.submit(plan_of("a"), bundle="sha")
    driver.runs.cancel(run, "enough")
    with_plan = redis.hgetall(BUNDLE)
    redis.hdel(BUNDLE, "data")
    assert driver.resume(run) == "no bundle"
    redis.delete(BUNDLE)
    with pytest.raises(Conflict, match="the code of run r-1 is no longer in the store: submit the crew again"):
        driver.resume(run)
    assert driver.runs.get(run).status is RunStatus.cancelled
    assert not redis.exists(BUNDLE)
    redis.hset(BUNDLE, mapping=with_plan)
    assert driver.resume(run) == "resumed"


def test_events_are_numbered_in_one_sequence(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b: a"))
    driver.work()
    events = list(driver.runs.events(run))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.fields["commit_seq"] for event in events if event.type == "task_completed"] == ["1", "2"]


def test_a_task_that_gets_on_is_not_the_one_that_kills_its_workers(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    for known in range(3):
        for records in (False, True):
            claim = driver.take("a")["a"]
            if records:
                driver.task(claim).record_step(f"ask#{claim.token}", "1", replayed=known)
            driver.workers.reap("w0", process="p0", reason="its process died", max_attempts=3)
    assert driver.runs.get(run).status is RunStatus.running
    for _ in range(2):
        driver.take("a")
        driver.workers.reap("w0", process="p0", reason="its process died", max_attempts=3)
    record = driver.runs.get(run)
    assert record.status is RunStatus.failed
    assert "its worker died 3 times in a row without making progress" in record.error
    assert "its process died" in record.error
    assert (record.paid, record.recoveries) == (3, 8)


GPT = AccountKey("model", "A", "gpt")
LATE: dict[str, Callable[[ClaimedTask], Any]] = {
    "a step": lambda task: task.record_step("s#1", "1", replayed=0),
    "a call": lambda task: task.record_step("s#1", "1", replayed=0, entry=GPT, usage=Usage(5, 2)),
    "a call after others": lambda task: task.record_step("s#1", "1", replayed=Counters([GPT]), entry=GPT),
    "some": lambda task: task.record_steps([DoneStep("s#1", "1"), DoneStep("s#2", "2")], replayed=Counters([GPT])),
}


@pytest.mark.parametrize("what", LATE)
@pytest.mark.parametrize("there", ["", "journal", "ledger"])
def test_what_begins_after_its_run_is_over_goes_with_it(driver: Driver, what: str, there: str) -> None:
    """Whichever of journal and ledger is begun by it."""
    run = driver.submit(plan_of("fails", "slow", "other"))
    claims = driver.take()
    if there == "journal":
        driver.task(claims["slow"]).record_step("before#1", "1", replayed=0)
    elif there == "ledger":
        driver.task(claims["other"]).record_step("before#1", "1", replayed=0, entry=GPT)
        driver.redis.hset(f"{HOME}:run:{run}:ledger", '["main","slow","A","gpt"]', "[1,0,0,0,0,0]")
    driver.task(claims["fails"]).fail("it cannot be done", replayed=0)
    LATE[what](driver.task(claims["slow"]))
    assert driver.redis.exists(f"{HOME}:run:{run}:branch:main:journal:slow")
    assert driver.redis.exists(f"{HOME}:run:{run}:ledger") or what == "a step"
    assert all(0 < driver.redis.pttl(key) <= KEEP for key in left(driver.redis))


def test_what_is_recorded_while_a_run_goes_on_does_not_expire(driver: Driver) -> None:
    driver.submit(plan_of("a", "b", "c", "d"))
    for record, claim in zip(LATE.values(), driver.take().values(), strict=True):
        record(driver.task(claim))
    assert {driver.redis.pttl(key) for key in left(driver.redis)} == {-1}


def test_a_batch_is_kept_while_one_of_its_runs_goes_on(driver: Driver, redis: Redis) -> None:
    plan = plan_of("a")
    fields = {
        **{"crew": "many", "bundle": "", "plan": plan.digest, "queue": "jobs", "keep": str(KEEP), "inputs": "{}"},
        **{"envelope": DIRECT, "checkpoint_on": "", "max_checkpoints": "0"},
    }
    runs = [NewRun("r-1", 1, "{}"), NewRun("r-2", 2, "{}")]
    create = partial(Batches(redis).create, "b-1", plan, fields)

    def stays() -> bool:
        found = {redis.pttl(key) < 0 for key in left(redis, of=f"{HOME}:batch:b-1")}
        assert len(found) == 1
        return found.pop()

    create(runs)
    driver.runs.cancel("r-1", "enough")
    assert stays()
    driver.runs.cancel("r-2", "enough")
    assert not stays()
    assert create(runs) == ["exists", "exists"]
    assert not stays(), "nothing of it goes on"
    assert driver.resume("r-1") == "resumed"
    assert stays()
    driver.runs.cancel("r-1", "enough")
    assert not stays()
    assert create([*runs, NewRun("r-3", 3, "{}")]) == ["exists", "exists", "created"]
    assert stays()
