"""What a run leaves behind, and for how long; and the account and the events that it keeps."""

import pytest
from redis import Redis

from runner.core.errors import ClaimLost, Conflict, NotFound
from runner.core.states import RunStatus

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
