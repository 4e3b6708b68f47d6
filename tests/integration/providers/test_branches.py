"""Branches have a status each, and several of a run go on side by side."""

import pytest
from redis import Redis

from runner.core.errors import NotFound
from runner.core.jobs import Refusal
from runner.core.plan import Plan, PlannedTask, queue_for
from runner.core.states import RunStatus

from .driver import QUEUE, Driver, plan_of

PLAN = plan_of("a", "b: a", "c: b")
HOME = "runner:{p0}"


def side_by_side(driver: Driver, **options: str) -> str:
    """A run that goes on on a branch from its first checkpoint, and on main again beside that."""
    run = driver.submit(PLAN, **options)
    driver.work(limit=2)
    driver.runs.cancel(run, "stopped here")
    first = driver.runs.checkpoints(run, "main")[0]
    assert driver.resume(run, "again", start=first) == "resumed"
    assert driver.resume(run, "main") == "resumed"
    return run


def standing(driver: Driver, run: str) -> dict[str, str]:
    return {line.name: line.status.value for line in driver.runs.branch_records(run)}


def test_two_branches_go_on_and_each_ends_as_its_own_tasks_do(driver: Driver) -> None:
    run = side_by_side(driver)
    assert standing(driver, run) == {"main": "running", "again": "running"}
    assert driver.runs.standing(run) == (RunStatus.running, "again")
    claims = driver.take()
    assert {(c.job.branch, key) for key, c in claims.items()} == {("again", "b"), ("main", "c")}
    assert driver.commit(claims["c"]) == "completed"
    assert standing(driver, run) == {"main": "completed", "again": "running"}
    assert driver.runs.get(run).status is RunStatus.running, "that of its current line"
    driver.task(claims["b"]).fail("it cannot be done", replayed=0)
    assert standing(driver, run) == {"main": "completed", "again": "failed"}
    assert driver.runs.get(run).status is RunStatus.failed
    assert driver.runs.branch(run, "again").error == "task 'b': it cannot be done"
    assert driver.runs.branch(run, "main").error == ""


def test_a_failure_on_one_branch_takes_nothing_from_the_other(driver: Driver) -> None:
    run = side_by_side(driver)
    claims = driver.take()
    driver.task(claims["b"]).fail("it cannot be done", replayed=0)
    assert driver.states(run) == {"c": "running"}
    assert driver.commit(claims["c"]) == "completed"


def test_the_run_is_active_and_keeps_its_keys_and_bundle_while_any_branch_runs(driver: Driver, redis: Redis) -> None:
    driver.runs.put_bundle("sha", b"packed")
    run = side_by_side(driver, bundle="sha")
    claims = driver.take()
    driver.task(claims["b"]).fail("its current line ends", replayed=0)

    def lifetimes() -> set[int]:
        return {redis.pttl(key) for key in [f"{HOME}:bundle:sha", *redis.keys(f"{HOME}:run:{run}*")]}

    assert lifetimes() == {-1}
    assert redis.zrange(f"{HOME}:active", 0, -1) == [run]
    assert redis.hget(f"{HOME}:bundle:sha", "active") == "1"
    driver.commit(claims["c"])
    assert min(lifetimes()) > 0
    assert redis.zrange(f"{HOME}:active", 0, -1) == []
    assert redis.hget(f"{HOME}:bundle:sha", "active") == "0"


def test_cancelling_one_branch_leaves_the_other(driver: Driver) -> None:
    run = side_by_side(driver)
    jobs = {job.branch: job for job in driver.jobs()}
    claim, waiting = driver.claim(jobs["main"]), jobs["again"]
    assert driver.runs.cancel(run, "enough of it", "again") == "running"
    assert standing(driver, run) == {"main": "running", "again": "cancelled"}
    assert driver.claim(waiting) == Refusal("cancelled")
    assert driver.commit(claim) == "completed"
    assert driver.runs.cancel(run, "once more", "again") == "cancelled"
    assert [e["branch"] for e in driver.events(run, "run_cancelled")] == ["main", "again"]


def test_cancelling_a_run_stops_all_its_branches(driver: Driver) -> None:
    run = side_by_side(driver)
    claims = driver.take()
    driver.commit(claims["c"])
    assert driver.runs.cancel(run, "enough") == "running"
    assert standing(driver, run) == {"main": "completed", "again": "cancelled"}
    assert driver.runs.cancel(run, "enough") == "cancelled"


def test_a_branch_resumed_beside_the_current_line_does_not_take_its_place(driver: Driver) -> None:
    run = side_by_side(driver)
    driver.runs.cancel(run, "for now", "main")
    assert driver.resume(run, "main") == "resumed"
    assert driver.runs.get(run).branch == "again"
    driver.runs.cancel(run, "both")
    assert driver.resume(run, "main") == "resumed"
    assert driver.runs.get(run).branch == "main", "the current line was over"


def test_new_code_is_not_taken_while_a_branch_runs_on_the_old(driver: Driver) -> None:
    run = side_by_side(driver)
    driver.runs.cancel(run, "for now", "main")
    plan = plan_of("a", "b: a", "c: b", "d: c")
    assert driver.resume(run, "main", plan=plan, fields={"plan": plan.digest}) == "busy"
    driver.runs.cancel(run, "both")
    assert driver.resume(run, "main", plan=plan, fields={"plan": plan.digest}) == "resumed"


def test_a_branch_that_is_not_there_is_named_with_those_that_are(driver: Driver) -> None:
    run = side_by_side(driver)
    with pytest.raises(NotFound, match="run r-1 has no branch 'nope'; there are: main, again"):
        driver.runs.status(run, "nope")
    assert driver.runs.cancel(run, "it is not there", "nope") == "gone"


@pytest.mark.parametrize("pool", ["process", "thread"])
def test_a_run_that_is_cancelled_leaves_no_message_where_nobody_serves_its_queue(
    pool: str, driver: Driver, redis: Redis
) -> None:
    plan = Plan("a crew", (PlannedTask("a", (), (), pool=pool), PlannedTask("b", (), (), pool=pool)))
    runs = [driver.submit(plan, run_id, queue="runner:p2:far") for run_id in ("r-1", "r-10")]
    queue = queue_for("runner:p2:far", pool)
    assert redis.llen(queue) == 4
    driver.runs.cancel(runs[0], "enough")
    assert {job.run_id for job in driver.jobs(queue)} == {runs[1]}
    driver.runs.cancel(runs[1], "enough")
    assert redis.keys("runner:?2:*") == []
    # What is resumed is sent again
    assert driver.resume(runs[0]) == "resumed"
    assert redis.llen(queue) == 2


def test_one_branch_that_is_cancelled_leaves_what_the_other_sent(driver: Driver, redis: Redis) -> None:
    run = side_by_side(driver)
    waiting = redis.llen(QUEUE)
    driver.runs.cancel(run, "enough of it", "again")
    assert redis.llen(QUEUE) == waiting
    driver.runs.cancel(run, "enough", "main")
    assert redis.llen(QUEUE) == 0
