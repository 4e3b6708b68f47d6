"""Messages get lost; jobs do not."""

import base64
import json
from collections.abc import Iterator
from functools import partial
from threading import Thread

import pytest

from runner.core.jobs import Claim, Job, Refusal
from runner.core.plan import Plan
from runner.core.settings import WorkerSettings
from runner.core.states import RunStatus
from runner.providers.memory import MemoryBroker
from runner.providers.redis import keys, lost_messages
from runner.providers.redis.connection import connect
from runner.providers.redis.envelope import read_message
from runner.providers.redis.store import return_job
from runner.tasks.supervisor import Supervisor
from runner.testing import RedisServer, eventually

from .checks import job_of
from .conftest import Clock
from .driver import LEASE, QUEUE, Driver, plan_of

WIDE = plan_of(*(f"t{i}" for i in range(8)))
LONG = plan_of(*(f"{'a name over which the index of jobs gets long, ' * 2}{i}" for i in range(8)))
OLD = 1000


@pytest.mark.parametrize("plan", [WIDE, LONG], ids=["short", "long"])
def test_what_was_lost_with_a_queue_comes_back_at_once(driver: Driver, clock: Clock, plan: Plan) -> None:
    driver.submit(plan)
    driver.redis.delete(QUEUE)
    assert driver.workers.redeliver(OLD) == 0, "they were sent just now"
    clock.go_on(OLD)
    assert driver.workers.redeliver(OLD) == 8
    assert {job.task for job in driver.jobs()} == plan.by_key.keys()


def test_a_queue_that_is_not_empty_is_believed(driver: Driver, clock: Clock) -> None:
    driver.submit(WIDE)
    driver.redis.rpop(QUEUE)
    clock.go_on(OLD)
    assert driver.workers.redeliver(OLD) == 0
    for job in driver.jobs():
        driver.commit(driver.claim(job))
    clock.go_on(OLD)
    assert driver.workers.redeliver(OLD) == 1


def test_messages_of_others_hide_none_that_is_lost(driver: Driver, clock: Clock) -> None:
    # Given a queue with a message of another program, one of another kind, and a job's as kombu sends it
    driver.submit(WIDE)
    lost, sent = driver.redis.rpop(QUEUE), json.loads(driver.redis.rpop(QUEUE))
    sent["body"] = base64.b64encode(sent["body"].encode()).decode()
    sent["properties"]["body_encoding"] = "base64"
    driver.redis.lpush(
        QUEUE, json.dumps(sent), "no JSON", '{"headers": {"task": "other"}, "body": "", "properties": []}', "[]"
    )
    clock.go_on(OLD)
    given = read_message(lost).arguments
    # Then what is missing is the one that was lost
    assert lost_messages.missing(driver.redis, keys.home()) == {
        Job(given["run"], given["branch"], given["task"], given["attempt"])
    }


def test_a_queue_that_nobody_serves_hides_no_other(driver: Driver, clock: Clock) -> None:
    driver.submit(WIDE, "r-unserved", queue="unserved")
    clock.go_on(1)
    driver.submit(plan_of("a"), "r-lost")
    driver.redis.delete(QUEUE)
    clock.go_on(OLD)
    assert [driver.workers.redeliver(OLD, limit=4) for _ in range(4)] == [0, 0, 1, 0]
    assert [job.run_id for job in driver.jobs()] == ["r-lost"]


@pytest.mark.parametrize("plan", [WIDE, LONG], ids=["short", "long"])
def test_a_message_lost_from_among_others_is_missed(driver: Driver, plan: Plan) -> None:
    driver.submit(plan)
    assert lost_messages.missing(driver.redis, keys.home()) == set()
    lost = Job(*job_of(driver.redis.rpop(QUEUE)))
    assert lost_messages.missing(driver.redis, keys.home()) == {lost}
    return_job(driver.redis, lost)
    assert lost_messages.missing(driver.redis, keys.home()) == set()
    assert Job(*job_of(driver.redis.lindex(QUEUE, 0))) == lost


def test_a_needless_copy_does_nothing(driver: Driver, clock: Clock) -> None:
    run = driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    clock.go_on(OLD)
    assert driver.workers.redeliver(OLD) == 1
    claim = driver.claim(job)
    assert isinstance(claim, Claim)
    (copy,) = driver.jobs()
    assert copy == job
    assert driver.claim(copy) == Refusal("taken")
    driver.commit(claim)
    assert driver.claim(copy) == Refusal("completed")
    assert len(driver.events(run, "task_started")) == 1


def test_a_message_that_is_out_of_date_is_not_sent_on(driver: Driver) -> None:
    driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    return_job(driver.line, job)
    assert list(driver.jobs()) == [job], "it was still wanted"
    driver.task(driver.claim(job)).release(replayed=0)
    (second,) = driver.jobs()
    return_job(driver.line, job)
    assert list(driver.jobs()) == []
    return_job(driver.line, second)
    assert list(driver.jobs()) == [second]


def test_a_job_refused_for_want_of_a_lease_is_sent_again(driver: Driver, clock: Clock) -> None:
    driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    assert driver.claim(job, worker="never registered") == Refusal("unregistered")
    clock.go_on(OLD)
    assert driver.workers.redeliver(OLD) == 1


@pytest.fixture
def elsewhere(driver: Driver) -> Iterator[str]:
    """A run whose jobs go to a broker that is not this Redis."""
    yield driver.submit(plan_of("a", "b: a"), envelope="")
    assert not driver.redis.exists(QUEUE)


def test_another_broker_gets_jobs_until_it_is_said_that_it_has_them(driver: Driver, elsewhere: str) -> None:
    (job,) = driver.workers.outbox()
    assert driver.workers.outbox() == [job], "who took it may have died before sending it"
    driver.workers.sent(job)
    assert driver.workers.outbox() == []
    driver.commit(driver.claim(job))
    assert [job.task for job in driver.workers.outbox()] == ["b"]


@pytest.mark.parametrize(
    "about", ['{"server": "another", "client_id": 1}', '{"pid": 1}'], ids=["another", "none named"]
)
def test_the_supervisor_hands_them_to_its_broker(
    driver: Driver, elsewhere: str, server: RedisServer, about: str
) -> None:
    (job,) = driver.workers.outbox()
    for worker in ("w0", "w1"):
        driver.workers.beat(worker, LEASE, about)
    broker = MemoryBroker()
    one = Supervisor(partial(connect, server.url, single=True), "s", WorkerSettings(), broker)
    thread = Thread(target=one.run)
    thread.start()
    try:
        eventually(lambda: broker.depth(QUEUE), why="it is sent")
    finally:
        one.stop()
        thread.join()
    assert list(broker.queues[QUEUE]) == [job]
    assert driver.workers.outbox() == []


def test_another_broker_may_lose_them_too(driver: Driver, elsewhere: str, clock: Clock) -> None:
    for _ in range(2):
        (job,) = driver.workers.outbox()
        driver.workers.sent(job)
        clock.go_on(OLD)
        assert driver.workers.redeliver(OLD) == 1
        (again,) = driver.workers.outbox()
        assert again == job
        driver.workers.sent(again)
        driver.commit(driver.claim(again))
    assert driver.runs.get(elsewhere).status is RunStatus.completed


def test_another_broker_is_asked_how_many_wait(driver: Driver, elsewhere: str, clock: Clock) -> None:
    (job,) = driver.workers.outbox()
    driver.workers.sent(job)
    asked: list[str] = []
    left = [3, 1, 0, 0]

    def depth(queue: str) -> int:
        asked.append(queue)
        return left[len(asked) - 1]

    for sent in (0, 0, 1, 0):  # and then the one that was sent has twice the time
        clock.go_on(OLD)
        assert driver.workers.redeliver(OLD, depth=depth) == sent
    assert asked == [QUEUE] * 3
    assert driver.workers.outbox() == [job]
    assert len(driver.events(elsewhere, "job_resent")) == 1


def test_the_next_attempt_waits_for_no_copies_of_the_one_before(driver: Driver, elsewhere: str, clock: Clock) -> None:
    for _ in range(2):
        (job,) = driver.workers.outbox()
        driver.workers.sent(job)
        clock.go_on(OLD)
        assert driver.workers.redeliver(OLD) == 1, elsewhere
        driver.workers.sent(job)
        clock.go_on(OLD)
        assert driver.workers.redeliver(OLD) == 0, "it has twice the time"
        claim = driver.claim(job)
        assert isinstance(claim, Claim)
        driver.task(claim).release(replayed=0)


@pytest.mark.parametrize("first", ["", None])
def test_two_brokers_may_have_a_queue_of_one_name(driver: Driver, clock: Clock, first: str | None) -> None:
    for envelope in (first, None if first == "" else ""):
        driver.submit(plan_of("a"), f"r-{envelope}", **({} if envelope is None else {"envelope": envelope}))
        clock.go_on(1)
    (job,) = driver.workers.outbox()
    driver.workers.sent(job)
    driver.redis.delete(QUEUE)
    clock.go_on(OLD)
    assert driver.workers.redeliver(OLD, depth=lambda queue: 3) == 1
    assert [job.run_id for job in driver.jobs()] == ["r-None"]
    assert driver.workers.outbox() == []


def test_another_broker_is_asked_once_for_each_queue(driver: Driver, clock: Clock) -> None:
    driver.submit(WIDE, envelope="")
    for job in driver.workers.outbox():
        driver.workers.sent(job)
    asked: list[str] = []
    clock.go_on(OLD)
    assert driver.workers.redeliver(OLD, depth=lambda queue: asked.append(queue)) == 8
    assert asked == [QUEUE]


def test_what_is_lost_here_again_and_again_is_sent_as_soon_each_time(driver: Driver, clock: Clock) -> None:
    driver.submit(plan_of("a"))
    for _ in range(3):
        driver.redis.delete(QUEUE)
        clock.go_on(OLD)
        assert driver.workers.redeliver(OLD) == 1


@pytest.mark.parametrize("why", ["it is claimed", "its branch is over"])
def test_what_nobody_waits_for_is_not_sent_again(driver: Driver, clock: Clock, why: str) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    queued = keys.key("queued_key", home=keys.home())
    driver.redis.zadd(queued, {claim.job.ref: 0})
    if why == "its branch is over":
        driver.runs.cancel(run, "enough")
        task = keys.key("task_key", branch_key=keys.branch_key(run, "main"), name="a")
        driver.redis.hset(task, "state", "queued")
    clock.go_on(OLD)
    assert driver.workers.redeliver(OLD) == 0
    assert (driver.redis.exists(queued), list(driver.jobs())) == (0, [])
