"""A branch holds at most `max_checkpoints`, the newest; what is pruned is never missed."""

from typing import Any

import pytest

from runner.core.errors import Conflict, NotFound
from runner.core.plan import frontier

from .calls import contents
from .driver import Driver, plan_of

#: Twenty tasks: chains, tasks side by side, and joins. Each is made from what it waits for.
CREW = plan_of(
    *("t01", "t02: t01", "t03: t01", "t04: t02 t03", "t05: t04", "t06: t04", "t07: t04", "t08: t05 t06 t07"),
    *("t09: t08", "t10: t09", "t11: t10", "t12: t10", "t13: t11 t12", "t14: t13", "t15: t14", "t16: t15"),
    *("t17: t16", "t18: t16", "t19: t17 t18", "t20: t19"),
)
THREE = {"max_checkpoints": "3"}


def kept(driver: Driver, run_id: str, branch: str = "main") -> list[tuple[int, str]]:
    """The sequence and the task of each checkpoint that the store keeps; its two keys agree."""
    records = driver.runs.checkpoints(run_id, branch)
    lineage = f"runner:{{p0}}:run:{run_id}:branch:{branch}:lineage"
    assert set(driver.redis.hkeys(lineage)) == {record.id for record in records}
    return [(record.seq, record.task) for record in records]


def everything(driver: Driver, *, of: str) -> dict[str, Any]:
    """Every value under a key."""
    return {key: value for key, value in contents(driver.redis).items() if key.startswith(of)}


def test_after_each_commit_a_branch_holds_the_newest_three(driver: Driver) -> None:
    run = driver.submit(CREW, **THREE)
    done: list[str] = []

    def look(task: str) -> None:
        done.append(task)
        assert kept(driver, run) == list(enumerate(done, 1))[-3:]

    driver.work(look)
    assert len(done) == 20


def test_with_every_event_as_a_trigger_it_still_holds_three_at_every_moment(driver: Driver) -> None:
    run = driver.submit(CREW, checkpoint_on=",*,", **THREE)
    most = 0
    for job in driver.jobs():
        assert len(kept(driver, run)) <= 3
        claim = driver.claim(job)
        assert [record.trigger for record in driver.runs.checkpoints(run, "main")][-1] == "task_started"
        driver.commit(claim)
        most = max(most, len(kept(driver, run)))
    assert most == 3
    # created, twenty started, twenty completed, and the end: each had a position of its own
    assert [(r.seq, r.trigger) for r in driver.runs.checkpoints(run, "main")] == [
        (40, "task_started"),
        (41, "task_completed"),
        (42, "crew_kickoff_completed"),
    ]


def test_a_branch_without_checkpoints_keeps_none(driver: Driver) -> None:
    run = driver.submit(CREW, checkpoint_on="", **THREE)
    driver.work()
    assert driver.runs.get(run).status == "completed"
    assert kept(driver, run) == []


@pytest.mark.parametrize("triggers", [",task_completed,", ",*,"])
@pytest.mark.parametrize("done", [4, 10, 20])
def test_resuming_from_each_kept_one_gives_the_same_outputs(driver: Driver, done: int, triggers: str) -> None:
    # Given a run that went through, one that stopped after some tasks, and a bystander
    driver.submit(CREW, "r-whole")
    driver.work()
    whole = driver.outputs("r-whole")
    run = driver.submit(CREW, "r-1", checkpoint_on=triggers, **THREE)
    driver.work(limit=done)
    if done < 20:
        driver.runs.cancel(run, "stopped here")
    bystander = everything(driver, of="runner:{p0}:run:r-whole")
    main = everything(driver, of="runner:{p0}:run:r-1:branch:main")
    starts = driver.runs.checkpoints(run, "main")
    assert len(starts) == 3

    for i, start in enumerate(starts):
        then = driver.runs.committed(run, "main", start.seq).keys()
        branch = f"resume/{i}"
        if len(then) == 20:
            with pytest.raises(Conflict):
                driver.resume(run, branch, start=start)
            continue
        # When it goes on from a kept checkpoint, on a branch of its own
        assert driver.resume(run, branch, start=start) == "resumed"

        # Then what may run is what the plan says, and it ends as the first one did
        assert driver.states(run, branch).keys() == {task.key for task in frontier(CREW, then)}
        driver.work(lambda task, branch=branch: kept(driver, run, branch))
        assert driver.runs.get(run).status == "completed"
        assert driver.outputs(run, branch) == whole
        again = 20 - len(then)
        assert driver.redis.hlen(f"runner:{{p0}}:run:{run}:branch:{branch}:outputs") == again
        assert len(kept(driver, run, branch)) == min(3, again if triggers != ",*," else 2 * again + 1)

    # And neither the branch that it left nor another run was touched
    assert everything(driver, of="runner:{p0}:run:r-1:branch:main") == main
    assert everything(driver, of="runner:{p0}:run:r-whole") == bystander


def test_a_branch_of_a_branch_sees_what_both_had_committed_when_it_left(driver: Driver) -> None:
    driver.submit(CREW, "r-whole")
    driver.work()
    run = driver.submit(CREW)
    driver.work(limit=12)
    driver.runs.cancel(run, "once")
    early = next(c for c in driver.runs.checkpoints(run, "main") if c.task == "t04")
    assert driver.resume(run, "a", start=early) == "resumed"
    driver.work(limit=4)
    driver.runs.cancel(run, "twice")
    later = next(c for c in driver.runs.checkpoints(run, "a") if c.task == "t06")
    assert driver.resume(run, "b", start=later) == "resumed"
    driver.work()

    assert driver.outputs(run, "b") == driver.outputs("r-whole")
    own = driver.redis.hkeys(f"runner:{{p0}}:run:{run}:branch:b:outputs")
    assert not set(own) & driver.runs.committed(run, "a", later.seq).keys()


def test_parents_name_what_was_before_even_where_that_is_pruned(driver: Driver) -> None:
    run = driver.submit(CREW, **THREE)
    chain: list[str] = []

    def look(_: str) -> None:
        newest = driver.runs.checkpoints(run, "main")[-1]
        assert newest.parent == (chain[-1] if chain else "")
        chain.append(newest.id)

    driver.work(look)
    assert len(set(chain)) == 20


def test_a_finished_task_leaves_its_journal_for_as_long_as_a_checkpoint_points_into_it(driver: Driver) -> None:
    def journals(run: str) -> set[str]:
        keys = (key.partition(":branch:main:")[2] for key in everything(driver, of=f"runner:{{p0}}:run:{run}:"))
        return {key for key in keys if key.startswith(("journal", "steps"))}

    within = ",llm_call_completed,task_completed,"
    plan = plan_of("a", "b: a", "c: b")
    for run, triggers, trigger, left in (
        ("r-1", within, "llm_call_completed", {"journals", "journal:b", "steps:b", "journal:c", "steps:c"}),
        ("r-2", ",task_completed,", "", set()),
        ("r-3", within, "", set()),  # where nothing was written within a task
    ):
        driver.submit(plan, run, checkpoint_on=triggers, max_checkpoints="4")
        for key in "abc":
            claim = driver.take(key)[key]
            task = driver.task(claim)
            task.record_step("s#1", "1", replayed=0)
            task.append_event("llm_call_completed", key, trigger=trigger)
            driver.commit(claim)
        assert journals(run) == left
    assert all(driver.redis.pttl(key) > 0 for key in driver.redis.keys("*:run:r-1:*:journal*"))
    # By hand, or by those of later tasks: none is left over
    assert driver.runs.prune("r-1", "main", 2) == 2
    assert journals("r-1") == {"journals", "journal:c", "steps:c"}
    driver.runs.prune("r-1", "main", 0)
    assert journals("r-1") == set()


def test_a_run_that_is_to_be_kept_for_longer_than_redis_counts_has_checkpoints_within_its_tasks(
    driver: Driver, fork: Any
) -> None:
    """An older version allowed that."""
    driver.submit(plan_of("a"), checkpoint_on=",llm_call_completed,task_completed,")
    driver.redis.hset("runner:{p0}:run:r-1", "keep", "9" * 25)
    claim = driver.take("a")["a"]
    task = driver.task(claim)
    task.record_step("s#1", "1", replayed=0)
    task.append_event("llm_call_completed", "a", trigger="llm_call_completed")
    assert fork("r-1")
    driver.commit(claim)
    assert driver.redis.hget("runner:{p0}:run:r-1:branch:main", "status") == "completed"


@pytest.mark.parametrize("keep", [0, 1, 7, 12, 99])
def test_pruning_by_hand_keeps_exactly_the_newest_of_its_branch_and_takes_nothing_that_is_needed(
    driver: Driver, keep: int
) -> None:
    # Given a run with twelve checkpoints on main, a branch that left at the fourth, and a bystander
    driver.submit(CREW, "r-whole")
    driver.work()
    run = driver.submit(CREW)
    driver.work(limit=12)
    driver.runs.cancel(run, "stopped here")
    early = driver.runs.checkpoints(run, "main")[3]
    assert driver.resume(run, "a", start=early) == "resumed"
    driver.work(limit=3)
    before = {record.id: record for record in driver.runs.checkpoints(run, "main")}
    side = everything(driver, of="runner:{p0}:run:r-1:branch:a")
    bystander = everything(driver, of="runner:{p0}:run:r-whole")

    # When main is pruned by hand
    assert driver.runs.prune(run, "main", keep) == max(0, 12 - keep)

    # Then it holds exactly the newest, as they were; nothing else was touched; and again there is nothing to do
    left = driver.runs.checkpoints(run, "main")
    assert left == list(before.values())[max(0, 12 - keep) :]
    assert kept(driver, run) == [(record.seq, record.task) for record in left]
    assert everything(driver, of="runner:{p0}:run:r-1:branch:a") == side
    assert everything(driver, of="runner:{p0}:run:r-whole") == bystander
    assert driver.runs.prune(run, "main", keep) == 0

    # And both branches go on to the same end; the next checkpoint follows the newest one, kept or not
    driver.work()
    driver.runs.cancel(run, "once more")
    newest = list(before)[-1]
    assert driver.resume(run, "main") == "resumed"
    driver.work()
    assert driver.outputs(run) == driver.outputs(run, "a") == driver.outputs("r-whole")
    assert driver.runs.checkpoints(run, "main")[min(keep, 12)].parent == newest


def test_pruning_a_branch_or_a_run_that_is_not_there_says_so(driver: Driver) -> None:
    run = driver.submit(CREW)
    with pytest.raises(NotFound, match="run r-1 has no branch 'b'; there are: main"):
        driver.runs.prune(run, "b", 3)
    with pytest.raises(NotFound, match="there is no run r-2"):
        driver.runs.prune("r-2", "main", 3)
