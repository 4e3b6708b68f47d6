"""A process that continues takes from its queue only what a claim would give it without a word: all else stays."""

import json
from typing import Any

import pytest

from runner.core.jobs import Claim
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Expansion
from runner.providers.redis import keys
from runner.providers.redis.store import ClaimedTask

from .calls import contents
from .driver import QUEUE, Driver, plan_of
from .others import somebody_elses


@pytest.fixture
def task(driver: Driver) -> ClaimedTask:
    """The last of its run; and a job of another run waits."""
    driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    driver.submit(plan_of("x"), "r-2", checkpoint_on=",*,")
    return task


def commit(task: ClaimedTask) -> str:
    return task.commit('{"raw":"a"}', (), replayed=0, process="p1", queue=QUEUE)


def changed(message: str, **headers: str) -> str:
    found = json.loads(message)
    found["headers"] |= headers
    return json.dumps(found)


OTHERS: dict[str, Any] = {
    "no message": lambda message: "hello",
    "of another program": lambda message: changed(message, task="add"),
    "without what it is about": lambda message: json.dumps(json.loads(message) | {"body": "[[], {}, {}]"}),
    "of a run that is gone": lambda message: message.replace("r-2", "r-3"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_message_of_another_is_left_to_who_receives_messages(driver: Driver, task: ClaimedTask, what: str) -> None:
    (message,) = driver.redis.lrange(QUEUE, 0, -1)
    driver.redis.lset(QUEUE, 0, other := OTHERS[what](message))
    assert commit(task) == "completed"
    assert task.next is None
    assert driver.redis.lrange(QUEUE, 0, -1) == [other]
    assert driver.states("r-2") == {"x": "queued"}


def test_a_job_of_a_version_of_before_is_left_to_a_claim(driver: Driver, task: ClaimedTask) -> None:
    """That sends on what else waits of its run."""
    driver.redis.hdel(keys.run_key("r-2"), "protocol")
    commit(task)
    assert task.next is None
    assert driver.redis.llen(QUEUE) == 1


def test_a_job_of_a_branch_that_does_not_run_is_left_to_a_claim(driver: Driver, task: ClaimedTask) -> None:
    """A resume by a version of before left questions counted of tasks that are done again."""
    driver.redis.hset(keys.branch_key("r-2", "main"), "status", "waiting")
    commit(task)
    assert task.next is None
    assert driver.redis.llen(QUEUE) == 1


def test_who_is_of_a_version_of_before_continues_with_nothing_that_it_made_ready(driver: Driver) -> None:
    driver.submit(plan_of("a", "b: a"))
    claim = driver.take()["a"]
    driver.redis.hdel(keys.run_key("r-1"), "protocol")
    task = driver.task(claim)
    task.commit('{"raw":"a"}', driver.runs.plan("r-1").dependents["a"], replayed=0, process="p1")
    assert task.next is None
    assert driver.states("r-1") == {"b": "queued"}


def part(name: str) -> str:
    branch, run = keys.branch_key("r-2", "main"), keys.run_key("r-2")
    about = {"run": run, "branch_key": branch, "name": "x", "home": keys.home(), "worker": "w0"}
    template = keys.TEMPLATES[name]
    return keys.key(name, **{slot: value for slot, value in about.items() if f"{{{slot}}}" in template})


@pytest.mark.parametrize(
    "broken", ["events_key", "checkpoints_key", "lineage_key", "journal_key", "task_key", "queued_key"]
)
def test_a_job_of_a_run_that_cannot_be_written_to_is_left_there(driver: Driver, task: ClaimedTask, broken: str) -> None:
    """It is no reason to refuse the commit."""
    message = driver.redis.lrange(QUEUE, 0, -1)
    with somebody_elses(driver, part(broken)):
        before = {key: value for key, value in contents(driver.redis).items() if ":r-2" in key}
        assert commit(task) == "completed"
        assert task.next is None
        assert {key: value for key, value in contents(driver.redis).items() if ":r-2" in key} == before
        assert driver.redis.lrange(QUEUE, 0, -1) == message


def test_who_keeps_no_checkpoints_is_taken_whatever_stands_there(driver: Driver) -> None:
    driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    driver.submit(plan_of("x"), "r-2", checkpoint_on=",task_completed,")
    with somebody_elses(driver, part("checkpoints_key")):
        commit(task)
        assert task.next is not None
        assert task.next.job.run_id == "r-2"


def test_who_did_not_hear_what_its_commit_took_is_told_again(driver: Driver, task: ClaimedTask) -> None:
    """Of all that its worker holds by now, that which came with this commit."""
    driver.submit(plan_of("y"), "r-3")
    waits, job = driver.redis.rpop(QUEUE), next(driver.jobs())
    assert isinstance(driver.claim(job), Claim)
    driver.redis.rpush(QUEUE, waits)
    driver.line.lose = 1
    commit(task)
    assert task.next is not None
    assert task.next.job.run_id == "r-2"
    assert driver.states("r-2") == {"x": "running"}


def test_a_task_of_a_plan_that_grows_counts_what_it_brings(driver: Driver) -> None:
    """So much is kept of the run's events."""
    run = driver.submit(Plan("grows", (PlannedTask("a"),), grows={"name": "F", "methods": []}))
    grown = Expansion('{"raw":"a"}', (PlannedTask("b"), PlannedTask("c")))
    driver.task(driver.take()["a"]).expand(grown, "", replayed=0)
    assert driver.redis.hget(keys.run_key(run), "tasks") == "3"
