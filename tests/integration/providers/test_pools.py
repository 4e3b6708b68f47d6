"""Tasks that mostly wait have a queue of their own, beside that of the others: each message of one goes there."""

import pytest

from runner.core.jobs import Claim, Job
from runner.core.plan import THREAD, Plan, PlannedTask, queue_for
from runner.providers.memory import MemoryStore
from runner.providers.redis import keys, lost_messages
from runner.providers.redis.keys import queue_of, served
from runner.providers.redis.store import return_job

from .conftest import Clock
from .driver import QUEUE, Driver

OTHERS = queue_of(QUEUE)
WAITING = queue_for(OTHERS, THREAD)

PLAN = Plan(
    "a crew",
    (
        PlannedTask("a"),
        PlannedTask("b", ("a",), pool=THREAD),
        PlannedTask("c", ("a",)),
        PlannedTask("d", ("b", "c"), pool=THREAD),
    ),
)
OLD = 1000


def sent(driver: Driver, queue: str) -> list[str]:
    """The tasks whose messages are taken from a queue."""
    return [job.task for job in driver.jobs(queue)]


def only(driver: Driver, queue: str) -> Job:
    (job,) = driver.jobs(queue)
    return job


def test_each_worker_serves_the_queues_of_its_pools() -> None:
    assert served(QUEUE) == [QUEUE, OTHERS, WAITING]
    assert served(QUEUE, ["process"]) == [QUEUE, OTHERS]
    assert served(QUEUE, [THREAD]) == [WAITING]


def test_a_commit_sends_each_task_to_its_queue(driver: Driver) -> None:
    driver.submit(PLAN, queue=OTHERS)
    claim = driver.claim(only(driver, OTHERS))
    assert isinstance(claim, Claim)
    driver.commit(claim)
    assert (sent(driver, WAITING), sent(driver, OTHERS)) == (["b"], ["c"])


def test_what_is_ready_at_first_and_what_is_resumed_does(driver: Driver) -> None:
    run = driver.submit(Plan("a crew", (PlannedTask("a", pool=THREAD), PlannedTask("b"))), queue=OTHERS)
    assert sent(driver, OTHERS) == ["b"]
    claim = driver.claim(only(driver, WAITING))
    assert isinstance(claim, Claim)
    driver.task(claim).fail("it broke", replayed=0)
    assert driver.resume(run) == "resumed"
    job = only(driver, WAITING)
    assert (job.task, sent(driver, OTHERS)) == ("a", ["b"])
    again = driver.claim(job)
    assert isinstance(again, Claim)
    driver.task(again).release(replayed=0)
    assert sent(driver, WAITING) == ["a"]


@pytest.mark.parametrize("end", ["release", "retry", "reap", "lost with all others", "lost among others", "returned"])
def test_whatever_sends_it_again(end: str, driver: Driver, clock: Clock) -> None:
    alone = Plan("a crew", (PlannedTask("a", pool=THREAD),))
    driver.submit(alone, queue=OTHERS)
    job = only(driver, WAITING)
    if end == "lost among others":
        driver.submit(alone, "r-2", queue=OTHERS)
        assert lost_messages.missing(driver.redis, driver.workers.home) == {job}
        return_job(driver.redis, job)
        assert [one.run_id for one in driver.jobs(WAITING)] == ["r-2", "r-1"]
        return
    if end == "lost with all others":
        clock.go_on(OLD)
        assert driver.workers.redeliver(OLD) == 1
    elif end == "returned":
        return_job(driver.redis, job)
    else:
        claim = driver.claim(job)
        assert isinstance(claim, Claim)
        if end == "release":
            driver.task(claim).release(replayed=0)
        elif end == "retry":
            driver.task(claim).retry(0.5, "it broke", replayed=0)
            clock.go_on(OLD)
            assert driver.workers.move_due() == 1
        else:
            driver.workers.reap("w0", reason="it died", max_attempts=5)
    assert (sent(driver, WAITING), sent(driver, OTHERS)) == (["a"], [])


def test_the_last_attempt_of_one_whose_worker_died_each_time_is_made_by_a_process_of_its_own(driver: Driver) -> None:
    driver.submit(Plan("a crew", (PlannedTask("a", pool=THREAD),)), queue=OTHERS)
    for _ in range(3):
        assert isinstance(driver.claim(only(driver, WAITING)), Claim)
        driver.workers.reap("w0", process="p0", reason="it died", max_attempts=4)
    claim = driver.claim(only(driver, OTHERS))
    assert isinstance(claim, Claim)
    driver.task(claim).fail("it broke", replayed=0)
    assert driver.resume("r-1") == "resumed"
    assert sent(driver, WAITING) == ["a"]


def test_the_outbox_goes_to_it(driver: Driver) -> None:
    run = driver.submit(PLAN, queue=OTHERS, envelope="")
    (job,) = driver.workers.outbox()
    assert driver.workers.queue(job) == OTHERS
    claim = driver.claim(job)
    assert isinstance(claim, Claim)
    driver.workers.sent(job)
    driver.commit(claim)
    assert {job.task: driver.workers.queue(job) for job in driver.workers.outbox()} == {"b": WAITING, "c": OTHERS}
    assert driver.redis.hget(keys.run_key(run), "queue") == OTHERS


def test_the_store_in_memory_does_the_same() -> None:
    store = MemoryStore()
    plan = Plan("a crew", (PlannedTask("a", pool=THREAD), PlannedTask("b")))
    fields = {"crew": plan.crew, "adapter": "native", "bundle": "", "module": "crew", "attr": "crew", "queue": OTHERS}
    fields |= {"plan": plan.digest, "inputs": "{}", "keep": "60000", "envelope": "its own", "checkpoint_on": ""}
    assert store.runs.create("r-1", plan, {**fields, "max_checkpoints": "0"}) == "created"
    taken = {queue: store.workers.take([queue]) for queue in (WAITING, OTHERS)}
    assert {queue: job and job.task for queue, job in taken.items()} == {WAITING: "a", OTHERS: "b"}
    store.workers.beat("w0", 5000, "{}")
    assert isinstance(store.claim(taken[WAITING], worker="w0", process="p0"), Claim)
    store.workers.reap("w0", process="p0", reason="it died", max_attempts=2)
    assert store.workers.take([WAITING]) is None
    last = store.workers.take([OTHERS])
    assert last is not None
    assert (last.task, last.attempt) == ("a", 2)
