"""What an edit becomes, what comes along, what is recorded, and what a fork costs."""

from typing import Any

import pytest
from redis import Redis

from runner.core.errors import BadInput
from runner.core.ledger import Usage
from runner.core.output import dump
from runner.core.plan import Plan, PlannedTask

from .driver import Driver, plan_of
from .forked import DIAMOND, HOME, checkpoint_at, own, whole

# -- what an edit becomes


@pytest.mark.parametrize(
    ("output", "edit", "stored"),
    [
        (("text", None), "more text", ("more text", None)),
        (("text", None), '{"looks": "like JSON"}', ('{"looks": "like JSON"}', None)),
        (("text", None), {"n": 1}, ('{"n": 1}', {"n": 1})),
        (('{"n": 1}', {"n": 1}), '{\n  "n": 2\n}', ('{"n": 2}', {"n": 2})),
        (('{"n": 1}', {"n": 1}), {"n": 2}, ('{"n": 2}', {"n": 2})),
        (("[1]", [1]), "[1, 2]", ("[1, 2]", [1, 2])),
    ],
)
def test_an_edit_is_text_or_json_as_the_output_was(
    driver: Driver, fork: Any, output: Any, edit: Any, stored: Any
) -> None:
    run = driver.submit(plan_of("a"))
    driver.task(driver.take("a")["a"]).commit(dump(*output), [], replayed=0)
    name = fork(run, {"a": edit})
    found = driver.runs.committed(run, name)["a"]
    assert (found.raw, found.json, found.edited) == (*stored, True)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ("no JSON", "is JSON, but the edit is not: Expecting value"),
        ("[1]", "is an object in JSON, but the edit is not"),
    ],
)
def test_an_edit_that_is_no_json_in_the_place_of_json_is_refused(
    driver: Driver, fork: Any, edit: str, why: str
) -> None:
    run = driver.submit(plan_of("a"))
    driver.task(driver.take("a")["a"]).commit(dump('{"n": 1}', {"n": 1}), [], replayed=0)
    with pytest.raises(BadInput, match=why):
        fork(run, {"a": edit})


def test_the_same_json_written_otherwise_is_no_change(driver: Driver, fork: Any) -> None:
    run = driver.submit(plan_of("a", "b: a"))
    driver.task(driver.take("a")["a"]).commit(dump('{"n":1}', {"n": 1}), DIAMOND.tasks[1:1], replayed=0)
    name = fork(run, {"a": '{ "n" : 1 }'})
    assert own(driver, run, name) == []


# -- what is recorded


def test_an_output_tells_how_long_it_took_and_what_it_spent(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b"))
    claims = driver.take()
    task = driver.task(claims["a"])
    task.record_step("ask#1", "1", replayed=0, usage=Usage(100, 7))
    task.record_step("ask#2", "2", replayed=0, usage=Usage(50))
    task.commit(dump("x", None), [], replayed=0, ms=1234)
    driver.commit(claims["b"])
    found = driver.runs.committed(run, "main")
    assert (found["a"].ms, found["a"].prompt_tokens, found["a"].completion_tokens) == (1234, 150, 7)
    assert (found["b"].ms, found["b"].prompt_tokens, found["b"].edited) == (None, 0, False)


def test_a_fork_says_where_it_came_from_and_that_it_began(driver: Driver, fork: Any) -> None:
    run = whole(driver)
    name = fork(run, {"b": "B"}, branch="what/if")
    driver.work()
    (said,) = driver.events(run, "checkpoint_fork_completed")
    assert said == {"branch": name, "parent_branch": "main", "checkpoint_id": checkpoint_at(driver, run, "e")}
    for kind in ("crew_kickoff_started", "crew_kickoff_completed"):
        assert [event["branch"] for event in driver.events(run, kind)] == ["main", name]


@pytest.mark.parametrize(
    ("changes", "replayed"),
    [
        ({}, True),
        ({"edits": {"c": "C"}}, True),  # the task in flight does not come after it
        ({"edits": {"a": "A"}}, False),
        ({"inputs": {"topic": "bats"}}, False),  # which inputs it will use is not known yet
    ],
)
def test_steps_of_a_task_in_flight_are_not_paid_again_where_it_works_on_the_same(driver, fork, changes, replayed):
    run = driver.submit(DIAMOND)
    driver.work(limit=1)
    claims = driver.take("b", "c")
    driver.commit(claims["c"])
    driver.task(claims["b"]).record_step("ask#1", '"an answer"', replayed=0)
    name = fork(run, **changes)
    again = next(c for job in driver.jobs() if job.branch == name and job.task == "b" and (c := driver.claim(job)))
    assert again.recorded == ({"ask#1": '"an answer"'} if replayed else {})
    driver.task(again).record_step("ask#2", '"on the fork"', replayed=0)
    assert driver.redis.hkeys(f"{HOME}:run:{run}:branch:main:journal:b") == ["ask#1"]


def test_a_resume_elsewhere_takes_recorded_steps_along(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b", "c: a b"), checkpoint_on=",*,")
    claims = driver.take("a", "b")
    driver.task(claims["b"]).record_step("ask#1", '"paid"', replayed=0)
    driver.commit(claims["a"])
    driver.runs.cancel(run, "enough")
    assert driver.resume(run, "resume/x", start=driver.runs.checkpoints(run, "main")[0]) == "resumed"
    assert {key: claim.recorded for key, claim in driver.take().items()} == {"a": {}, "b": {"ask#1": '"paid"'}}


# -- what it costs


@pytest.mark.parametrize("name", ["task-{:04d}", "a-name-of-thirty-characters-{:03d}"])
def test_it_costs_the_same_whatever_the_run_has_grown_to(driver: Driver, fork: Any, redis: Redis, name: str) -> None:
    """Under 2 KB for a fork of a run of 1,000 tasks at task 500, with one output edited and the first job sent."""
    keys = [name.format(i) for i in range(1000)]
    tasks = [PlannedTask(keys[0])]
    tasks += [PlannedTask(keys[i], (keys[i - 1],), (keys[i - i % 10],)) for i in range(1, 1000)]
    run = driver.submit(Plan("a crew", tuple(tasks)), "r-0123456789ab")
    driver.work(lambda _: None)
    at = checkpoint_at(driver, run, keys[499])
    redis.delete("jobs")

    def used() -> dict[str, int]:
        return {key: redis.memory_usage(key, samples=0) for key in redis.scan_iter("*", count=10_000)}

    costs = []
    for _ in range(2):  # the stream of events grows by blocks of 4 KB: not both times
        before = used()
        branch = fork(run, {keys[490]: "edited"}, checkpoint=at)
        after = used()
        costs.append({key: size - before.get(key, 0) for key, size in after.items() if size != before.get(key)})
    assert min(sum(cost.values()) for cost in costs) < 2048, costs

    # It does again the nine that were made from it, and what was not done by then
    rerun = driver.runs.branch_plan(run, branch).by_key.keys()
    assert rerun == {keys[i] for i in [*range(491, 500), *range(500, 1000)]}
    assert driver.runs.branch(run, branch).left == 509
    assert set(driver.states(run, branch)) == {keys[491]}
