"""Checks of the scripts that no other test comes by: `ops/proof/mutants.py` takes each out, and one of these fails."""

import json
from functools import partial
from typing import Any

import pytest

from runner.core.errors import ClaimLost, NotFound
from runner.core.jobs import Claim, Refusal
from runner.core.ledger import STEP, AccountKey, Usage
from runner.core.states import RunStatus
from runner.journal.recorder import DoneStep
from runner.providers.redis import keys, scripts
from runner.providers.redis.forks import create, position
from runner.providers.redis.runs import BUNDLE_GRACE_MS, Question

from .calls import contents
from .driver import QUEUE, Driver, plan_of
from .others import somebody_elses


def task_key(run: str, task: str, branch: str = "main") -> str:
    return keys.key("task_key", branch_key=keys.branch_key(run, branch), name=task)


def asks(driver: Driver, run: str, branch: str, task: str = "a") -> Question:
    """The task asks something there."""
    (job,) = [job for job in driver.jobs() if (job.branch, job.task) == (branch, task)]
    claim = driver.claim(job)
    assert not isinstance(claim, Refusal)
    driver.task(claim).ask("q#1", '"what?"', replayed=0)
    (question,) = driver.runs.questions(run, branch)
    return question


def test_an_answer_to_a_run_that_is_gone(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    question = asks(driver, run, "main")
    driver.redis.flushall()
    assert driver.runs.answer(run, "main", question, '"that"') == "gone"
    assert not driver.redis.keys()


def again(driver: Driver, fork: Any, *tasks: str) -> tuple[str, str]:
    """A run that is completed, and a branch of it on which all is done again."""
    run = driver.submit(plan_of(*tasks), checkpoint_on=",*,")
    driver.work()
    return run, fork(run, checkpoint=driver.runs.checkpoints(run, "main")[0].id, branch="f")


def test_a_question_and_its_answer_beside_the_current_line_leave_the_run_as_it_stands(
    driver: Driver, fork: Any
) -> None:
    run, branch = again(driver, fork, "a")
    question = asks(driver, run, branch)
    assert driver.runs.status(run, branch) is RunStatus.waiting
    assert driver.runs.status(run) is RunStatus.completed
    assert driver.runs.answer(run, branch, question, '"that"') == "answered"
    assert driver.runs.status(run, branch) is RunStatus.running
    assert driver.runs.status(run) is RunStatus.completed


def test_an_answer_lets_the_run_go_on(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    question = asks(driver, run, "main")
    assert driver.runs.standing(run) == (RunStatus.waiting, "main")
    assert driver.runs.answer(run, "main", question, '"that"') == "answered"
    assert driver.runs.standing(run) == (RunStatus.running, "main")


def test_a_cancel_that_stops_nothing_tells_how_it_stands(driver: Driver, fork: Any) -> None:
    run, branch = again(driver, fork, "a")
    assert driver.runs.cancel(run, "enough", "another") == "gone"
    assert driver.runs.cancel(run, "enough", "main") == "completed"
    assert driver.runs.status(run, branch) is RunStatus.running
    assert driver.runs.cancel(run, "enough", branch) == "running"
    assert driver.runs.cancel(run, "enough", branch) == "cancelled"
    assert driver.runs.cancel(run, "enough") == "completed"


def test_a_run_that_is_not_there_is_not_cancelled(driver: Driver) -> None:
    before = driver.redis.keys()
    assert driver.runs.cancel("r-none", "enough") == "gone"
    assert driver.redis.keys() == before


def test_a_cancel_tells_how_the_branch_stood_that_it_stopped(driver: Driver, fork: Any) -> None:
    # Given a run that is over on its current line, and a branch of it that waits
    run, branch = again(driver, fork, "a")
    asks(driver, run, branch)
    assert driver.runs.cancel(run, "enough") == "waiting"


def test_a_cancel_that_stops_several_branches_tells_of_the_current_line(driver: Driver) -> None:
    # Given a run that waits on its first branch, and goes on elsewhere
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    asks(driver, run, "main")
    assert driver.resume(run, "again", start=driver.runs.checkpoints(run, "main")[0]) == "resumed"
    assert driver.runs.standing(run) == (RunStatus.running, "again")
    assert driver.runs.cancel(run, "enough") == "running"


def test_a_job_of_which_only_the_run_is_left_is_gone(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    driver.redis.delete(keys.branch_key(run, "main"))
    assert driver.claim(job) == Refusal("gone")


def test_one_task_opens_a_branch(driver: Driver) -> None:
    driver.submit(plan_of("a", "b"))
    assert [claim.scope.opens for claim in driver.take().values()] == [True, False]


@pytest.mark.parametrize("usage", [Usage(5, 0), Usage(0, 7)])
def test_an_output_tells_the_tokens_of_its_task_where_they_are_of_one_kind(driver: Driver, usage: Usage) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    driver.task(claim).record_step("s#1", "1", replayed=0, usage=usage)
    driver.commit(claim)
    output = driver.runs.committed(run, "main")["a"]
    assert (output.prompt_tokens, output.completion_tokens) == usage[:2]


@pytest.mark.parametrize("field", ["claims", "began"])
def test_a_claim_of_before_that_did_not_note_as_much_is_committed(driver: Driver, field: str) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    assert driver.redis.hdel(task_key(run, "a"), field)
    assert driver.commit(claim) == "completed"


def test_the_first_failure_is_the_branch_s(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b"))
    claims = driver.take("a", "b")
    driver.task(claims["a"]).fail("the first", replayed=0)
    driver.task(claims["b"]).fail("the second", replayed=0)
    assert [event["reason"] for event in driver.events(run, "crew_kickoff_failed")] == ["the first"]
    assert driver.runs.get(run).error == "task 'a': the first"


def test_who_lost_the_claim_fails_nothing(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    driver.task(claim).release(replayed=0)
    with pytest.raises(ClaimLost):
        driver.task(claim).fail("too late", replayed=0)
    assert driver.runs.status(run) is RunStatus.running


def test_a_run_is_created_once(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    before = driver.redis.lrange(QUEUE, 0, -1)
    fields = driver.redis.hgetall(keys.run_key(run))
    assert driver.runs.create(run, plan_of("b"), fields) == "exists"
    assert driver.redis.lrange(QUEUE, 0, -1) == before


def test_only_data_that_was_seen_to_be_damaged_is_dropped(driver: Driver) -> None:
    assert not driver.runs.drop_bundle("none", b"damaged")
    assert not driver.runs.drop_bundle("none", b"")
    driver.runs.put_bundle("sha", b"packed")
    assert not driver.runs.drop_bundle("sha", b"damaged")
    assert driver.runs.bundle("sha") == b"packed"
    assert driver.runs.drop_bundle("sha", b"packed")
    assert not driver.runs.drop_bundle("sha", b"packed")


def test_one_leads_until_it_is_gone(driver: Driver) -> None:
    elect = driver.workers.elect
    assert elect("w0", "", 5000)
    assert elect("w0", "", 5000), "it goes on"
    assert not elect("w1", "", 5000)
    assert not elect("w1", "another", 5000)
    assert elect("w1", "w0", 5000)
    assert not elect("w0", "", 5000)


def test_where_a_fork_may_leave(driver: Driver, fork: Any) -> None:
    with pytest.raises(NotFound, match="no run r-none"):
        position(driver.redis, "r-none")
    with pytest.raises(NotFound, match="no run r-none"):
        position(driver.redis, "r-none", branch="main")
    with pytest.raises(NotFound, match="no run r-none"):
        position(driver.redis, "r-none", checkpoint="20260101T000000_0123abcd")
    run, branch = again(driver, fork, "a", "b: a")
    driver.work()
    for name in ("main", branch):
        for one in driver.runs.checkpoints(run, name):
            found = position(driver.redis, run, checkpoint=one.id)
            assert (found.branch, found.seq) == (name, one.seq)


@pytest.mark.parametrize("gone", ["the run", "the branch that it leaves"])
def test_a_fork_of_what_is_gone_meanwhile(driver: Driver, gone: str) -> None:
    run = driver.submit(plan_of("a"))
    where = position(driver.redis, run)
    driver.redis.delete(keys.run_key(run) if gone == "the run" else keys.branch_key(run, "main"))
    before = sorted(driver.redis.keys())
    how: Any = {"rerun": frozenset("a"), "kept": frozenset(), "edits": {}, "overrides": {}}
    assert create(driver.redis, where, "f", **how) == "gone"
    assert sorted(driver.redis.keys()) == before


def test_only_the_agent_at_work_in_the_task_itself_is_handed_on(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    task, start = driver.task(claim), claim.scope.task
    tool = task.append_event("tool_usage_started", "a", parent=start, ends="tool_usage_error")
    agent = task.append_event("agent_execution_started", "a", parent=start, ends="agent_execution_error")
    inner = task.append_event("agent_execution_started", "a", parent=agent, ends="agent_execution_error")
    task.release(replayed=0)
    closed = [event.started for event in driver.runs.events(run) if event.fields.get("error") == "interrupted"]
    assert closed == [inner, tool]
    assert driver.take()["a"].scope.agent == agent


def test_a_run_without_a_bundle_has_none_when_it_goes_on(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    driver.runs.cancel(run, "enough")
    assert driver.resume(run) == "resumed"
    assert not driver.redis.keys("*:bundle:*")


def test_what_was_to_be_tried_again_is_held_when_its_branch_is_over(driver: Driver, clock: Any) -> None:
    run = driver.submit(plan_of("a"))
    driver.task(driver.take()["a"]).retry(1.0, "it raised", replayed=0)
    driver.runs.cancel(run, "enough")
    assert driver.states(run) == {"a": "held"}
    clock.go_on(2000)
    assert driver.workers.move_due() == 0


# -- bundles


def test_how_long_a_bundle_lives(driver: Driver) -> None:
    bundle = keys.key("bundle_key", home=keys.home(), sha="sha")
    assert not driver.runs.put_bundle("sha", None)
    assert not driver.redis.exists(bundle)
    driver.runs.put_bundle("sha", b"packed")
    # It has an hour, and another one when it is asked for; where it has more it keeps that
    driver.redis.pexpire(bundle, 1000)
    driver.runs.put_bundle("sha", None)
    assert BUNDLE_GRACE_MS - 60_000 < driver.redis.pttl(bundle) <= BUNDLE_GRACE_MS
    driver.redis.pexpire(bundle, 2 * BUNDLE_GRACE_MS)
    driver.runs.put_bundle("sha", None)
    assert driver.redis.pttl(bundle) > BUNDLE_GRACE_MS
    # While a run needs it, it stays, also when it is asked for, and when it was damaged
    driver.submit(plan_of("a"), bundle="sha")
    driver.runs.put_bundle("sha", None)
    assert driver.redis.pttl(bundle) == -1
    driver.runs.drop_bundle("sha", b"packed")
    assert driver.runs.put_bundle("sha", b"packed")
    assert driver.redis.pttl(bundle) == -1


# -- resuming


@pytest.mark.parametrize("standing", ["runs", "waits"])
def test_what_is_not_over_is_not_resumed(driver: Driver, standing: str) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    if standing == "waits":
        asks(driver, run, "main")
    assert driver.resume(run) == "changed"
    start = driver.runs.checkpoints(run, "main")[0]
    assert driver.resume(run, "again", start=start) == ("changed" if standing == "runs" else "resumed")


@pytest.mark.parametrize("branch", ["main", "again"])
@pytest.mark.parametrize("moved", [{"expected_plan": "another"}, {"expected_status": "cancelled"}, {"expected_seq": 9}])
def test_a_run_that_somebody_moved_meanwhile_is_not_resumed(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, branch: str, moved: dict[str, Any]
) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    driver.task(driver.take()["a"]).fail("no", replayed=0)
    start = None if branch == "main" else driver.runs.checkpoints(run, "main")[0]
    slots: dict[str, Any] = {}
    with monkeypatch.context() as patch:
        patch.setattr(scripts.LuaScript, "__call__", lambda script, client, **given: slots.update(given))
        driver.resume(run, branch, start=start)
    resume = scripts.load("resume")
    before = contents(driver.redis)
    if branch == "main" or "expected_seq" not in moved:  # a new branch has no sequence yet
        assert resume(driver.redis, **{**slots, **moved}) == "changed"
    assert contents(driver.redis) == before
    assert resume(driver.redis, **slots) == "resumed"


@pytest.mark.parametrize("new", [{"fields": {"module": "other"}}, {"plan": plan_of("a", "b", "c")}])
def test_new_code_waits_until_no_branch_runs_on_the_old(driver: Driver, fork: Any, new: dict[str, Any]) -> None:
    run = driver.submit(plan_of("a", "b"))
    fork(run, branch="f")
    driver.runs.cancel(run, "enough", "main")
    assert driver.resume(run, **new) == "busy"
    driver.runs.cancel(run, "enough", "f")
    assert driver.resume(run, **new) == "resumed"


def test_a_run_goes_on_with_the_code_that_it_is_given_where_that_is_there(driver: Driver) -> None:
    driver.runs.put_bundle("old", b"packed")
    run = driver.submit(plan_of("a"), bundle="old")
    driver.runs.cancel(run, "enough")
    assert driver.resume(run, fields={"bundle": "new"}) == "no bundle"
    driver.runs.drop_bundle("old", b"packed")
    assert driver.resume(run) == "no bundle"
    other = driver.submit(plan_of("a"), "r-2")
    driver.runs.cancel(other, "enough")
    assert driver.resume(other, fields={"bundle": "new"}) == "no bundle"
    driver.runs.put_bundle("new", b"packed")
    assert driver.resume(run, fields={"bundle": "new"}) == "resumed"
    assert driver.resume(other, fields={"bundle": "new"}) == "resumed"


@pytest.mark.parametrize("kind", [STEP, AccountKey("model", "A", "gpt")])
def test_a_record_of_a_run_that_is_gone_is_refused(driver: Driver, kind: AccountKey) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    task.begin_step(kind)
    driver.line.settle()
    driver.redis.delete(keys.run_key(run))
    for _ in range(2):
        with pytest.raises(ClaimLost):
            task.record_step("s#1", "1", replayed=0, entry=kind)
        with pytest.raises(ClaimLost):
            task.record_steps([DoneStep("s#1", "1")], replayed=0)
    assert not driver.redis.exists(keys.run_key(run))


def test_new_code_stands_with_the_plan_that_stays(driver: Driver) -> None:
    for bundle in ("old", "new"):
        driver.runs.put_bundle(bundle, b"packed")
    run = driver.submit(plan_of("a"), bundle="old")
    driver.runs.cancel(run, "enough")
    assert driver.resume(run, fields={"bundle": "new"}) == "resumed"
    driver.redis.delete(keys.key("bundle_key", home=keys.home(), sha="old"))
    assert driver.runs.plan(run) == plan_of("a")
    # And with a new one, the old one has no place in it
    driver.runs.put_bundle("newest", b"packed")
    driver.runs.cancel(run, "enough")
    plan = plan_of("a", "b")
    assert driver.resume(run, plan=plan, fields={"bundle": "newest", "plan": plan.digest}) == "resumed"
    stored = driver.redis.hkeys(keys.key("bundle_key", home=keys.home(), sha="newest"))
    assert {field for field in stored if field.startswith("plan:")} == {f"plan:{plan.digest}"}
    assert not driver.redis.exists(keys.key("plan_key", run=keys.run_key(run)))
    assert driver.redis.hget(keys.run_key(run), "tasks") == "3", "so many there are to be events of"


def test_what_is_reaped_in_parts_is_what_its_process_still_holds(driver: Driver) -> None:
    """Meanwhile another process of the worker may have got it."""
    driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    driver.task(claim).release(replayed=0)
    (job,) = driver.jobs()
    assert isinstance(driver.claim(job, process="p1"), Claim)
    home = keys.home()
    reap = partial(
        scripts.load("reap"), driver.redis, home=home, workers=keys.key("workers_key", home=home),
        claims=keys.key("claims_key", home=home, worker="w0"),
        worker=keys.key("worker_key", home=home, worker="w0"), id="w0", about="", lapsed=0, reason="it died", out="{}",
        dead="", max_attempts=9, max_handovers=0, stamp="", at_once=100,
    )  # fmt: skip
    assert reap(process="p0", some=json.dumps([job.ref])) == [1, [], [], [], 0]
    assert driver.states("r-1") == {"a": "running"}
    assert reap(process="p1", some=json.dumps([job.ref, "r-9|main|a"])) == [1, [f"{job.ref}|{job.attempt}"], [], [], 0]


def test_of_a_worker_that_is_not_registered_nothing_is_left(driver: Driver) -> None:
    """One of its claims cannot be taken back; the other is."""
    run, _ = driver.submit(plan_of("a")), driver.submit(plan_of("a"), "r-2")
    for job in list(driver.jobs()):
        driver.claim(job)
    worker = keys.key("worker_key", home=keys.home(), worker="w0")
    driver.redis.delete(worker)
    with somebody_elses(driver, keys.key("events_key", run=keys.run_key(run))):
        assert len(driver.workers.reap("w0", reason="it is gone", max_attempts=9)) == 1
        assert not driver.redis.exists(worker)


def test_a_message_is_taken_if_it_is_that_of_a_job(driver: Driver) -> None:
    take = partial(scripts.load("take"), driver.redis, queue=QUEUE, job='"runner.job"')
    assert take() is None
    driver.redis.lpush(QUEUE, other := '{"headers": {"task": "another"}}')
    driver.submit(plan_of("a"))
    assert take() is None
    assert driver.redis.rpop(QUEUE) == other
    job = driver.redis.lindex(QUEUE, 0)
    assert take() == job
    driver.redis.lpush(QUEUE, spaced := '{"headers": {"task": "runner.job"}}')  # as Celery itself writes it
    assert take() == spaced
