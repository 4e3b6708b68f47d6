"""A task of which one other waits is committed by a script of its own: all that is stored is as if by that for all."""

from collections.abc import Callable
from typing import Any

import pytest

from runner.core.jobs import Claim
from runner.core.output import dump
from runner.core.plan import Plan, PlannedTask
from runner.providers.redis import scripts, store
from runner.providers.redis.store import ClaimedTask

from .calls import contents
from .conftest import Clock
from .driver import Driver, plan_of

CHAIN = plan_of("a", "b: a", "c: b", "d: c")
TIMED = Plan("a crew", (PlannedTask("a"), PlannedTask("b", ("a",), None, 5.0), PlannedTask("c", ("b",))))

Before = Callable[[ClaimedTask], Any]

BEFORE: dict[str, Before] = {
    "nothing": lambda task: None,
    "a step": lambda task: task.record_step("s#1", "1", replayed=0),
    "an event": lambda task: task.append_event("agent_execution_completed", "a"),
}


def chain(driver: Driver, plan: Plan, before: Before, options: dict[str, str], inputs: str = "{}") -> list[Claim]:
    """Do a run from task to task in one process; return the claims that came with its commits."""
    driver.submit(plan, inputs=inputs, **options)
    (claim,) = driver.take().values()
    claims = list[Claim]()
    while True:
        task = driver.task(claim)
        before(task)
        for _ in range(2):  # an answer that was lost is asked for again
            task.commit(dump(claim.job.task, None), plan.dependents[claim.job.task], replayed=0, process="p0", ms=1)
        if task.next is None:
            return claims
        claims.append(claim := task.next)


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
    found = chain(driver, plan, BEFORE[before], options), stored(driver)
    driver.redis.flushall()
    clock.go_on(0)
    monkeypatch.setattr(ClaimedTask, "_commit_next", lambda *_: False)
    driver = Driver(driver.redis, driver.line)
    due = chain(driver, plan, BEFORE[before], options), stored(driver)
    assert found[0] == due[0]
    assert found[1] == due[1]


def test_it_commits_all_but_the_last(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    of_all = list[str]()

    def noting(script: scripts.LuaScript, client: Any, **slots: Any) -> Any:
        of_all.extend([slots["key"]] if script.name == "commit" else [])
        return ask(script, client, **slots)

    ask = scripts.LuaScript.__call__
    monkeypatch.setattr(scripts.LuaScript, "__call__", noting)
    driver.submit(CHAIN)
    (claim,) = driver.take().values()
    while True:
        task = driver.task(claim)
        task.commit(dump("done", None), CHAIN.dependents[claim.job.task], replayed=0, process="p0")
        if task.next is None:
            break
        claim = task.next
    assert of_all == ["d"]


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
