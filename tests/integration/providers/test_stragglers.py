"""Tasks that go on while their run is over, or goes on elsewhere: what they do is kept, and decides nothing."""

import pytest

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim, Refusal
from runner.core.plan import Plan
from runner.core.states import RunStatus
from runner.providers.redis import keys

from .driver import Driver, plan_of

#: Side by side: one will fail, one goes on.
PLAN = plan_of("fails", "slow", "after: slow", "last: after fails")


def failed_with_a_straggler(driver: Driver) -> tuple[str, Claim]:
    """A run that failed while another of its tasks went on."""
    run = driver.submit(PLAN, checkpoint_on=",*,")
    claims = driver.take("fails", "slow")
    driver.task(claims["fails"]).fail("it cannot be done", replayed=0)
    assert driver.runs.get(run).status is RunStatus.failed
    return run, claims["slow"]


def failed_and_resumed_elsewhere(driver: Driver) -> tuple[str, Claim]:
    """It went on from its beginning, on a branch of its own."""
    run, slow = failed_with_a_straggler(driver)
    start = driver.runs.checkpoints(run, "main")[0]
    assert driver.resume(run, "anew", start=start) == "resumed"
    assert driver.states(run, "anew") == {"fails": "queued", "slow": "queued"}
    assert driver.states(run) == {"fails": "failed", "slow": "running"}
    return run, slow


def test_its_output_is_kept_and_a_resume_goes_on_from_there(driver: Driver) -> None:
    run, slow = failed_with_a_straggler(driver)
    assert driver.commit(slow) == "failed"
    assert driver.states(run) == {"fails": "failed"}, "nothing is unlocked"
    assert driver.resume(run) == "resumed"
    assert driver.states(run) == {"fails": "queued", "after": "queued"}
    driver.work()
    assert driver.runs.get(run).status is RunStatus.completed


def test_a_claim_whose_answer_is_lost_stands_though_the_run_is_over_meanwhile(driver: Driver, nonces: object) -> None:
    # Given a claim that was given, and not heard of
    run = driver.submit(PLAN)
    fails, slow = driver.jobs()
    nonces.next = "n1"
    assert isinstance(driver.claim(slow), Claim)
    nonces.next = "n2"
    driver.task(driver.claim(fails)).fail("it cannot be done", replayed=0)

    # When it is asked for again after the run failed
    nonces.next = "n1"
    claim = driver.claim(slow)

    # Then the worker learns that it holds it; else the task would hang on a worker that lives
    assert isinstance(claim, Claim)
    assert driver.commit(claim) == "failed"
    nonces.next = "n3"
    assert driver.claim(slow) == Refusal("failed")
    assert driver.resume(run) == "resumed"
    assert driver.states(run) == {"fails": "queued", "after": "queued"}


def test_a_resume_on_its_branch_finds_it_running(driver: Driver) -> None:
    run, slow = failed_with_a_straggler(driver)
    assert driver.resume(run) == "resumed"
    assert driver.states(run) == {"fails": "queued", "slow": "running"}
    assert driver.commit(slow) == "running"
    driver.work()
    assert driver.runs.get(run).status is RunStatus.completed
    assert len(driver.events(run, "task_started")) == 5, "slow was not done again"


def test_what_it_completes_while_the_run_is_over_is_no_longer_waited_for(driver: Driver) -> None:
    # Given a join of which one half was done while the run went on, the other after it failed
    run = driver.submit(plan_of("fails", "quick", "slow", "join: quick slow", "last: join"))
    claims = driver.take("fails", "quick", "slow")
    waits = f"runner:{{p0}}:run:{run}:branch:main:waits"
    driver.commit(claims["quick"])
    assert driver.redis.hgetall(waits) == {"join": "1"}
    driver.task(claims["fails"]).fail("it cannot be done", replayed=0)
    driver.commit(claims["slow"])
    # When it goes on
    assert driver.resume(run) == "resumed"
    # Then the join may run, and is counted once
    assert driver.states(run) == {"fails": "queued", "join": "queued"}
    assert driver.redis.hgetall(waits) == {}


def test_on_a_branch_that_was_left_it_unlocks_nothing(driver: Driver) -> None:
    run, slow = failed_and_resumed_elsewhere(driver)
    driver.commit(slow)
    assert driver.states(run) == {"fails": "failed"}
    assert driver.outputs(run) == {"slow": "slow()"}


def test_on_a_branch_that_was_left_it_fails_nothing(driver: Driver) -> None:
    run, slow = failed_and_resumed_elsewhere(driver)
    driver.task(slow).fail("it cannot be done either", replayed=0)
    assert driver.runs.get(run).status is RunStatus.running
    driver.work()
    assert driver.runs.get(run).status is RunStatus.completed


@pytest.mark.parametrize("how", ["release", "retry", "reap", "reap, once too often"])
def test_on_a_branch_that_was_left_it_is_not_done_again(driver: Driver, how: str) -> None:
    run, slow = failed_and_resumed_elsewhere(driver)
    match how:
        case "release":
            driver.task(slow).release(replayed=0)
        case "retry":
            driver.task(slow).retry(0.0, "it raised", replayed=0)
        case "reap":
            driver.workers.reap("w0", reason="it is gone", max_attempts=5)
        case _:
            driver.workers.reap("w0", reason="it is gone", max_attempts=1)
    assert driver.states(run)["slow"] == ("failed" if how == "reap, once too often" else "held")
    assert driver.runs.get(run).status is RunStatus.running
    driver.workers.beat("w0", 5000, "{}")
    driver.work()
    assert driver.runs.get(run).status is RunStatus.completed
    assert driver.outputs(run) == {}


def test_going_back_to_the_branch_that_was_left_finds_what_it_did(driver: Driver) -> None:
    run, slow = failed_and_resumed_elsewhere(driver)
    driver.commit(slow)
    driver.work()
    start = driver.runs.checkpoints(run, "main")[-1]
    assert driver.resume(run, "back", start=start) == "resumed"
    assert driver.states(run, "back") == {"fails": "queued", "after": "queued"}
    driver.work()
    assert driver.outputs(run, "back") == driver.outputs(run, "anew")


def test_new_code_takes_the_claim_away(driver: Driver) -> None:
    """A task that the new plan does not have must not count as one of those that are left."""
    run, slow = failed_with_a_straggler(driver)
    shorter = plan_of("fails", "last: fails")
    before = driver.workers.beat("w0", 5000).recheck
    assert driver.resume(run, plan=shorter) == "resumed"
    with pytest.raises(ClaimLost):
        driver.task(slow).commit('{"raw":"late"}', PLAN.dependents["slow"], replayed=0)
    assert driver.workers.beat("w0", 5000).recheck == before + 1, "its worker is told to look"
    assert driver.workers.claimed("w0") == 0
    driver.work()
    assert driver.runs.get(run).status is RunStatus.completed
    assert driver.outputs(run).keys() == {"fails", "last"}


def test_new_code_does_a_task_in_flight_again_and_replays_its_steps(driver: Driver) -> None:
    run, slow = failed_with_a_straggler(driver)
    driver.task(slow).record_step("ask#1", '"an answer"', replayed=0)
    longer = Plan(PLAN.crew, (*PLAN.tasks, *plan_of("more: slow").tasks))
    assert driver.resume(run, plan=longer) == "resumed"
    again = driver.take("slow")["slow"]
    assert again.token > slow.token
    assert again.recorded == {"ask#1": '"an answer"'}


def test_a_cancelled_run_has_none(driver: Driver) -> None:
    run = driver.submit(PLAN)
    claims = driver.take("fails", "slow")
    driver.task(claims["slow"]).begin_step()
    assert driver.runs.cancel(run, "enough") == "running"
    for claim in claims.values():
        with pytest.raises(ClaimLost):
            driver.commit(claim)
    assert set(driver.states(run).values()) == {"held"}
    assert driver.workers.beat("w0", 5000).recheck == 2
    assert driver.runs.get(run).in_doubt == 1, "what was begun may have been done"


def test_a_question_that_comes_when_its_branch_is_over_makes_it_wait_for_nobody(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b"))
    taken = driver.take()
    driver.task(taken["b"]).fail("no", replayed=0)
    driver.task(taken["a"]).ask("q#1", '"what?"', replayed=0)
    assert driver.runs.get(run).status is RunStatus.failed
    assert driver.events(run, "flow_paused") == []


def test_a_job_of_which_only_the_branch_is_left_is_gone(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    driver.redis.delete(keys.run_key(run))
    assert driver.claim(job) == Refusal("gone")
