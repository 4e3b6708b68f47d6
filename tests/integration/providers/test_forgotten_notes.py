"""A store that went back in time and forgot what was under way, or that it was counted: it is in doubt, once."""

from collections.abc import Callable
from typing import Any

import pytest

from runner.core.jobs import Claim
from runner.core.ledger import STEP, AccountKey, text_of_one
from runner.journal.acknowledged_writes import Logs
from runner.providers.redis.restored_store import LostWrites
from runner.providers.redis.store import ClaimedTask

from .driver import Driver, plan_of, task_of

GPT = AccountKey("model", "A", "gpt")


def commit(driver: Driver, task: ClaimedTask) -> None:
    task.commit('{"raw": "a"}', (), replayed=0)


def release(driver: Driver, task: ClaimedTask) -> None:
    task.release(replayed=0)


def hold(driver: Driver, task: ClaimedTask) -> None:
    """It goes on."""


@pytest.mark.parametrize("when", ["before the store goes back", "after it"])
def test_a_step_whose_note_the_store_forgot_is_in_doubt_when_its_process_dies(
    server: Any, driver: Driver, logs: Logs, backup: Callable[[str], Any], when: str
) -> None:
    """Nothing but the note was forgotten: it is noted again, and whoever takes the claim back counts it."""
    run = driver.submit(plan_of("a"))
    task = task_of(driver, logs, driver.take("a")["a"])
    before = backup(server.url)
    task.begin_step(GPT)
    task.note("log", "what was begun has come to the store")
    if when == "before the store goes back":
        driver.workers.reap("w0", process="p0", reason="it died", max_attempts=5)
        assert driver.runs.get(run).ledger["in_doubt"] == 1
    before.restore()
    for _ in range(2):
        LostWrites("w0")(driver.redis, logs.claims)
    assert driver.runs.get(run).ledger["in_doubt"] == 0
    driver.workers.reap("w0", process="p0", reason="it died", max_attempts=5)
    assert driver.runs.get(run).ledger["in_doubt"] == 1


def reaped(driver: Driver, claim: Claim) -> None:
    driver.workers.reap("w0", process="p0", reason="it died", max_attempts=5)


def reaped_whole(driver: Driver, claim: Claim) -> None:
    driver.workers.reap("w0", reason="its lease lapsed", max_attempts=5)
    driver.workers.beat("w0", 5000, "{}")


def taken_back(driver: Driver, claim: Claim) -> None:
    (held,) = driver.workers.beat("w0", 5000).claims
    assert driver.workers.take_back("w0", held, reason="no process performs it")


@pytest.mark.parametrize("then", [None, hold, release, commit])
@pytest.mark.parametrize("given_up", [reaped, reaped_whole, taken_back])
def test_a_step_whose_note_the_store_forgot_is_in_doubt_where_its_claim_was_given_up_before_anybody_looked(
    server: Any, driver: Driver, clock: Any, logs: Logs, backup: Callable[[str], Any],
    given_up: Callable[[Driver, Claim], None], then: Callable[[Driver, ClaimedTask], None] | None,
) -> None:  # fmt: skip
    """Nothing but the note was forgotten, and nothing in the store says so."""
    run = driver.submit(plan_of("a", "b"))
    claim = driver.take("a")["a"]
    task = task_of(driver, logs, claim)
    task.record_step("zero", "0", replayed=0)
    before = backup(server.url)
    task.begin_step(GPT)
    before.restore()
    clock.go_on(1)
    given_up(driver, claim)
    assert driver.runs.get(run).ledger["in_doubt"] == 0
    if then is not None:
        again = driver.claim(next(job for job in driver.jobs() if job.task == "a"), "w1", "p1")
        driver.task(again).record_step("one", "1", replayed=1, entry=GPT)
        then(driver, driver.task(again))
    for _ in range(2):
        LostWrites("w0")(driver.redis, logs.claims)
    assert driver.runs.get(run).ledger["in_doubt"] == 1


def test_a_step_that_was_refused_and_counted_is_counted_again_where_the_store_forgot_that(
    server: Any, driver: Driver, logs: Logs, backup: Callable[[str], Any]
) -> None:
    """Its claim was given up before the store went back."""
    run = driver.submit(plan_of("a", "b"))
    task = task_of(driver, logs, driver.take("a")["a"])
    task.begin_step()
    task.record_step("zero", "0", replayed=0)
    driver.workers.reap("w0", process="p0", reason="it was slow", max_attempts=5)
    before = backup(server.url)
    task.begin_step()
    driver.line.execute_command("PING")
    assert driver.runs.get(run).ledger["in_doubt"] == 1
    before.restore()
    for _ in range(2):
        LostWrites("w0")(driver.redis, logs.claims)
    assert driver.runs.get(run).ledger["in_doubt"] == 1


@pytest.mark.parametrize("since", [None, taken_back])
def test_a_step_that_was_broken_off_when_its_attempt_ended_is_in_doubt_where_the_store_forgot_that(
    server: Any, driver: Driver, clock: Any, logs: Logs, backup: Callable[[str], Any],
    since: Callable[[Driver, Claim], None] | None,
) -> None:  # fmt: skip
    """Its time was up in the midst of it."""
    run = driver.submit(plan_of("a", "b"))
    claim = driver.take("a")["a"]
    task = task_of(driver, logs, claim)
    before = backup(server.url)
    task.begin_step(GPT)
    task.retry(1.0, "its time was up", replayed=0)
    assert driver.runs.get(run).ledger["in_doubt"] == 1
    before.restore()
    clock.go_on(1)
    for give_up in (since, None if since else taken_back):
        if give_up:
            give_up(driver, claim)
        for _ in range(2):
            LostWrites("w0")(driver.redis, logs.claims)
    assert driver.runs.get(run).ledger["in_doubt"] == 1


def test_what_was_seen_to_is_counted_once(driver: Driver, logs: Logs) -> None:
    """A store that has all is believed, though a process has not heard all of it, or did not live to."""
    run = driver.submit(plan_of("recorded", "refused", "held"))
    tool = AccountKey("tool")
    claims = driver.take()
    # Given a process that dies before it hears of its last record
    told = logs.log(1).claimed(claims["recorded"].job.ref, claims["recorded"].token)
    driver.task(claims["recorded"]).record_step("one", "1", replayed=0)
    told.began(text_of_one(STEP))
    # And one whose claim is lost, with a step under way, and another that begins
    refused = task_of(driver, logs, claims["refused"])
    refused.begin_step(GPT)
    # And a call that never left, and a tool
    held = task_of(driver, logs, claims["held"])
    held.begin_step(GPT)
    held.begin_step(tool)
    out = {"p0": f"{claims['held'].token} {text_of_one(tool)}"}
    driver.workers.reap("w0", process="p0", reason="it was slow", max_attempts=5, out=out)
    refused.begin_step()
    driver.line.execute_command("PING")
    in_doubt = driver.runs.get(run).ledger["in_doubt"]
    assert (in_doubt, driver.runs.get(run).tools_in_doubt) == (2, 1)
    # When its worker looks
    for _ in range(2):
        LostWrites("w0")(driver.redis, logs.claims)
    # Then it finds nothing
    assert driver.runs.get(run).ledger["in_doubt"] == in_doubt
    assert driver.events(run, "store_rewound") == []


def test_what_ends_while_a_worker_looks_is_in_no_doubt(driver: Driver, logs: Logs) -> None:
    """The memory was read before a step failed, and its task was handed back."""
    run = driver.submit(plan_of("a"))
    task = task_of(driver, logs, driver.take("a")["a"])
    task.begin_step(GPT)
    read = [logs.claims()]
    task.drop_step(GPT)
    task.retry(0, "it failed", replayed=0)
    LostWrites("w0")(driver.redis, lambda: read.pop() if read else logs.claims())
    assert driver.runs.get(run).ledger["in_doubt"] == 0
    assert driver.events(run, "store_rewound") == []


def test_what_was_recorded_since_the_memory_was_read_is_not_noted_again(driver: Driver, logs: Logs) -> None:
    """Else the commit would count it as broken off."""
    run = driver.submit(plan_of("a"))
    task = task_of(driver, logs, driver.take("a")["a"])
    task.begin_step(GPT)
    read = logs.claims()
    task.record_step("one", "1", replayed=0, entry=GPT)
    LostWrites("w0")(driver.redis, lambda: read)
    commit(driver, task)
    assert driver.runs.get(run).ledger["in_doubt"] == 0
