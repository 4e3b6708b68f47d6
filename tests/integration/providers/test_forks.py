"""Forks: side by side with what they leave, copy on write, and only what a change touches is done again."""

from typing import Any

import pytest
from redis import Redis

from runner.client import forking
from runner.core.errors import BadInput, Conflict, NotFound
from runner.core.output import dump
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.dependencies import EVERYTHING, ReadSet
from runner.core.states import RunStatus
from runner.providers.redis import forks, keys

from .driver import Driver, plan_of
from .forked import DIAMOND, HOME, checkpoint_at, everything, own, whole

# -- what is done again


def test_an_edit_does_again_what_was_made_from_it(driver: Driver, fork: Any) -> None:
    run = whole(driver)
    before = everything(driver, f"{HOME}:run:{run}:branch:main:")
    name = fork(run, {"b": "B"})
    driver.work()
    assert own(driver, run, name) == ["b", "d", "e"]
    assert driver.outputs(run, name) == {
        "a": "a()",
        "b": "B",
        "c": "c(a())",
        "d": "d(B, c(a()))",
        "e": "e(d(B, c(a())))",
    }
    assert driver.outputs(run)["e"] == "e(d(b(a()), c(a())))", "the original is as it was"
    assert everything(driver, f"{HOME}:run:{run}:branch:main:") == before
    assert driver.runs.get(run).branch == "main"
    assert driver.runs.branch(run, name).status is RunStatus.completed


def test_an_edit_that_changes_nothing_does_nothing_again(driver: Driver, fork: Any) -> None:
    run = whole(driver)
    name = fork(run, {"b": "b(a())"})
    assert own(driver, run, name) == []
    assert driver.runs.branch(run, name).status is RunStatus.completed
    assert driver.outputs(run, name) == driver.outputs(run)


def test_an_edit_of_the_last_task_is_a_branch_that_is_completed_at_once(driver: Driver, fork: Any) -> None:
    run = whole(driver)
    name = fork(run, {"e": "E"})
    assert driver.outputs(run, name)["e"] == "E"
    assert driver.runs.branch(run, name).status is RunStatus.completed
    assert list(driver.jobs()) == []


def test_two_edits_and_what_lies_between_them(driver: Driver, fork: Any) -> None:
    run = whole(driver)
    name = fork(run, {"a": "A", "d": "D"})
    driver.work()
    assert own(driver, run, name) == ["a", "d", "b", "c", "e"], "b and c are made anew, d stays as it was edited"
    assert driver.outputs(run, name)["e"] == "e(D)"


def test_what_a_task_read_beyond_its_context_counts(driver: Driver, fork: Any) -> None:
    plan = Plan(
        "crew", (PlannedTask("a"), PlannedTask("b", ("a",)), PlannedTask("c", ("b",)), PlannedTask("d", ("c",)))
    )
    run = driver.submit(plan)
    for used in (ReadSet(), ReadSet(), ReadSet(frozenset("a")), ReadSet(frozenset(EVERYTHING))):
        (claim,) = driver.take().values()
        driver.commit(claim, used)
    name = fork(run, {"a": "A"})
    assert driver.states(run, name) == {"c": "queued"}, "b did not read a: c need not wait for it"
    driver.work()
    assert own(driver, run, name) == ["a", "c", "d"]
    other = fork(run, {"b": "B"})
    driver.work()
    assert own(driver, run, other) == ["b", "d"], "d read all that was before it"


def test_a_task_waits_for_what_it_read_though_what_lies_between_is_not_done_again(driver: Driver, fork: Any) -> None:
    plan = Plan("crew", (PlannedTask("a"), PlannedTask("b", ("a",)), PlannedTask("c", ("b",))))
    run = driver.submit(plan, inputs='{"topic": "owls"}')
    for used in (ReadSet(frozenset(), frozenset(["topic"])), ReadSet(), ReadSet(frozenset("a"))):
        (claim,) = driver.take().values()
        driver.commit(claim, used)
    name = fork(run, inputs={"topic": "bats"})
    assert driver.states(run, name) == {"a": "queued"}
    assert driver.take("a")["a"].inputs == {"topic": "bats"}
    assert driver.states(run, name) == {"a": "running"}


def test_another_input_does_again_what_used_it(driver: Driver, fork: Any) -> None:
    run = driver.submit(DIAMOND, inputs='{"topic": "owls", "n": 3}')
    uses = {"b": frozenset(["n"]), "c": frozenset(["topic", "absent"])}
    while claims := driver.take():
        for key, claim in claims.items():
            driver.commit(claim, ReadSet(frozenset(), uses.get(key, frozenset())))
    same = fork(run, inputs={"n": 3, "unknown": 1})
    assert driver.runs.branch(run, same).left == 0
    assert driver.runs.branch(run, same).inputs == {"unknown": 1}
    name = fork(run, inputs={"n": 4})
    driver.work()
    assert own(driver, run, name) == ["b", "d", "e"]
    added = fork(run, inputs={"absent": "no more"})
    driver.work()
    assert own(driver, run, added) == ["c", "d", "e"], "it had asked for it"


def test_inputs_are_inherited_from_fork_to_fork(driver: Driver, fork: Any) -> None:
    run = whole(driver, inputs='{"topic": "owls", "n": 3}')
    one = fork(run, inputs={"n": 4})
    two = fork(run, {"a": "A"}, inputs={"topic": "bats"}, source=one)
    assert driver.take("b")["b"].inputs == {"topic": "bats", "n": 4}
    back = fork(run, {"a": "AA"}, inputs={"n": 3}, source=two)
    assert driver.runs.branch(run, back).inputs == {"topic": "bats", "n": 3}


# -- where it leaves


def test_a_fork_at_a_checkpoint_does_all_that_came_later(driver: Driver, fork: Any) -> None:
    run = whole(driver)
    at = checkpoint_at(driver, run, "b")
    name = fork(run, checkpoint=at[:-2])
    assert name.startswith(f"fork/{at}_")
    driver.work()
    assert own(driver, run, name) == ["c", "d", "e"]
    line = driver.runs.branch(run, name)
    assert (line.parent, line.parent_seq, line.checkpoint) == ("main", 2, at)


@pytest.mark.parametrize("end", ["running", "failed", "cancelled"])
def test_a_fork_of_a_run_in_any_state_goes_on_side_by_side(driver: Driver, fork: Any, end: str) -> None:
    run = driver.submit(DIAMOND)
    driver.work(limit=1)
    claims = driver.take("b", "c")
    driver.task(claims["c"]).record_step("ask#1", '"paid"', replayed=0)
    driver.commit(claims["b"])
    if end == "failed":
        driver.task(claims["c"]).fail("it cannot be done", replayed=0)
    elif end == "cancelled":
        driver.runs.cancel(run, "enough")
    name = fork(run, {"b": "B"})
    assert driver.states(run, name) == {"c": "queued"}
    assert driver.runs.get(run).status == end
    driver.work()
    assert driver.outputs(run, name)["d"] == "d(B, c(a()))"
    assert driver.runs.get(run).status == end
    if end == "running":
        driver.commit(claims["c"])
        driver.work()
        assert driver.outputs(run)["d"] == "d(b(a()), c(a()))"


def test_a_fork_of_a_fork_sees_what_each_had_done(driver: Driver, fork: Any) -> None:
    run = whole(driver)
    one = fork(run, {"b": "B"})
    driver.work(limit=1)
    two = fork(run, {"c": "C"}, source=one)
    driver.work()
    assert own(driver, run, two) == ["c", "d", "e"]
    assert driver.outputs(run, two)["d"] == "d(B, C)"
    assert driver.outputs(run, one)["d"] == "d(B, c(a()))"
    early = fork(run, checkpoint=checkpoint_at(driver, run, "d", one), edits={"a": "A"})
    driver.work()
    assert own(driver, run, early) == ["a", "c", "d", "e"], "b had been edited: nothing of a is in it"
    assert driver.outputs(run, early)["e"] == "e(d(B, c(A)))"


def test_a_fork_is_resumed_on_its_branch_and_from_its_checkpoints(driver: Driver, fork: Any) -> None:
    run = whole(driver)
    name = fork(run, {"b": "B"}, inputs={"n": 1})
    driver.work(limit=1)
    driver.runs.cancel(run, "enough", name)
    assert driver.resume(run, name) == "resumed"
    driver.work()
    assert own(driver, run, name) == ["b", "d", "e"]
    start = next(c for c in driver.runs.checkpoints(run, name) if c.task == "d")
    assert driver.resume(run, "resume/x", start=start) == "resumed"
    assert driver.take("e")["e"].inputs == {"n": 1}
    assert driver.runs.branch(run, "resume/x").left == 1


def test_new_code_leaves_what_branches_do_right(driver: Driver, fork: Any) -> None:
    """The tasks stand elsewhere in the new plan, one is gone, one is new."""
    run = whole(driver)
    name = fork(run, {"b": "B"})
    driver.work(limit=1)
    driver.runs.cancel(run, "enough", name)
    plan = plan_of("new: a", "e: d new", "d: b c", "c: a", "b: a", "a")
    assert driver.resume(run, name, plan=plan, fields={"plan": plan.digest}) == "resumed"
    assert driver.states(run, name) == {"e": "held", "new": "queued"}
    driver.work()
    assert own(driver, run, name) == ["b", "d", "new", "e"]
    assert driver.outputs(run, name)["e"] == "e(d(B, c(a())), new(a()))"
    again = fork(run, {"c": "C"}, source=name)
    driver.work()
    assert own(driver, run, again) == ["c", "d", "e"]


def test_a_fork_has_retention_of_its_own(driver: Driver, fork: Any) -> None:
    chain = plan_of("t0", *(f"t{i}: t{i - 1}" for i in range(1, 9)))
    run = whole(driver, chain, max_checkpoints="3")
    kept = driver.runs.checkpoints(run, "main")
    name = fork(run, {"t1": "other"})
    driver.work()
    assert [c.task for c in driver.runs.checkpoints(run, name)] == ["t6", "t7", "t8"]
    assert driver.runs.checkpoints(run, "main") == kept
    one = fork(run, source="main", edits={"t7": "x"})
    driver.work()
    (only,) = driver.runs.checkpoints(run, one)
    assert only.parent == kept[-1].id


# -- what is refused


def test_what_is_refused_leaves_nothing(driver: Driver, fork: Any) -> None:
    run = driver.submit(DIAMOND)
    driver.work(limit=2)
    at = checkpoint_at(driver, run, "a")
    before = everything(driver, "")
    for wanted, message, how in (
        (BadInput, r"has no task 'bb' to edit: did you mean 'b'\?", {"edits": {"bb": "x"}}),
        (BadInput, "task 'd' is not committed", {"edits": {"d": "x"}}),
        (BadInput, f"task 'b' is not committed at checkpoint {at}", {"edits": {"b": "x"}, "checkpoint": at}),
        (BadInput, r"begins with / or has \.\. as a part", {"branch": "../../etc"}),
        (BadInput, "is not a branch name", {"branch": "a|b"}),
        (Conflict, "run r-1 already has a branch 'main'", {"branch": "main"}),
        (NotFound, "has no checkpoint 2019", {"checkpoint": "2019"}),
        (NotFound, "has no branch 'nope'; there are: main", {"source": "nope"}),
    ):
        with pytest.raises(wanted, match=message):
            fork(run, **how)
    with pytest.raises(NotFound, match="there is no run r-2"):
        fork("r-2")
    assert everything(driver, "") == before


def test_a_run_whose_code_is_gone_is_not_forked(driver: Driver, fork: Any, redis: Redis) -> None:
    driver.runs.put_bundle("sha", b"packed")
    run = whole(driver, bundle="sha")
    redis.delete(f"{HOME}:bundle:sha")
    with pytest.raises(Conflict, match="submit the crew again"):
        fork(run, {"a": "A"})


def test_a_fork_of_a_finished_run_keeps_its_keys_and_bundle(driver: Driver, fork: Any, redis: Redis) -> None:
    driver.runs.put_bundle("sha", b"packed")
    run = whole(driver, bundle="sha")
    assert redis.pttl(keys.run_key(run)) > 0
    fork(run, {"a": "A"})
    assert {redis.pttl(key) for key in [f"{HOME}:bundle:sha", *redis.keys(f"{HOME}:run:{run}*")]} == {-1}
    driver.work()
    assert min(redis.pttl(key) for key in [f"{HOME}:bundle:sha", *redis.keys(f"{HOME}:run:{run}*")]) > 0


@pytest.mark.parametrize("by", ["checkpoint", "branch"])
def test_a_fork_asks_the_store_twice_however_many_branches_there_are(
    driver: Driver, fork: Any, redis: Redis, by: str
) -> None:
    run = whole(driver)
    where = {"checkpoint": checkpoint_at(driver, run, "c")} if by == "checkpoint" else {"source": fork(run, {"b": "B"})}
    for i in range(3):
        fork(run, branch=f"other/{i}")
    sent: list[str] = []

    class Counted:
        def execute_command(self, *command: Any) -> Any:
            sent.append(command[0])
            return redis.execute_command(*command)

    chosen, newest = {"checkpoint": None, "source": None, **where}, driver.runs.last_event(run)
    name, at = forking.fork(Counted(), run, **chosen, branch=None, inputs={}, edits={"a": "A"})
    assert sent == ["EVALSHA", "EVALSHA"]
    assert driver.runs.branch(run, name).parent == at.branch
    assert at.newest_event == newest, "what is told of it comes after"


# -- what others do meanwhile


def test_a_fork_decided_by_a_plan_that_is_no_longer_there_is_decided_anew(driver: Driver, redis: Redis) -> None:
    run = driver.submit(DIAMOND)
    driver.work(limit=2)
    driver.runs.cancel(run, "enough")
    where = forks.position(redis, run)
    plan = plan_of("a", "b: a", "f: b")
    assert driver.resume(run, plan=plan, fields={"plan": plan.digest}) == "resumed"
    rerun = frozenset(DIAMOND.by_key)
    assert forks.create(redis, where, "x", rerun=rerun, kept=rerun, edits={}, overrides={}) == "changed"
    assert driver.runs.branches(run) == ["main"]


def test_new_code_is_not_taken_by_who_did_not_see_a_fork(driver: Driver, fork: Any, monkeypatch: Any) -> None:
    """Its rerun mask would be left as bits of the old plan."""
    run = whole(driver)
    plan = plan_of("new", "a", "b: a", "c: a", "d: b c", "e: d")
    committed = driver.runs.committed

    def meanwhile(*which: Any) -> Any:
        fork(run, {"e": "E"})  # with nothing to do: it is over at once
        return committed(*which)

    monkeypatch.setattr(driver.runs, "committed", meanwhile)
    assert driver.resume(run, plan=plan, fields={"plan": plan.digest}) == "changed"
    monkeypatch.undo()
    assert driver.resume(run, plan=plan, fields={"plan": plan.digest}) == "resumed"
    (name,) = set(driver.runs.branches(run)) - {"main"}
    assert driver.outputs(run, name)["e"] == "E"


def test_what_the_parent_does_later_is_not_there(driver: Driver, fork: Any) -> None:
    run = driver.submit(DIAMOND)
    driver.work(limit=1)
    name = fork(run, branch="early")
    claims = {(job.branch, job.task): driver.claim(job) for job in driver.jobs()}
    driver.commit(claims["main", "b"])
    driver.commit(claims["main", "c"])
    assert driver.outputs(run, name) == {"a": "a()"}
    assert driver.runs.outputs_of(run, name, ["a", "b"]).keys() == {"a"}
    driver.commit(claims["early", "b"])
    driver.task(claims["early", "c"]).commit(dump("C", None), driver.runs.plan(run).dependents["c"], replayed=0)
    found = next(c for job in driver.jobs() if job.branch == "early" and (c := driver.claim(job)))
    assert {key: output["raw"] for key, output in found.context.items()} == {"b": "b(a())", "c": "C"}
