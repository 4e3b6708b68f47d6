"""A task of which one other waits is committed by a script of its own: all that is stored is as if by that for all."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim
from runner.core.output import dump
from runner.core.plan import THREAD, Plan, PlannedTask
from runner.journal.acknowledged_writes import Logs
from runner.providers.redis import keys, scripts, store
from runner.providers.redis.store import ClaimedTask

from .calls import contents
from .conftest import Clock
from .driver import Driver, plan_of, task_of
from .others import refused, somebody_elses

CHAIN = plan_of("a", "b: a", "c: b", "d: c")
TIMED = Plan("a crew", (PlannedTask("a"), PlannedTask("b", ("a",), None, 5.0), PlannedTask("c", ("b",), pool=THREAD)))

Before = Callable[[ClaimedTask], Any]

BEFORE: dict[str, Before] = {
    "nothing": lambda task: None,
    "a step": lambda task: task.record_step("s#1", "1", replayed=0),
    "an event": lambda task: task.append_event("agent_execution_completed", "a"),
}


def chain(driver: Driver, plan: Plan, before: Before, options: dict[str, str]) -> list[tuple[Claim | None, Any]]:
    """Do a run from task to task in one process; return the claims that came with its commits, and what is stored."""
    driver.submit(plan, **options)
    (claim,) = driver.take().values()
    found = list[tuple[Claim | None, Any]]()
    while True:
        task = driver.task(claim)
        before(task)
        for _ in range(2):  # an answer that was lost is asked for again
            task.commit(dump(claim.job.task, None), plan.dependents[claim.job.task], replayed=0, process="p0", ms=1)
        found.append((task.next, stored(driver)))
        if task.next is None:
            return found
        claim = task.next


def stored(driver: Driver) -> dict[Any, Any]:
    """All that is stored, without the times that the server gave the entries of streams."""
    return {
        key: ([one for _, one in value] if ":events" in str(key) else value, ttl)
        for key, (value, ttl) in contents(driver.redis).items()
    }


@pytest.mark.parametrize("plan", [CHAIN, TIMED], ids=["chain", "timed"])
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    "options",
    [{}, {"checkpoint_on": ",task_completed,", "max_checkpoints": "2"}, {"checkpoint_on": ",*,"}],
    ids=["", "newest", "all"],
)
def test_both_scripts_leave_the_same(
    driver: Driver, clock: Clock, monkeypatch: pytest.MonkeyPatch, plan: Plan, before: str, options: dict[str, str]
) -> None:
    monkeypatch.setattr(store, "stamp", lambda: "20260101T000000")
    monkeypatch.setattr(store, "_nonce", lambda how: "n" if how.get("process") else "")
    found = chain(driver, plan, BEFORE[before], options)
    driver.redis.flushall()
    clock.go_on(0)
    monkeypatch.setattr(ClaimedTask, "_commit_next", lambda *_: False)
    driver = Driver(driver.redis, driver.line)
    due = chain(driver, plan, BEFORE[before], options)
    assert len(found) == len(due)
    for one, other in zip(found, due, strict=True):
        assert one[0] == other[0]
        assert one[1] == other[1]


def test_it_commits_all_but_the_last(driver: Driver, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    of_all = list[str]()

    def noting(script: scripts.LuaScript, client: Any, **slots: Any) -> Any:
        of_all.extend([slots["key"]] if script.name == "commit" else [])
        return ask(script, client, **slots)

    ask = scripts.LuaScript.__call__
    monkeypatch.setattr(scripts.LuaScript, "__call__", noting)
    driver.submit(CHAIN)
    (claim,) = driver.take().values()
    while True:
        task = task_of(driver, logs, claim)
        if claim.job.task == "b":
            task.record_step("s#1", "1", replayed=0)
        task.commit(dump("done", None), CHAIN.dependents[claim.job.task], replayed=0, process="p0")
        if task.next is None:
            break
        claim = task.next
    assert of_all == ["d"]


def lost(driver: Driver) -> ClaimedTask:
    task = begin(driver, CHAIN)
    driver.workers.reap("w0", process="p0", reason="it died", max_attempts=5)
    return task


def in_doubt(driver: Driver) -> ClaimedTask:
    task = begin(driver, CHAIN)
    task.begin_step()
    return task


def of_an_agent(driver: Driver) -> ClaimedTask:
    task = begin(driver, CHAIN)
    task.append_event("agent_execution_started", "a", ends="agent_execution_error")
    return task


def pointed_into(driver: Driver) -> ClaimedTask:
    trigger = "tool_usage_finished"
    task = begin(driver, CHAIN, checkpoint_on=f",{trigger},")
    task.record_step("s#1", "1", replayed=0)
    task.append_event(trigger, "a", trigger=trigger)
    return task


def forgotten(driver: Driver) -> ClaimedTask:
    driver.submit(CHAIN)
    task = task_of(driver, Logs(1), driver.take()["a"])
    task.record_step("s#1", "1", replayed=0)
    driver.redis.delete(branch_part("journal_key", name="a"))
    return task


def beside_one_that_failed(driver: Driver) -> ClaimedTask:
    driver.submit(BESIDE)
    claims = driver.take()
    driver.task(claims["x"]).fail("no", replayed=0)
    return driver.task(claims["a"])


def beside_one_that_asks(driver: Driver) -> ClaimedTask:
    driver.submit(BESIDE)
    claims = driver.take()
    driver.task(claims["x"]).ask("s#1", "{}", replayed=0)
    return driver.task(claims["a"])


def on_a_branch_that_is_gone(driver: Driver) -> ClaimedTask:
    task = begin(driver, CHAIN)
    driver.redis.hdel(keys.branch_key("r-1", "main"), "left")
    return task


def done_again(driver: Driver) -> ClaimedTask:
    """What comes after it is there."""
    driver.submit(CHAIN)
    driver.work(limit=2)
    task = driver.task(driver.take()["c"])
    driver.redis.hdel(branch_part("outputs_key"), "a")
    task.fail("no", replayed=0)
    assert driver.resume("r-1") == "resumed"
    return driver.task(driver.take("a")["a"])


def before_one_that_is_aside(driver: Driver) -> ClaimedTask:
    """Of which the record is gone."""
    task = begin(driver, CHAIN)
    driver.redis.hset(keys.branch_key("r-1", "main"), "aside", 1)
    driver.redis.sadd(branch_part("open_key"), "b")
    return task


def before_one_in_flight(driver: Driver) -> ClaimedTask:
    task = begin(driver, CHAIN)
    driver.redis.hset(branch_part("task_key", name="b"), mapping={"state": "queued", "attempt": 3})
    return task


def committed(driver: Driver) -> ClaimedTask:
    """By somebody else."""
    task = begin(driver, CHAIN)
    driver.redis.hset(branch_part("outputs_key"), "a", '{"seq":1,"token":9,"raw":"theirs"}')
    return task


CASES = (
    *(lost, in_doubt, of_an_agent, pointed_into, forgotten, beside_one_that_failed, beside_one_that_asks),
    *(on_a_branch_that_is_gone, done_again, before_one_that_is_aside, before_one_in_flight, committed),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_both_scripts_leave_the_same_where_more_comes_of_it_or_less(
    driver: Driver,
    clock: Clock,
    nonces: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    case: Callable[[Driver], ClaimedTask],
) -> None:
    nonces.next = "n"
    monkeypatch.setattr(store, "stamp", lambda: "20260101T000000")

    def outcome(driver: Driver) -> Any:
        task = case(driver)
        key = task._claim.job.task
        unlocks = driver.runs.branch_plan("r-1", "main").dependents[key]
        try:
            said = task.commit(dump(key, None), unlocks, replayed=0, process="p0")
        except ClaimLost:
            said = "lost"
        return said, task.next, stored(driver)

    found = outcome(driver)
    driver.redis.flushall()
    clock.go_on(0)
    monkeypatch.setattr(ClaimedTask, "_commit_next", lambda *_: False)
    due = outcome(Driver(driver.redis, driver.line))
    for one, other in zip(found, due, strict=True):
        assert one == other


PARTS = ("events_key", "open_key", "claims_key", "checkpoints_key", "lineage_key", "commit_log_key", "outputs_key")


@pytest.mark.parametrize("part", PARTS)
def test_where_a_key_is_somebody_elses_nothing_is_done(driver: Driver, part: str) -> None:
    task = begin(driver, CHAIN)
    with somebody_elses(driver, branch_part(part)), refused(driver):
        task.commit(dump("done", None), CHAIN.dependents["a"], replayed=0, process="p0")
    task.commit(dump("done", None), CHAIN.dependents["a"], replayed=0, process="p0")
    assert task.next is not None


BESIDE = plan_of("a", "b: a", "x")


def begin(driver: Driver, plan: Plan, **options: str) -> ClaimedTask:
    """Its first task."""
    driver.submit(plan, **options)
    return driver.task(driver.take("a")["a"])


def branch_part(part: str, name: str = "") -> str:
    """A key of the run's, of its branch's, or of its worker's."""
    about = {"run": keys.run_key("r-1"), "branch_key": keys.branch_key("r-1", "main"), "name": name}
    about |= {"home": keys.home(), "worker": "w0"}
    return keys.key(part, **{slot: value for slot, value in about.items() if f"{{{slot}}}" in keys.TEMPLATES[part]})


def test_each_task_has_the_runs_inputs_whatever_the_one_before_made_of_them(driver: Driver) -> None:
    inputs = '{"of": {"all": 1}}'
    driver.submit(CHAIN, inputs=inputs)
    (claim,) = driver.take().values()
    claim.inputs["of"]["all"] = 2
    task = driver.task(claim)
    task.commit(dump("done", None), CHAIN.dependents["a"], replayed=0, process="p0")
    assert task.next is not None
    assert task.next.inputs == {"of": {"all": 1}}
    assert task.next.context["a"]["raw"] == "done"


def test_a_claim_of_before_a_resume_is_given_all_that_is_new(driver: Driver) -> None:
    """Its task never stopped while its branch was over; the code of what follows is the new one."""
    plan = plan_of("a", "b", "c: a")
    driver.runs.put_bundle("old", b"packed")
    run = driver.submit(plan, bundle="old")
    claims = driver.take()
    driver.task(claims["b"]).fail("no", replayed=0)
    driver.runs.put_bundle("new", b"packed")
    record = driver.runs.get(run)
    assert driver.runs.resume(record, "main", start=None, fields={"bundle": "new"}, plan=None) == "resumed"
    task = driver.task(claims["a"])
    task.commit(dump("done", None), plan.dependents["a"], replayed=0, process="p0")
    assert task.next is not None
    assert (task.next.job.task, task.next.bundle) == ("c", "new")


def test_one_whose_answer_is_lost_is_not_taken_for_a_lost_claim_where_steps_were_noted(driver: Driver) -> None:
    task = begin(driver, CHAIN)
    task.begin_step()
    task.record_step("s#1", "1", replayed=0)
    driver.line.lose = 1
    assert task.commit(dump("done", None), CHAIN.dependents["a"], replayed=0, process="p0", ms=1) == "running"
    assert task.next is not None
    assert task.next.job.task == "b"
