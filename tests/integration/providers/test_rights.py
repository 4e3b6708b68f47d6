"""Runs that end as most do, in many shapes: what a script does after its first write it asked for before.

The scripts on the tests' clock fail at a command that follows their first write and that nobody asked for (`watched`).
"""

import itertools
from typing import Any

import pytest

from runner.core.jobs import Claim
from runner.core.output import dump
from runner.core.plan import Plan, PlannedTask
from runner.providers.records import NewRun
from runner.providers.redis import keys
from runner.providers.redis.batches import Batches
from runner.providers.redis.envelope import DIRECT

from .driver import KEEP, QUEUE, Driver, plan_of

LONG = plan_of(*(f"t{number}" for number in range(60)))
CHAIN = plan_of("a", *(f"t{n}: {f't{n - 1}' if n else 'a'}" for n in range(12)))
LINE = plan_of("t0", *(f"t{n}: t{n - 1}" for n in range(1, 60)))
FAN = plan_of("a", "b: a", "c: a", "d: b c", "e: d b")
POOLED = Plan("a crew", (PlannedTask("a", pool="thread"), PlannedTask("b", ("a",), ("a",), 5.0, pool="thread")))


def submit(driver: Driver, plan: Plan, batch: int, **options: str) -> None:
    """Runs of a bundle: so many of them as a batch, or one of none."""
    driver.runs.put_bundle("sha", b"packed")
    if not batch:
        driver.submit(plan, bundle="sha", **options)
        return
    fields = {
        **{"crew": "many", "bundle": "sha", "plan": plan.digest, "queue": QUEUE, "keep": str(KEEP), "inputs": "{}"},
        **{"envelope": DIRECT, "checkpoint_on": "", "max_checkpoints": "0", "adapter": "native", **options},
    }
    runs = [NewRun(f"r-{number}", number, "{}") for number in range(1, batch + 1)]
    answers = Batches(driver.redis).create("b-1", plan, fields, runs)
    assert answers == ["created"] * batch


def finish(driver: Driver, how: dict[str, Any]) -> None:
    """Do all there is to do; a process may continue with what its commit made ready, or with what waits."""
    queues = (QUEUE, "runner:t3:jobs")
    while jobs := [job for queue in queues for job in itertools.islice(driver.jobs(queue), 1)]:
        for job in jobs:
            claim = driver.claim(job)
            while isinstance(claim, Claim):
                task = driver.task(claim)
                unlocks = driver.runs.branch_plan(claim.job.run_id, claim.job.branch).dependents[claim.job.task]
                task.commit(dump("done", None), unlocks, replayed=0, **how)
                claim = task.next


HOW: tuple[dict[str, Any], ...] = ({}, {"process": "p0"}, {"process": "p0", "queue": QUEUE})
CHECKPOINTS = ("", ",task_completed,", ",crew_kickoff_completed,")
PLANS = {"long": LONG, "chain": CHAIN, "fan": FAN, "pooled": POOLED}


def shapes() -> list[Any]:
    """All of everything; in each test run a third, in which each plan has all ways and all checkpoints, and each two of
    those some plan.
    """
    every = itertools.product(*map(enumerate, (PLANS.items(), (0, 2), CHECKPOINTS, HOW)))
    return [
        pytest.param(
            plan, batch, on, how, id=f"{name}-{b}-{c}-{h}", marks=[pytest.mark.soak] * ((p + b + c + h) % 3 > 0)
        )
        for (p, (name, plan)), (b, batch), (c, on), (h, how) in every
    ]


@pytest.mark.parametrize(("plan", "batch", "checkpoint_on", "how"), shapes())
def test_of_whatever_shape_a_run_is(
    driver: Driver, plan: Plan, batch: int, checkpoint_on: str, how: dict[str, Any]
) -> None:
    submit(driver, plan, batch, checkpoint_on=checkpoint_on)
    finish(driver, how)
    for number in range(1, max(batch, 1) + 1):
        assert str(driver.runs.get(f"r-{number}").status) == "completed"


@pytest.mark.parametrize("options", [{}, {"checkpoint_on": ",task_started,"}, {"max_checkpoints": "2"}], ids=str)
def test_of_a_run_whose_old_events_go(driver: Driver, options: dict[str, str]) -> None:
    """Two events for each task, of one after the other."""
    submit(driver, LINE, 0, **{"checkpoint_on": ",task_completed,", **options})
    finish(driver, {"process": "p0"})
    assert str(driver.runs.get("r-1").status) == "completed"
    assert len(list(driver.runs.events("r-1"))) > 2 * len(LINE.tasks) > 100


def test_a_task_that_is_aside_and_not_counted_so(driver: Driver) -> None:
    """As a resume by an older version leaves it: in flight, unlocked once more, and no number says how many are."""
    for number, process in enumerate(("", "p0"), 1):
        driver.submit(plan_of("a", "b: a"), f"r-{number}", checkpoint_on="")
        claim = driver.take("a")["a"]
        branch = keys.branch_key(f"r-{number}", "main", keys.HOME)
        driver.redis.sadd(keys.key("open_key", branch_key=branch), "b")
        unlocks = driver.runs.branch_plan(f"r-{number}", "main").dependents["a"]
        driver.task(claim).commit(dump("done", None), unlocks, replayed=0, process=process)
        assert driver.states(f"r-{number}") == {"b": "running" if process else "queued"}
