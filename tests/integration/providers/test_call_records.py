"""An author's step and a call of a model have scripts of their own, and several have one.

Each leaves what `record_step` leaves.
"""

import json
from typing import Any

import pytest
from redis import Redis

from runner.core.errors import ClaimLost
from runner.core.ledger import STEP, AccountKey, Usage, ledger_field
from runner.journal.recorder import BegunStep, DoneStep
from runner.providers.redis import keys
from runner.providers.redis.claimed_steps import ClaimedSteps
from runner.providers.redis.store import ClaimedTask

from .driver import Driver, plan_of

WRITER, OTHER = AccountKey("model", 'a "writer" / é \\ \x7f \x1f\n', "openai/m"), AccountKey("model", "", "m")
CALLS = [(WRITER, Usage(5, 2)), (OTHER, Usage()), (WRITER, Usage(7, 1, 3, 0, 0, 1)), (WRITER, Usage(1, 1, 0, 2, 1))]


def record(driver: Driver, run: str, calls: list[tuple[AccountKey, Usage]] = CALLS, *, reported: bool) -> ClaimedTask:
    driver.submit(plan_of("a"), run)
    task = driver.task(driver.take()["a"])
    for number, (entry, usage) in enumerate(calls):
        task.begin_step(entry)
        for _ in range(2):  # an answer that was lost is asked for again
            task.record_step(f"s#{number}", "1", replayed=0, entry=entry, usage=usage, reported=reported)
    return task


def record_together(driver: Driver, run: str, calls: list[tuple[AccountKey, Usage]], *, reported: bool) -> ClaimedTask:
    driver.submit(plan_of("a"), run)
    task = driver.task(driver.take()["a"])
    task.begin_steps([BegunStep(entry) for entry, _ in calls])
    done = [DoneStep(f"s#{number}", "1", entry, usage, reported) for number, (entry, usage) in enumerate(calls)]
    for _ in range(2):  # an answer that was lost is asked for again
        task.record_steps(done, replayed=0)
    return task


def left(redis: Redis, run: str) -> dict[str, Any]:
    """What is stored of the run, without what differs from run to run."""
    found: dict[str, Any] = {"ledger": redis.hgetall(keys.key("ledger_key", run=run))}
    fields = redis.hgetall(run)
    found["run"] = {k: v for k, v in fields.items() if k not in ("id", "created_at", "token", "envelope")}
    events = redis.xrange(keys.key("events_key", run=run))
    found["events"] = [
        entry | {"r": [] if entry["t"] == "\x01" else json.loads(entry["r"] or "[]")} for _, entry in events
    ]
    branch = keys.branch_key(fields["id"], "main")
    task = redis.hgetall(keys.key("task_key", branch_key=branch, name="a"))
    found["task"] = {k: v for k, v in task.items() if k not in ("token", "nonce", "claims", "began")}
    found["journal"] = redis.hgetall(keys.key("journal_key", branch_key=branch, name="a"))
    return found


@pytest.mark.parametrize("calls", [CALLS, CALLS[1:2]], ids=["tokens", "no tokens"])
@pytest.mark.parametrize("reported", [False, True])
def test_all_scripts_leave_the_same(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, reported: bool, calls: list[tuple[AccountKey, Usage]]
) -> None:
    by_its_own = record(driver, "r1", calls, reported=reported)
    monkeypatch.setattr(ClaimedSteps, "_record_call", lambda *_: 0)
    by_any = record(driver, "r2", calls, reported=reported)
    found, due = left(driver.redis, by_its_own._run), left(driver.redis, by_any._run)
    together = left(driver.redis, record_together(driver, "r3", calls, reported=reported)._run)
    for name in ("ledger", "journal", "events", "run", "task"):
        assert found[name] == due[name] == together[name]


@pytest.mark.parametrize("over", [False, True], ids=["running", "over"])
@pytest.mark.parametrize("before", ["nothing", "a crash", "a hand-over"])
def test_a_step_of_the_authors_own_leaves_the_same(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, before: str, over: bool
) -> None:
    def stored(run: str) -> dict[str, Any]:
        driver.submit(plan_of("a"), run)
        task = driver.task(driver.take()["a"])
        if before != "nothing":
            task.begin_step()
            task.record_step("s#0", "1", replayed=0)
            if before == "a crash":
                driver.workers.reap("w0", process="p0", reason="it died", max_attempts=9)
            else:
                task.release(replayed=0)
            task = driver.task(driver.take()["a"])
        for number, entry in enumerate([STEP, None, STEP]):
            if over and number == 1:  # the lifetime that the run's end gives its keys
                for key in (task._run, task._task, task._journal):
                    driver.redis.pexpire(key, 600_000)
            task.begin_step(*filter(None, [entry]))
            for _ in range(2):  # an answer that was lost is asked for again
                task.record_step(f"s#{number}", "1", replayed=0, entry=entry)
        expires = driver.redis.pttl(task._journal) > 0
        found = {**left(driver.redis, task._run), "expires": expires}
        task.commit("{}", [], replayed=0)
        return found

    by_its_own = stored("r1")
    monkeypatch.setattr(ClaimedSteps, "_record_own", lambda *_: 0)
    assert by_its_own == stored("r2")
    assert by_its_own["expires"] is over


def test_a_first_step_after_its_run_was_over_does_not_outlive_it(driver: Driver) -> None:
    driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    driver.redis.pexpire(task._run, 600_000)
    task.begin_step()
    task.record_step("s#1", "1", replayed=0)
    assert 0 < driver.redis.pttl(task._journal) <= 600_000


def test_who_lost_the_claim_records_no_call_and_the_run_says_so(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    task.begin_step(WRITER)
    driver.workers.reap("w0", process="p0", reason="it died", max_attempts=9)
    with pytest.raises(ClaimLost):
        task.record_step("s#1", "1", replayed=0, entry=WRITER, usage=Usage(5, 2))
    assert driver.runs.get(run).paid == 0
    assert [e for e in driver.redis.xrange(keys.key("events_key", run=task._run)) if e[1]["t"] == "write_refused"]


def test_a_ledger_that_is_none_is_refused_before_anything_is_written(driver: Driver) -> None:
    driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    ledger = keys.key("ledger_key", run=task._run)
    task.record_step("s#1", "1", replayed=0, entry=OTHER, usage=Usage(5, 2))
    (field,) = driver.redis.hkeys(ledger)
    driver.redis.hset(ledger, field, "no line")
    before = driver.redis.hgetall(task._run)
    with pytest.raises(Exception, match=r"record_call\.lua: ledger is not"):
        task.record_step("s#2", "1", replayed=0, entry=OTHER, usage=Usage(5, 2))
    assert driver.redis.hgetall(task._run) == before


def test_a_call_is_counted_in_the_line_that_scripts_count_in(redis: Redis) -> None:
    """Whatever stands in a name: a worker of an older version, and what is replayed or in doubt, count by a script."""
    names = [*map(chr, range(0x180)), "\u2028", "\ufffd", "\U0001f600", "a/b", '\\"', "\\/"]
    for number, name in enumerate(names):
        place = (name, f"t{name}", names[number - 1], f"{name}m{name}")
        assert ledger_field(*place) == redis.eval("return cjson.encode(ARGV)", 0, *place), place
