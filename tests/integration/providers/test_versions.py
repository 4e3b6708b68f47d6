"""Runs of several protocols in one store: who takes what, and what becomes of a run that a newer version works on."""

import json
from typing import Any

import pytest
from redis import Redis

from runner.core.jobs import Claim, Job, Refusal
from runner.providers.redis import keys
from runner.providers.redis.keys import name_of, queue_of, served
from runner.providers.redis.protocol import PROTOCOL

from .checks import job_of
from .driver import QUEUE, Driver, plan_of
from .others import refused, somebody_elses

OURS = queue_of(QUEUE)
ENVELOPE = 'RUN TASK\n{"run":"%s","task":"%s"}'
"""What a run of before has: its messages, to be filled in."""


def of_before(driver: Driver, *tasks: str, **options: str) -> str:
    """A run as a version of before has created it: without a number, its jobs in the queue that it served."""
    run = driver.submit(plan_of(*tasks), **options)
    driver.redis.hdel(keys.run_key(run), "protocol")
    if options.get("envelope", ENVELOPE):
        driver.redis.hset(keys.run_key(run), "envelope", ENVELOPE)
        driver.redis.hdel(keys.run_key(run), "direct")
    return run


def waiting(redis: Redis, queue: str) -> list[Job]:
    return [Job(*job_of(message)) for message in reversed(redis.lrange(queue, 0, -1))]


def test_a_job_of_a_newer_protocol_is_left_to_others(driver: Driver, clock: Any) -> None:
    run = driver.submit(plan_of("a"))
    driver.redis.hset(keys.run_key(run), "protocol", PROTOCOL + 1)
    for _ in range(3):
        (job,) = driver.jobs()
        assert driver.claim(job) == Refusal("newer")
        assert driver.states(run) == {"a": "delayed"}
        clock.go_on(1001)
        assert driver.workers.move_due() == 1
    # To who reads it, it is a job as any other
    driver.redis.hset(keys.run_key(run), "protocol", PROTOCOL)
    driver.work()
    assert driver.outputs(run) == {"a": "a()"}


def test_who_works_on_a_run_of_before_takes_it_along(driver: Driver) -> None:
    # Given a run of an older version, with three jobs in the queue that its workers serve
    run = of_before(driver, "a", "b", "c", "d: a b c")
    first, second, third = driver.jobs()
    # When one is claimed here
    claim = driver.claim(first)
    assert isinstance(claim, Claim)
    # Then the others are in our queue, as other attempts; the messages that the older ones have are worth nothing
    assert driver.redis.hmget(keys.run_key(run), "protocol", "queue") == [str(PROTOCOL), OURS]
    assert {job.task: job.attempt for job in waiting(driver.redis, OURS)} == {"b": 2, "c": 2}
    for message in driver.redis.lrange(OURS, 0, -1):
        assert json.loads(message)["properties"]["delivery_info"]["routing_key"] == OURS
    assert driver.redis.hmget(keys.run_key(run), "envelope", "direct") == ["", "1"]
    assert driver.claim(second) == driver.claim(third) == Refusal("taken")
    # And what comes after them is sent there
    driver.commit(claim)
    for job in driver.jobs(OURS):
        driver.commit(driver.claim(job))
    assert driver.outputs(run)["d"] == "d(a(), b(), c())"
    assert not list(driver.jobs())


@pytest.mark.parametrize("verb", ["fork", "resume", "answer"])
def test_who_steers_a_run_of_before_takes_it_along(driver: Driver, fork: Any, verb: str) -> None:
    run = of_before(driver, "a", "b: a", checkpoint_on=",*,")
    task = driver.task(driver.take()["a"])
    driver.redis.hdel(keys.run_key(run), "protocol")
    driver.redis.hset(keys.run_key(run), mapping={"queue": QUEUE, "envelope": ENVELOPE})
    driver.redis.hdel(keys.run_key(run), "direct")
    if verb == "fork":
        fork(run, inputs={"x": 1})
    elif verb == "resume":
        task.fail("no", replayed=0)
        driver.resume(run)
    else:
        task.ask("q#1", '"what?"', replayed=0)
        driver.runs.answer(run, "main", driver.runs.questions(run, "main")[0], '"that"')
    assert [job.task for job in waiting(driver.redis, OURS)] == ["a"]
    assert not waiting(driver.redis, QUEUE)


def resumed_before(driver: Driver, *tasks: str) -> None:
    """Resume with this plan as a version of before: it did not count what it set aside."""
    plan = plan_of(*tasks)
    assert driver.resume("r-1", plan=plan, fields={"plan": plan.digest}) == "resumed"
    driver.redis.hdel(keys.branch_key("r-1", "main"), "aside")


def test_a_question_is_waited_for_also_where_a_version_of_before_resumed(driver: Driver) -> None:
    run = driver.submit(plan_of("b"))
    driver.task(driver.take()["b"]).fail("no", replayed=0)
    resumed_before(driver, "b2")
    driver.task(driver.take("b2")["b2"]).ask("q#1", "{}", replayed=0)
    assert driver.runs.get(run).status.value == "waiting"


def test_what_a_version_of_before_set_aside_is_begun_again_as_any(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "x"))
    driver.runs.cancel(run, "enough")
    resumed_before(driver, "new", "x", "a: new", "d: a x")
    claims = driver.take("new", "x")
    driver.commit(claims["new"])
    for claim in (claims["x"], driver.take("a")["a"]):
        assert driver.runs.get(run).status.value == "running"
        driver.task(claim).ask("q#1", "{}", replayed=0)
    assert driver.runs.get(run).status.value == "waiting"


def test_what_is_sent_again_of_a_run_of_before_stays_with_workers_of_before(driver: Driver, clock: Any) -> None:
    run = of_before(driver, "a")
    (lost,) = driver.jobs()
    clock.go_on(5000)
    assert driver.workers.redeliver(1000) == 1
    assert list(driver.jobs()) == [lost]
    assert driver.redis.hmget(keys.run_key(run), "envelope", "direct") == [ENVELOPE, None]


def test_a_run_of_before_whose_broker_is_another_is_taken_along(driver: Driver) -> None:
    run = of_before(driver, "a", "b", envelope="")
    a, b = driver.workers.outbox()
    assert isinstance(driver.claim(a), Claim)
    assert driver.runs.field(run, "queue") == OURS
    assert driver.claim(b) == Refusal("taken")
    assert [(job.task, job.attempt) for job in driver.workers.outbox() if job.attempt > 1] == [("b", 2)]


def test_a_task_of_the_same_name_on_another_branch_is_taken_along_too(driver: Driver, fork: Any) -> None:
    run = of_before(driver, "a")
    first, *_ = driver.jobs()
    fork(run, branch="f")
    driver.redis.hdel(keys.run_key(run), "protocol")
    driver.redis.hset(keys.run_key(run), mapping={"queue": QUEUE, "envelope": ENVELOPE})
    driver.redis.hdel(keys.run_key(run), "direct")
    driver.redis.delete(OURS)
    (job,) = [job for job in [first] if job.branch == "main"]
    task = keys.key("task_key", branch_key=keys.branch_key(run, "main"), name="a")
    driver.redis.hset(task, "attempt", job.attempt)
    assert isinstance(driver.claim(job), Claim)
    assert [(job.branch, job.task) for job in waiting(driver.redis, OURS)] == [("f", "a")]


@pytest.mark.parametrize("envelope", [None, ""])
def test_a_run_that_cannot_be_taken_along_is_as_it_was(driver: Driver, envelope: str | None) -> None:
    of_before(driver, "a", "b", **({} if envelope is None else {"envelope": envelope}))
    first, *_ = driver.jobs() if envelope is None else driver.workers.outbox()
    to = OURS if envelope is None else keys.key("outbox_key", home=keys.home())
    with somebody_elses(driver, to), refused(driver):
        driver.claim(first)
    assert isinstance(driver.claim(first), Claim)


def test_queues_have_names_of_their_own() -> None:
    assert served("runner") == ["runner", f"runner:p{PROTOCOL}:runner", f"runner:t{PROTOCOL}:runner"]
    assert [name_of(queue) for queue in served("a:b c")] == ["a:b c"] * 3
