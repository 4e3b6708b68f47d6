"""Keys of a run that are gone, deleted or evicted, or overwritten with another type. No run is `running` for ever."""

from typing import Any

import pytest
from redis import Redis

from runner.core.errors import ClaimLost, NotFound
from runner.providers.redis import keys
from runner.providers.redis.forks import create, position

from .conftest import Clock
from .driver import Driver, plan_of

RUN = keys.run_key("r-1")
MAIN = keys.branch_key("r-1", "main")
GONE = "gone from the store: deleted there, or evicted"


def task_key(task: str, branch: str = MAIN) -> str:
    return keys.key("task_key", branch_key=branch, name=task)


def checked(driver: Driver) -> list[tuple[str, str]]:
    """What one look at all active runs finds."""
    after, found = driver.workers.check_runs(0)
    assert after == 0
    return found


def index(name: str) -> str:
    return keys.key(name, home=keys.HOME)


def test_of_runs_of_which_nothing_is_gone_nothing_is_found_and_nothing_changes(
    driver: Driver, redis: Redis, clock: Clock
) -> None:
    driver.submit(plan_of("a", "b", "c: a b", "d: c"))
    driver.submit(plan_of("a"), "r-2", envelope="")  # by another broker
    claims = driver.take("a", "b")
    driver.commit(claims["a"])
    driver.task(claims["b"]).retry(10.0, "it raised", replayed=0)
    before = {key: redis.dump(key) for key in redis.keys(f"{keys.HOME}*")}
    assert checked(driver) == []
    assert {key: redis.dump(key) for key in redis.keys(f"{keys.HOME}*")} == before
    clock.go_on(10_000)
    driver.workers.move_due()
    driver.work()
    assert driver.runs.get("r-1").status == "completed"


@pytest.mark.parametrize("state", ["queued", "running", "delayed", "asked"])
def test_a_branch_whose_task_is_gone_fails_and_says_so(driver: Driver, redis: Redis, state: str) -> None:
    driver.submit(plan_of("a", "b: a", "beside"))
    claims = driver.take("a", "beside") if state != "queued" else {}
    if state == "delayed":
        driver.task(claims["a"]).retry(10.0, "it raised", replayed=0)
    if state == "asked":
        driver.task(claims["a"]).ask("q#1", '"what?"', replayed=0)
        driver.commit(claims["beside"])
        assert driver.runs.get("r-1").status == "waiting"
    redis.delete(task_key("a"))
    reason = f"its record is {GONE}"
    assert checked(driver) == [("r-1", f"task 'a' of branch 'main': {reason}")]
    run = driver.runs.get("r-1")
    assert (run.status, run.error) == ("failed", f"task 'a': {reason}")
    assert checked(driver) == []
    if state == "running":
        with pytest.raises(ClaimLost):
            driver.commit(claims["a"])
    assert driver.resume("r-1") == "resumed"
    driver.work()
    if state in ("running", "delayed"):
        driver.commit(claims["beside"])
        driver.work()
    assert driver.runs.get("r-1").status == "completed"
    assert driver.outputs("r-1")["b"] == "b(a())"


def test_a_branch_that_is_gone_failed(driver: Driver, redis: Redis) -> None:
    driver.submit(plan_of("a", "b: a"))
    driver.work(limit=1)
    redis.delete(MAIN)
    assert checked(driver) == [("r-1", f"branch 'main' is {GONE}")]
    run = driver.runs.get("r-1")
    assert (run.status, run.error) == ("failed", f"branch 'main' is {GONE}")
    assert not redis.zcard(index("active_key"))
    assert redis.pttl(RUN) > 0
    driver.work()
    assert checked(driver) == []
    assert driver.runs.branch("r-1", "main").seq == 1
    assert driver.resume("r-1") == "resumed"
    driver.work()
    assert driver.runs.get("r-1").status == "completed"
    assert [event["task"] for event in driver.events("r-1", "task_started")] == ["a", "b"], "what is committed stands"


def test_of_two_branches_the_other_goes_on(driver: Driver, redis: Redis) -> None:
    driver.submit(plan_of("a", "b: a"))
    driver.work()
    start = driver.runs.checkpoints("r-1", "main")[0]
    driver.resume("r-1", "again", start=start)
    assert driver.runs.get("r-1").status == "running"
    redis.delete(MAIN)  # it was over, and is none of those that run
    assert checked(driver) == [("r-1", f"branch 'main' is {GONE}")]
    assert driver.runs.get("r-1").status == "running"
    assert redis.hget(RUN, "live") == "1"
    driver.work()
    assert driver.runs.get("r-1").status == "completed"
    assert not redis.zcard(index("active_key"))


def test_a_run_that_is_gone_is_forgotten(driver: Driver, redis: Redis) -> None:
    driver.submit(plan_of("a"))
    driver.submit(plan_of("a"), "r-2")
    redis.delete(RUN)
    assert checked(driver) == [("r-1", f"it is {GONE}; it is forgotten")]
    assert redis.zrange(index("active_key"), 0, -1) == redis.zrange(index("runs_key"), 0, -1) == ["r-2"]
    assert all(redis.pttl(key) > 0 for key in redis.keys(f"{RUN}:*"))
    with pytest.raises(NotFound):
        driver.runs.get("r-1")


def test_a_branch_with_nothing_in_flight_fails(driver: Driver, redis: Redis) -> None:
    driver.submit(plan_of("a", "b: a"))
    redis.delete(keys.key("open_key", branch_key=MAIN))
    assert [run for run, _ in checked(driver)] == ["r-1"]
    assert "nothing of branch 'main' is in flight" in driver.runs.get("r-1").error
    assert driver.resume("r-1") == "resumed"
    driver.work()
    assert driver.runs.get("r-1").status == "completed"


@pytest.mark.parametrize("gone", ["queued_key", "due_key", "workers_key", "claims", "branches_key"])
def test_what_is_only_listed_no_more_is_listed_again(driver: Driver, redis: Redis, clock: Clock, gone: str) -> None:
    driver.submit(plan_of("a", "b", "c", "d: a b c"))
    claims = driver.take("a", "b")
    driver.task(claims["b"]).retry(1.0, "it raised", replayed=0)
    redis.delete("jobs")  # the message of c
    if gone == "claims":
        redis.delete(keys.key("claims_key", home=keys.HOME, worker="w0"))
    elif gone == "branches_key":
        redis.delete(keys.key("branches_key", run=RUN))
    else:
        redis.delete(index(gone))
    found = checked(driver)
    if gone == "workers_key":
        assert found == [("r-1", "task 'a' of branch 'main': its worker is not known to the store")]
        for worker in ("w0", "w1"):
            driver.workers.beat(worker, 5000, "{}")
    else:
        assert found == []
    if gone == "claims":
        assert [held.ref for held in driver.workers.beat("w0", 5000).claims] == [claims["a"].job.ref]
    clock.go_on(60_000)
    driver.workers.move_due()
    driver.work()
    clock.go_on(60_000)
    driver.workers.redeliver(1000)
    if gone != "workers_key":
        driver.commit(claims["a"])
    driver.work()
    assert driver.runs.get("r-1").status == "completed"


@pytest.mark.parametrize("after", [0, 2])
def test_the_index_of_all_runs_is_made_again(driver: Driver, redis: Redis, after: int) -> None:
    for number in range(5):
        driver.submit(plan_of("a"), f"r-{number}")
    for number in (1, 3, 4):
        driver.runs.cancel(f"r-{number}", "enough")
    before = redis.zrange(index("runs_key"), 0, -1, withscores=True)
    redis.delete(index("runs_key"))
    for number in range(after):  # others begin before anybody looks
        driver.submit(plan_of("a"), f"r-1{number}")
    began = redis.zrange(index("runs_key"), 0, -1, withscores=True)
    looked, first = 0, 0
    while looked == 0 or first:
        first, looked = driver.workers.relist(first, 2), looked + 1
    assert redis.zrange(index("runs_key"), 0, -1, withscores=True) == sorted(before + began, key=lambda one: one[::-1])
    assert looked == (5 + after) // 2 + 1


def test_a_leader_is_elected_where_its_key_is_of_another_type(driver: Driver, redis: Redis) -> None:
    redis.rpush(index("leader_key"), "spoiled")
    assert driver.workers.leader() == ""
    assert driver.workers.elect("w0", "", 5000)
    assert driver.workers.leader() == "w0"


def test_all_active_runs_are_looked_at_in_turn(driver: Driver, redis: Redis) -> None:
    for number in range(7):
        driver.submit(plan_of("a"), f"r-{number}")
    for gone in ("r-1", "r-2", "r-6"):
        redis.delete(keys.run_key(gone))
    found, after, looks = [], 0, 0
    while looks == 0 or after:
        after, some = driver.workers.check_runs(after, 3)
        found += [run for run, _ in some]
        looks += 1
    assert found == ["r-1", "r-2", "r-6"]
    assert looks == 3


def lose(redis: Redis, branch: str, *kinds: str) -> None:
    for kind in kinds:
        redis.delete(keys.key(kind, branch_key=branch))


@pytest.mark.parametrize("kinds", [("outputs_key",), ("outputs_key", "commit_log_key")])
@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_run_is_not_completed_without_outputs_that_are_gone_with_the_log_of_commits(
    driver: Driver, redis: Redis, kinds: tuple[str, ...], done: int
) -> None:
    driver.submit(plan_of("a", "b", "c", "d"))
    driver.work(limit=done)
    lose(redis, MAIN, *kinds)
    driver.work()
    run = driver.runs.get("r-1")
    assert (run.status, run.error) == ("failed", f"the outputs of {done} of its tasks are {GONE}")
    assert driver.resume("r-1") == "resumed"
    driver.work()
    assert driver.runs.get("r-1").status == "completed"
    assert driver.outputs("r-1").keys() == {"a", "b", "c", "d"}


@pytest.mark.parametrize("edits", [{}, {"a": '{"raw":"edited"}'}])
@pytest.mark.parametrize("kinds", [("outputs_key",), ("outputs_key", "commit_log_key")])
def test_a_fork_is_not_completed_without_outputs_that_are_gone(
    driver: Driver, redis: Redis, kinds: tuple[str, ...], edits: dict[str, str]
) -> None:
    driver.submit(plan_of("a", "b", "c", "d"))
    driver.work(limit=2)
    create(redis, position(redis, "r-1"), "f", rerun=frozenset("cd"), kept=frozenset(), edits=edits, overrides={"x": 1})
    driver.work(limit=3)  # one of them on the fork
    lose(redis, keys.branch_key("r-1", "f"), *kinds)
    driver.work()
    assert driver.runs.branch("r-1", "f").error.endswith(f"of its tasks are {GONE}")


@pytest.mark.parametrize("kinds", [("outputs_key",), ("outputs_key", "commit_log_key")])
def test_a_fork_whose_parent_lost_outputs_does_them_again(driver: Driver, redis: Redis, kinds: tuple[str, ...]) -> None:
    driver.submit(plan_of("a", "b", "c", "d: c"))
    driver.work(limit=2)
    create(redis, position(redis, "r-1"), "f", rerun=frozenset("cd"), kept=frozenset(), edits={}, overrides={"x": 1})
    lose(redis, MAIN, *kinds)
    driver.work()
    for branch in ("main", "f"):
        assert driver.runs.branch("r-1", branch).error == f"the outputs of 2 of its tasks are {GONE}"
        started = [event["task"] for event in driver.events("r-1", "task_started")]
        assert driver.resume("r-1", branch) == "resumed"
        driver.work()
        assert driver.runs.branch("r-1", branch).status == "completed"
        assert driver.outputs("r-1", branch).keys() == {"a", "b", "c", "d"}
        assert [event["task"] for event in driver.events("r-1", "task_started")] == [*started, "a", "b"]


def test_a_fork_begins_with_what_its_parent_lost(driver: Driver, redis: Redis, fork: Any) -> None:
    driver.submit(plan_of("a", "b", "c: b"))
    driver.work()
    redis.hdel(keys.key("outputs_key", branch_key=MAIN), "a")
    name = fork("r-1", inputs={})
    assert driver.runs.branch("r-1", name).left == 1
    driver.work()
    assert driver.runs.branch("r-1", name).status == "completed"
    assert driver.outputs("r-1", name).keys() == {"a", "b", "c"}


@pytest.mark.parametrize("mended", [False, True])
@pytest.mark.parametrize("forked", ["before", "after"])
def test_a_fork_does_not_miss_what_its_parent_lost_after_it_was_left(
    driver: Driver, redis: Redis, fork: Any, forked: str, *, mended: bool
) -> None:
    driver.submit(plan_of("a", "b", "c", "d"))
    driver.work(limit=3)
    start = driver.runs.checkpoints("r-1", "main")[0].id
    if forked == "before":
        fork("r-1", checkpoint=start, branch="f")
    redis.hdel(keys.key("outputs_key", branch_key=MAIN), "b", "c")
    if mended:
        driver.work()
        assert driver.runs.branch("r-1", "main").status == "failed"
        assert driver.resume("r-1") == "resumed"
        driver.work()
    if forked == "after":
        fork("r-1", checkpoint=start, branch="f")
    driver.work()
    assert driver.runs.branch("r-1", "f").status == "completed"
    assert driver.outputs("r-1", "f").keys() == {"a", "b", "c", "d"}
