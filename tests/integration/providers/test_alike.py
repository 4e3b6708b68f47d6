"""A process that continues with a run like the one before is given what differs: its claim, and all that is stored, are
as if it had been given all."""

from collections.abc import Callable
from typing import Any

import pytest

from runner.core.jobs import Claim
from runner.core.output import dump
from runner.core.plan import Plan, PlannedTask
from runner.providers.redis import keys, store
from runner.providers.redis.protocol import PROTOCOL
from runner.providers.redis.store import ClaimedTask

from .conftest import Clock
from .driver import QUEUE, Driver, plan_of
from .others import somebody_elses
from .test_commit_next import stored

ONE = plan_of("a")
TIMED = Plan("a crew", (PlannedTask("a", timeout=2.5),))

Between = Callable[[Driver], Any]


def resumed(driver: Driver, **fields: str) -> None:
    """The second run was over, and goes on as if it had just begun, but for that."""
    driver.runs.cancel("r-2", "enough")
    assert driver.resume("r-2", fields=fields) == "resumed"


def with_other_code(driver: Driver) -> None:
    driver.runs.put_bundle("new", b"packed")
    resumed(driver, bundle="new")


def handed_over(driver: Driver) -> None:
    claim = driver.take()["a"]
    driver.task(claim).record_step("s#1", "1", replayed=0)
    driver.task(claim).release(replayed=0)


def written_by_an_older_version(driver: Driver) -> None:
    driver.redis.hdel(keys.run_key("r-2"), "like")


BETWEEN: dict[str, tuple[Between, bool]] = {
    "nothing": (lambda driver: None, True),
    "resumed": (resumed, False),
    "with other code": (with_other_code, False),
    "handed over": (handed_over, False),
    "by an older version": (written_by_an_older_version, False),
    "cancelled": (lambda driver: driver.runs.cancel("r-2", "enough"), False),
}


def continued(driver: Driver, plan: Plan, between: Between, options: dict[str, str], second: dict[str, str]) -> Any:
    """Do a run of one task; return what its process continues with, and what is stored by then."""
    driver.submit(plan, inputs='{"n": 1}', **options)
    (claim,) = driver.take().values()
    driver.submit(plan, "r-2", **{"inputs": '{"n": 2}', **options, **second})
    between(driver)
    task = driver.task(claim)
    for _ in range(2):  # an answer that was lost is asked for again
        task.commit(dump("done", None), (), replayed=0, process="p0", queue=QUEUE)
        found = task.next
    return found, stored(driver)


@pytest.fixture
def of_another(monkeypatch: pytest.MonkeyPatch) -> list[Claim]:
    """The claims that were given as those of a run like the one before."""
    monkeypatch.setattr(store, "stamp", lambda: "20260101T000000")
    monkeypatch.setattr(store, "_nonce", lambda how: "n" if how.get("process") else "")
    found, make = list[Claim](), store.claimed_like

    def noting(*given: Any) -> Claim:
        found.append(claim := make(*given))
        return claim

    monkeypatch.setattr(store, "claimed_like", noting)
    return found


@pytest.mark.parametrize("plan", [ONE, TIMED], ids=["", "timed"])
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("on", ["", ",task_completed,", ",*,"])
def test_it_is_as_if_all_was_given(
    driver: Driver,
    clock: Clock,
    of_another: list[Claim],
    monkeypatch: pytest.MonkeyPatch,
    plan: Plan,
    between: str,
    on: str,
) -> None:
    act, alike = BETWEEN[between]
    found = continued(driver, plan, act, {"checkpoint_on": on}, {})
    assert bool(of_another) == alike
    driver.redis.flushall()
    clock.go_on(0)
    driver = Driver(driver.redis, driver.line)
    monkeypatch.setattr(driver, "task", lambda claim: ClaimedTask(driver.line, claim._replace(like="")))
    due = continued(driver, plan, act, {"checkpoint_on": on}, {})
    assert len(of_another) == alike
    assert found == due


@pytest.mark.parametrize(
    "second", [{"module": "other"}, {"standin": "echo"}, {"keep": "5000"}, {"checkpoint_on": ",*,"}], ids=str
)
def test_one_that_differs_in_anything_is_given_all(
    driver: Driver, of_another: list[Claim], second: dict[str, str]
) -> None:
    claim, _ = continued(driver, ONE, lambda _: None, {}, second)
    assert not of_another
    assert claim.job.run_id == "r-2"
    assert (claim.module, claim.standin) == (second.get("module", "crew"), second.get("standin", ""))


def test_one_of_an_older_protocol_is_left_to_a_claim_which_takes_it_along(
    driver: Driver, of_another: list[Claim]
) -> None:
    """So was the one before: both were begun as now, and a later version, of another protocol, works on them."""
    for run in ("r-1", "r-2"):
        driver.submit(ONE, run)
        driver.redis.hset(keys.run_key(run), "protocol", PROTOCOL - 1)
    claim = driver.claim(next(driver.jobs()))
    assert isinstance(claim, Claim)
    assert claim.job.run_id == "r-1"
    task = driver.task(claim)
    task.commit(dump("done", None), (), replayed=0, process="p0", queue=QUEUE)
    assert (task.next, of_another) == (None, [])
    assert driver.states("r-2") == {"a": "queued"}


def test_another_task_of_a_run_like_it_is_given_all(driver: Driver, of_another: list[Claim]) -> None:
    """The first run's first, and the second run's second, as two begin at once."""
    plan = plan_of("a", "b")
    driver.submit(plan)
    claims = driver.take("a", "b")
    driver.submit(plan, "r-2")
    task = driver.task(claims["b"])
    task.commit(dump("done", None), (), replayed=0, process="p0", queue=QUEUE)
    assert task.next is not None
    assert task.next.job.task == "a"
    task = driver.task(claims["a"])
    task.commit(dump("done", None), (), replayed=0, process="p0", queue=QUEUE)
    assert task.next is not None
    assert task.next.job.task == "b"
    assert task.next.like == "", "it is the second thing that happens to its run"
    assert not of_another


@pytest.mark.parametrize("part", ["events_key", "branch_key", "task_key"])
def test_one_with_a_key_of_somebody_else_is_left_to_who_receives_messages(driver: Driver, part: str) -> None:
    driver.submit(ONE)
    (claim,) = driver.take().values()
    driver.submit(ONE, "r-2")
    run, branch = keys.run_key("r-2"), keys.branch_key("r-2", "main")
    key = branch if part == "branch_key" else keys.key(part, run=run, branch_key=branch, name="a")
    task = driver.task(claim)
    with somebody_elses(driver, key):
        assert task.commit(dump("done", None), (), replayed=0, process="p0", queue=QUEUE) == "completed"
    assert task.next is None
    assert driver.states("r-2") == {"a": "queued"}
