"""Plans that grow, and questions: what the scripts do, asked twice, too late, or while the branch is over."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Expansion
from runner.core.states import RunStatus
from runner.providers.redis.dynamic_plan import GrowingBranch

from .calls import contents
from .driver import Driver

GROWS = Plan("a flow", (PlannedTask("a"), PlannedTask("b")), grows={"name": "F", "methods": []})


def expansion(task: str, ready: Iterable[str] = (), put: dict[str, str] | None = None, **more: Any) -> Expansion:
    return Expansion(json.dumps({"raw": task}), tuple(map(PlannedTask, ready)), put or {}, **more)


def begun(driver: Driver, **options: str) -> tuple[str, dict[str, Claim]]:
    run = driver.submit(GROWS, checkpoint_on=",*,", **options)
    return run, driver.take("a", "b")


def branch_of(driver: Driver, run: str, name: str = "main") -> GrowingBranch:
    return GrowingBranch(driver.redis, run, name)


def expand(driver: Driver, claim: Claim, one: Expansion, version: str) -> bool:
    return driver.task(claim).expand(one, version, replayed=0)


def test_a_task_brings_others_and_the_last_one_ends_the_branch(driver: Driver) -> None:
    run, claims = begun(driver)
    assert expand(driver, claims["a"], expansion("a", ["c", "a#2"], {"x": "1"}), "")
    assert driver.states(run) == {"a#2": "queued", "b": "running", "c": "queued"}
    shared = branch_of(driver, run).shared()
    assert (shared.version, shared.fields) == ("4", {"x": "1"})  # three checkpoints came before it
    assert expand(driver, claims["b"], expansion("b", put={"y": "2"}, gone=("x",)), shared.version)
    assert branch_of(driver, run).shared().fields == {"y": "2"}
    for task, claim in driver.take("c", "a#2").items():
        assert expand(driver, claim, expansion(task), branch_of(driver, run).shared().version)
    assert driver.runs.get(run).status is RunStatus.completed
    assert list(driver.outputs(run)) == ["a", "b", "c", "a#2"]
    assert [one.key for one in branch_of(driver, run).history()] == ["a", "b", "c", "a#2"]


def test_a_growth_of_an_older_version_changes_nothing(driver: Driver) -> None:
    run, claims = begun(driver)
    assert expand(driver, claims["a"], expansion("a", put={"x": "1"}), "")
    before = contents(driver.redis)
    assert not expand(driver, claims["b"], expansion("b", ["never"], {"x": "2"}), "")
    assert contents(driver.redis) == before
    assert expand(driver, claims["b"], expansion("b", put={"x": "2"}), branch_of(driver, run).shared().version)
    assert branch_of(driver, run).shared().fields == {"x": "2"}


def test_a_growth_whose_answer_is_lost_is_made_once(driver: Driver, line: Any) -> None:
    run, claims = begun(driver)
    line.lose = 1
    assert expand(driver, claims["a"], expansion("a", ["c"], {"x": "1"}), "")
    assert driver.states(run) == {"b": "running", "c": "queued"}
    assert len(driver.events(run, "task_completed")) == 1
    assert driver.redis.hget(f"runner:{{p0}}:run:{run}:branch:main", "left") == "2"


def test_who_lost_the_claim_grows_nothing(driver: Driver) -> None:
    run, claims = begun(driver)
    driver.task(claims["a"]).release(replayed=0)
    with pytest.raises(ClaimLost):
        expand(driver, claims["a"], expansion("a", ["c"], {"x": "1"}), "")
    with pytest.raises(ClaimLost):
        driver.task(claims["a"]).ask("?", "{}", replayed=0)
    assert branch_of(driver, run).shared().fields == {}
    assert driver.states(run) == {"a": "queued", "b": "running"}


def test_a_straggler_grows_what_is_shared_and_unlocks_nothing(driver: Driver) -> None:
    run, claims = begun(driver)
    driver.task(claims["b"]).fail("no", replayed=0)
    assert expand(driver, claims["a"], expansion("a", ["c"], {"x": "1"}), "")
    assert driver.states(run) == {"b": "failed"}
    assert branch_of(driver, run).shared().fields == {"x": "1"}
    assert all(driver.redis.pttl(key) > 0 for key in driver.redis.keys(f"*{run}*"))
    assert driver.resume(run, pending=[PlannedTask("b"), PlannedTask("c")]) == "resumed"
    assert driver.states(run) == {"b": "queued", "c": "queued"}
    assert driver.redis.hget(f"runner:{{p0}}:run:{run}:branch:main", "left") == "2"


def test_notes_are_told_with_the_commit(driver: Driver) -> None:
    run, claims = begun(driver)
    assert expand(driver, claims["a"], expansion("a", notes=(("flow_state_conflict", "x, y.z"),)), "")
    (told,) = driver.events(run, "flow_state_conflict")
    assert (told["task"], told["text"]) == ("a", "x, y.z")


# -- questions


def asked(driver: Driver) -> tuple[str, dict[str, Claim]]:
    run, claims = begun(driver)
    driver.task(claims["a"]).record_step("body#1", '"paid"', replayed=0)
    driver.task(claims["a"]).ask("?#1", json.dumps({"message": "Good?", "emit": ["yes"]}), replayed=0)
    return run, claims


def answer(driver: Driver, run: str, text: str = '"yes"', branch: str = "main") -> str:
    (question,) = driver.runs.questions(run, branch)
    return driver.runs.answer(run, branch, question, text)


def test_a_branch_waits_when_all_that_is_left_has_asked(driver: Driver) -> None:
    run, claims = asked(driver)
    assert driver.states(run) == {"a": "asked", "b": "running"}
    assert driver.runs.get(run).status is RunStatus.running
    assert expand(driver, claims["b"], expansion("b"), "")
    assert driver.runs.get(run).status is driver.runs.branch(run, "main").status is RunStatus.waiting
    assert [one.trigger for one in driver.runs.checkpoints(run, "main")][-1] == "flow_paused"
    assert all(driver.redis.pttl(key) == -1 for key in driver.redis.keys(f"*{run}*"))
    (question,) = driver.runs.questions(run, "main")
    assert (question.task, question.message, question.labels) == ("a", "Good?", ["yes"])


def test_the_answer_is_in_the_journal_and_what_was_paid_is_too(driver: Driver) -> None:
    run, claims = asked(driver)
    assert answer(driver, run) == "answered"
    claim = driver.take("a")["a"]
    assert claim.recorded == {"body#1": '"paid"', "?#1": '"yes"'}
    assert claim.job.attempt == 2
    assert driver.runs.questions(run, "main") == []
    expand(driver, claims["b"], expansion("b"), "")
    assert driver.runs.get(run).status is RunStatus.running
    assert expand(driver, claim, expansion("a"), branch_of(driver, run).shared().version)
    assert driver.runs.get(run).status is RunStatus.completed


def test_an_answer_counts_once(driver: Driver) -> None:
    run, _ = asked(driver)
    (question,) = driver.runs.questions(run, "main")
    assert driver.runs.answer(run, "main", question, '"yes"') == "answered"
    assert driver.runs.answer(run, "main", question, '"no"') == "not asked"
    assert driver.take("a")["a"].recorded["?#1"] == '"yes"'


def test_an_answer_to_another_question_is_told_so(driver: Driver) -> None:
    run, _ = asked(driver)
    (question,) = driver.runs.questions(run, "main")
    driver.runs.answer(run, "main", question, '"yes"')
    driver.task(driver.take("a")["a"]).ask("?#2", "{}", replayed=0)
    assert driver.runs.answer(run, "main", question, '"late"') == "changed"
    assert answer(driver, run) == "answered"


def test_asking_again_forgets_an_answer_that_was_none(driver: Driver) -> None:
    run, _ = asked(driver)
    answer(driver, run, '"perhaps"')
    driver.task(driver.take("a")["a"]).ask("?#1", "{}", replayed=0)
    answer(driver, run, '"yes"')
    assert driver.take("a")["a"].recorded == {"body#1": '"paid"', "?#1": '"yes"'}


def test_a_question_whose_answer_is_lost_is_asked_once(driver: Driver, line: Any) -> None:
    run, claims = begun(driver)
    line.lose = 1
    with pytest.raises(ClaimLost):  # it was put: this worker's part is over either way
        driver.task(claims["a"]).ask("?#1", "{}", replayed=0)
    assert driver.states(run) == {"a": "asked", "b": "running"}
    assert driver.redis.hget(f"runner:{{p0}}:run:{run}:branch:main", "asked") == "1"


def test_a_question_outlives_the_failure_of_another_task(driver: Driver) -> None:
    run, claims = asked(driver)
    driver.task(claims["b"]).fail("no", replayed=0)
    assert driver.runs.get(run).status is RunStatus.failed
    assert answer(driver, run) == "failed"
    assert driver.resume(run, pending=[PlannedTask("a"), PlannedTask("b")]) == "resumed"
    assert driver.states(run) == {"a": "asked", "b": "queued"}
    assert expand(driver, driver.take("b")["b"], expansion("b"), "")
    assert driver.runs.get(run).status is RunStatus.waiting
    assert answer(driver, run) == "answered"


def test_a_waiting_run_is_not_resumed_and_may_be_cancelled(driver: Driver) -> None:
    run, claims = asked(driver)
    expand(driver, claims["b"], expansion("b"), "")
    assert driver.resume(run, pending=[PlannedTask("a")]) == "changed"
    assert driver.runs.cancel(run, "enough") == "waiting"
    assert driver.runs.get(run).status is RunStatus.cancelled
    assert all(driver.redis.pttl(key) > 0 for key in driver.redis.keys(f"*{run}*"))
    assert driver.redis.zscore("runner:{p0}:active", run) is None
    assert answer(driver, run) == "cancelled"


def test_a_task_of_a_crew_may_ask_too(driver: Driver) -> None:
    run = driver.submit(Plan("a crew", (PlannedTask("one"), PlannedTask("two", ("one",)))))
    claim = driver.take("one")["one"]
    driver.task(claim).ask("?#1", '{"message": "?"}', replayed=0)
    assert driver.runs.get(run).status is RunStatus.waiting
    assert answer(driver, run) == "answered"
    driver.work()
    assert driver.runs.get(run).status is RunStatus.completed


# -- where a branch begins


def test_the_history_of_a_fork_has_its_marks(driver: Driver, fork: Any) -> None:
    plan = Plan("a flow", (PlannedTask("a"),), grows={"name": "F", "methods": [
        {"name": "a", "start": True, "router": True},
        {"name": "b", "when": {"or": ["go"]}},
        {"name": "c", "when": {"or": ["stop"]}},
    ]})  # fmt: skip
    run = driver.submit(plan, beginning='{"n": 1}')
    part = {"signal": "go", "patch": {"n": ["s", 2]}}
    expand(driver, driver.take("a")["a"], Expansion(json.dumps({"raw": "go", "flow": part}), (PlannedTask("b"),)), "")
    line = branch_of(driver, run)
    expand(driver, driver.take("b")["b"], expansion("b"), line.shared().version)
    name = fork(run, {"a": "stop"}, inputs={"m": 5})
    assert driver.states(run, name) == {"c": "queued"}
    assert driver.outputs(run, name) == {"a": "stop"}
    history = branch_of(driver, run, name).history()
    assert [(one.key, dict(one.inputs), list(one.edits)) for one in history] == [
        ("a", {}, []),
        ("b", {}, []),
        ("", {"m": 5}, ["a"]),
    ]
    assert branch_of(driver, run, name).records(["a"])["a"]["raw"] == "stop"
    assert branch_of(driver, run, name).shared().version == ""
