"""How many commands each script makes, where nothing was asked for beyond the task itself: no less, and no more.

A script looks at what it may write, and does what was asked for. Where that is nothing, it does nothing for it: most
checks that save a command have no other effect. Raising a number is a line that somebody has to write.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from redis import Redis

from runner.core.jobs import Claim
from runner.core.ledger import STEP, AccountKey, Counters, Usage
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Expansion
from runner.journal.recorder import DoneStep
from runner.providers.records import NewRun
from runner.providers.redis import scripts
from runner.providers.redis.batches import Batches
from runner.providers.redis.envelope import DIRECT

from .driver import QUEUE, Driver, plan_of

GPT = AccountKey("model", "A", "gpt")
THREE = plan_of("a", "b: a", "c: b")
GROWS = Plan("a flow", (PlannedTask("a"),), grows={"name": "F", "methods": []})
SHARED = (
    "crew",
    "adapter",
    "bundle",
    "module",
    "attr",
    "plan",
    "queue",
    "keep",
    "checkpoint_on",
    "max_checkpoints",
    "envelope",
)
Act = Callable[[], object]


def once(driver: Driver, plan: Plan = THREE, *, first: str = "a", **options: str) -> Claim:
    """The claim on the first task of a run that asked for no checkpoints."""
    driver.submit(plan, **{"checkpoint_on": "", **options})
    return driver.take(first)[first]


def accepted(driver: Driver, **options: str) -> Act:
    return lambda: driver.submit(THREE, **{"checkpoint_on": "", **options})


def batched(driver: Driver, many: int) -> Act:
    """So many runs of a bundle, submitted together."""
    driver.runs.put_bundle("sha", b"packed")
    driver.submit(THREE, "r-0", bundle="sha", checkpoint_on="")
    fields = {**driver.redis.hgetall("runner:{p0}:run:r-0"), "envelope": DIRECT}
    shared = {name: fields[name] for name in SHARED}
    runs = [NewRun(f"r-{number}", number, "{}") for number in range(1, many + 1)]
    return lambda: Batches(driver.redis).create("b-1", THREE, shared, runs)


def claimed(driver: Driver, after: int = 0, **options: str) -> Act:
    """The claim on a task, after so many of its branch."""
    driver.submit(THREE, **{"checkpoint_on": "", **options})
    driver.work(limit=after) if after else None
    (job,) = driver.jobs()
    return lambda: driver.claim(job)


def committed(driver: Driver, plan: Plan = THREE, *, work: int = 0, **how: str) -> Act:
    """A commit, after so many others of its branch."""
    claim, asked = once(driver, plan, **{k: v for k, v in how.items() if k == "checkpoint_on"}), how
    for _ in range(work):
        driver.commit(claim)
        (claim,) = driver.take().values()
    unlocks = driver.runs.branch_plan("r-1", "main").dependents[claim.job.task]
    go_on = {"process": asked.get("process", ""), "queue": asked.get("queue", "")}
    return lambda: driver.task(claim).commit('{"raw":"x"}', unlocks, replayed=0, **go_on)


def committed_beside_another(driver: Driver, plan: Plan = THREE) -> Act:
    act = committed(driver, plan, process="p1", queue=QUEUE)
    driver.submit(plan_of("x"), "r-2", checkpoint_on="")
    return act


def grown(driver: Driver) -> Act:
    task = driver.task(once(driver, GROWS))
    return lambda: task.expand(Expansion('{"raw":"x"}'), "", replayed=0)


def recorded(driver: Driver, *, before: int = 0, **how: Any) -> Act:
    task = driver.task(once(driver))
    for number in range(before):
        task.record_step(f"before#{number}", "1", **how)
    driver.line.settle()
    return lambda: task.record_step("s#1", "1", **how)


def some_recorded(driver: Driver, *, before: int = 0, entry: AccountKey | None = STEP) -> Act:
    task = driver.task(once(driver))
    for number in range(before):
        task.record_step(f"before#{number}", "1", replayed=0)
    return lambda: task.record_steps([DoneStep("s#1", "1", entry=entry), DoneStep("s#2", "2", entry=entry)], replayed=0)


def told(driver: Driver, events: int) -> Act:
    """An event, after so many of the run."""
    task = driver.task(once(driver))
    for _ in range(events - 2):
        task.note("log", "x")
    return lambda: task.note("log", "x")


def ended(driver: Driver, events: int) -> Act:
    act = committed(driver, plan_of("a"))
    driver.redis.hset("runner:{p0}:run:r-1", "events", events)
    return act


def resumed(driver: Driver) -> Act:
    driver.runs.put_bundle("sha", b"packed")
    driver.submit(THREE, bundle="sha", checkpoint_on="")
    driver.runs.cancel("r-1", "enough")
    return lambda: driver.resume("r-1")


def handed_back(driver: Driver) -> Act:
    task = driver.task(once(driver))
    return lambda: task.release(replayed=0)


def pruned(driver: Driver) -> Act:
    """A state on which others stand as well, and it on one of another branch."""
    put = partial(scripts.load("put_state"), driver.redis, home="runner:{states:p}", size=2, lease=0)
    put(id="a", digest="a", entry="a", branch="other", parent="", base=0, base_digest="")
    for name, base, parent in (("b", 1, "a"), ("c", 2, "b"), ("d", 2, "b")):
        put(id=name, digest=name, entry=name, branch="main", parent=parent, base=base, base_digest=parent)
    how = {"home": "runner:{states:p}", "max_keep": 2, "branch": "main", "head": "d"}
    return lambda: scripts.load("prune_states")(driver.redis, **how)


def listed(driver: Driver, many: int) -> Act:
    batched(driver, many)()
    return lambda: driver.runs.newest(30)


def looked_at(driver: Driver, many: int) -> Act:
    """So many active runs, each with one task in flight, of which nothing is gone."""
    batched(driver, many)()
    return lambda: driver.workers.check_runs(1, many)  # the first is the one that they are made after


COSTS: dict[str, tuple[Callable[[Driver], Act], int]] = {
    "a run is accepted": (accepted, 17),
    "a run that keeps checkpoints": (lambda d: accepted(d, checkpoint_on=",task_completed,"), 17),
    "a run of a batch": (lambda d: batched(d, 1), 30),
    "two runs of a batch": (lambda d: batched(d, 2), 37),
    "ten runs of a batch": (lambda d: batched(d, 10), 93),
    "a claim": (claimed, 15),
    "a claim of a run that keeps checkpoints": (lambda d: claimed(d, checkpoint_on=",task_completed,"), 15),
    "the second claim of a branch": (lambda d: claimed(d, after=1), 15),
    "a commit, and what it unlocks is sent": (committed, 26),
    "a commit of a run that keeps checkpoints": (lambda d: committed(d, checkpoint_on=",task_completed,"), 30),
    "a commit, and its process continues": (lambda d: committed(d, process="p1", queue=QUEUE), 21),
    "the same, where a job waits": (committed_beside_another, 21),
    "the last commit, whose process finds nothing": (
        lambda d: committed(d, plan_of("a"), process="p1", queue=QUEUE),
        35,
    ),
    "the same, where a job waits for it": (lambda d: committed_beside_another(d, plan_of("a")), 48),
    "the last commit, whose process takes from no queue": (lambda d: committed(d, plan_of("a"), process="p1"), 34),
    "the last commit": (lambda d: committed(d, work=2), 37),
    "the last commit of a run that keeps checkpoints": (
        lambda d: committed(d, work=2, checkpoint_on=",task_completed,"),
        41,
    ),
    "a commit of many, of which nothing follows": (lambda d: committed(d, plan_of("a", "b")), 16),
    "the last of a long run": (lambda d: ended(d, 300), 34),
    "a task of a plan that grows by nothing": (grown, 39),
    "the first step": (lambda d: recorded(d, replayed=0), 7),
    "the second step": (lambda d: recorded(d, before=1, replayed=0), 5),
    "a step that stands for others": (lambda d: recorded(d, before=1, replayed=0, entry=None), 4),
    "the first call": (lambda d: recorded(d, replayed=0, entry=GPT, usage=Usage(5, 2)), 10),
    "the second call": (lambda d: recorded(d, before=1, replayed=0, entry=GPT, usage=Usage(5, 2)), 9),
    "a call of which its caller told": (lambda d: recorded(d, before=1, replayed=0, entry=GPT, reported=True), 7),
    "a step after others were replayed": (lambda d: recorded(d, before=1, replayed=Counters([STEP])), 8),
    "the first steps side by side": (some_recorded, 8),
    "more steps side by side": (lambda d: some_recorded(d, before=1), 7),
    "steps side by side that count nothing": (lambda d: some_recorded(d, before=1, entry=None), 6),
    "the 99th event": (lambda d: told(d, 98), 5),
    "the 100th event": (lambda d: told(d, 99), 7),
    "a task is handed back": (handed_back, 30),
    "a run is resumed": (resumed, 96),
    "states are pruned": (pruned, 17),
    "the newest 30 of 40 runs are listed": (lambda d: listed(d, 40), 31),
    "the newest 30 of 400": (lambda d: listed(d, 400), 31),
    "one active run is looked at": (lambda d: looked_at(d, 1), 12),
    "ten active runs": (lambda d: looked_at(d, 10), 84),
}


def commands(redis: Redis, act: Act) -> dict[str, int]:
    """What scripts call while this is done. (The test's clock is a GET.)"""
    redis.config_resetstat()
    act()
    outside = ("config|", "script|", "evalsha", "eval", "info", "ping")
    calls = {name.removeprefix("cmdstat_"): one["calls"] for name, one in redis.info("commandstats").items()}
    return {name: calls[name] for name in sorted(calls) if not name.startswith(outside)}


@pytest.mark.parametrize("what", COSTS)
def test_how_many_commands_it_takes(driver: Driver, redis: Redis, what: str) -> None:
    prepare, due = COSTS[what]
    found = commands(redis, prepare(driver))
    assert sum(found.values()) == due, found
