"""Checks of the scripts around claims that no other test comes by, as in `test_each_check`."""

from functools import partial
from typing import Any

import pytest

from runner.core.errors import ClaimLost
from runner.core.jobs import Refusal
from runner.core.ledger import AccountKey
from runner.core.plan import Plan, PlannedTask
from runner.core.states import RunStatus
from runner.providers.redis import keys, scripts
from runner.providers.redis.store import ClaimedTask, mark, return_job
from runner.providers.redis.workers import HeldClaim

from .calls import contents
from .driver import LEASE, Driver, plan_of

GPT = AccountKey("model", "A", "gpt")


# -- workers


@pytest.mark.parametrize("forgotten", ["workers_key", "worker_key"])
def test_a_worker_of_which_a_half_was_forgotten_is_told_to_register(driver: Driver, forgotten: str) -> None:
    home = keys.home()
    driver.redis.delete(keys.key(forgotten, home=home, **({"worker": "w0"} if forgotten == "worker_key" else {})))
    if forgotten == "workers_key":
        driver.workers.beat("w1", LEASE, "{}")
    before = contents(driver.redis)
    assert not driver.workers.beat("w0", LEASE).stood
    assert contents(driver.redis) == before
    assert not driver.workers.beat("w0", LEASE, "{}").stood
    assert driver.workers.beat("w0", LEASE).stood


def test_what_a_worker_says_of_itself_stays_when_it_beats(driver: Driver) -> None:
    driver.workers.beat("w0", LEASE, '{"host": "here"}')
    driver.workers.beat("w0", LEASE)
    assert [one.about for one in driver.workers.registered() if one.id == "w0"] == ['{"host": "here"}']


def test_a_worker_that_registered_anew_is_not_taken_for_the_one_that_is_gone(driver: Driver) -> None:
    driver.submit(plan_of("a"))
    driver.take("a")
    assert driver.workers.reap("w0", reason="it is gone", max_attempts=5, about="another one's") == []
    assert driver.workers.claimed("w0") == 1
    assert driver.workers.reap("w0", reason="it is gone", max_attempts=5, about="{}") != []


@pytest.mark.parametrize("lease", ["stands", "has lapsed", "is not there"])
def test_who_has_no_lease_is_gone(driver: Driver, clock: Any, lease: str) -> None:
    driver.submit(plan_of("a"))
    driver.take("a")
    if lease == "has lapsed":
        clock.go_on(LEASE)
    elif lease == "is not there":
        driver.redis.zrem(keys.key("workers_key", home=keys.home()), "w0")
    back = driver.workers.reap("w0", reason="it is gone", max_attempts=5, only_lapsed=True)
    assert len(back) == (lease != "stands")


def test_a_claim_that_was_given_up_is_taken_off_the_list_of_its_worker(driver: Driver) -> None:
    driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    claims = keys.key("claims_key", home=keys.home(), worker="w0")
    driver.task(claim).release(replayed=0)
    driver.redis.hset(claims, claim.job.ref, f"{claim.token}|p0|0")
    assert driver.workers.reap("w0", process="p0", reason="it died", max_attempts=5) == []
    assert not driver.redis.exists(claims)


def test_a_worker_that_is_gone_is_not_told_to_look(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    driver.take("a")
    record = keys.key("worker_key", home=keys.home(), worker="w0")
    driver.redis.delete(record)
    driver.runs.cancel(run, "enough")
    assert not driver.redis.exists(record)


# -- what is in doubt


def test_of_a_call_that_never_left_the_ledger_has_no_line(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    driver.task(claim).begin_step(GPT)
    driver.workers.reap("w0", process="p0", reason="it died", max_attempts=5, out={"p0": f"{claim.token} []"})
    assert driver.runs.get(run).in_doubt == 0
    assert driver.runs.ledger(run) == []


@pytest.mark.parametrize(("kind", "in_doubt"), [("model", 0), ("step", 1)])
def test_a_call_begins_when_it_is_noted_and_a_step_may_have_begun_before(
    driver: Driver, kind: str, in_doubt: int
) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    out = f'{claim.token} [["{kind}", "", "", 1, 0]]'
    driver.workers.reap("w0", process="p0", reason="it died", max_attempts=5, out={"p0": out})
    assert driver.runs.get(run).in_doubt == in_doubt


@pytest.mark.parametrize("of", ["this claim", "the one before"])
def test_what_a_process_said_of_another_claim_is_not_heard(driver: Driver, of: str) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    driver.task(claim).begin_step(GPT)
    out = f"{claim.token - (of != 'this claim')} []"
    driver.workers.reap("w0", process="p0", reason="it died", max_attempts=5, out={"p0": out})
    assert driver.runs.get(run).in_doubt == (of != "this claim")


# -- tasks


def test_a_job_of_an_attempt_that_is_over_is_not_claimed(driver: Driver) -> None:
    driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    driver.task(driver.claim(job)).release(replayed=0)
    assert driver.claim(job) == Refusal("taken")
    (second,) = driver.jobs()
    assert not isinstance(driver.claim(second), Refusal)


def test_a_claim_tells_its_worker_when_the_time_of_its_task_is_over(driver: Driver, clock: Any) -> None:
    driver.submit(Plan("a crew", (PlannedTask("a", timeout=2.5), PlannedTask("b"))))
    driver.take("a", "b")
    held = {claim.ref[-1]: claim.deadline for claim in driver.workers.beat("w0", LEASE).claims}
    assert held == {"a": clock.now + 2500, "b": 0}


def test_a_claim_brings_what_there_is_of_the_outputs_that_it_wants(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b", "c: a b"))
    driver.work(limit=2)
    driver.redis.hdel(keys.key("outputs_key", branch_key=keys.branch_key(run, "main")), "a")
    assert driver.take("c")["c"].context.keys() == {"b"}


def test_a_claim_that_is_asked_for_again_knows_a_tool_from_an_agent(driver: Driver, nonces: Any) -> None:
    driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    nonces.next = "the same"
    claim = driver.claim(job)
    assert not isinstance(claim, Refusal)
    driver.task(claim).append_event("tool_usage_started", "a", ends="tool_usage_error")
    again = driver.claim(job)
    assert not isinstance(again, Refusal)
    assert (again.token, again.scope.agent) == (claim.token, 0)


def test_a_step_of_a_run_that_is_gone_leaves_nothing(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    driver.redis.delete(keys.run_key(run))
    before = driver.redis.keys()
    with pytest.raises(ClaimLost):
        driver.task(claim).record_step("s#1", "1", replayed=0)
    assert sorted(driver.redis.keys()) == sorted(before)


def test_a_task_that_records_as_much_as_ever_does_not_get_on(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    for n in range(2):
        driver.task(driver.take()["a"]).record_step(f"another {n}", "1", replayed=0)
        driver.workers.reap("w0", process="p0", reason="it died", max_attempts=2)
    assert driver.runs.status(run) is RunStatus.failed


def test_a_line_whose_answer_is_lost_is_noted_once(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    driver.line.lose = 1
    task.note("log", "a line")
    task.note("log", "another one")
    assert [event["text"] for event in driver.events(run, "log")] == ["a line", "another one"]


def test_a_signal_marks_no_branch_that_is_over(driver: Driver) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    job = driver.take()["a"].job
    before = driver.runs.checkpoints(run, "main")
    mark(driver.redis, job, "signal_received")
    assert len(driver.runs.checkpoints(run, "main")) == len(before) + 1
    driver.runs.cancel(run, "enough")
    before = driver.runs.checkpoints(run, "main")
    mark(driver.redis, job, "signal_received")
    assert driver.runs.checkpoints(run, "main") == before


@pytest.mark.parametrize("how", ["released", "taken back", "reaped"])
def test_the_first_failure_is_the_branch_s_also_where_a_task_was_handed_over_too_often(
    driver: Driver, how: str
) -> None:
    run = driver.submit(plan_of("a", "b"))
    claims = driver.take("a", "b")
    driver.task(claims["a"]).fail("the first", replayed=0)
    if how == "released":
        driver.task(claims["b"]).release(replayed=0, max_handovers=1)
    elif how == "reaped":
        driver.workers.reap("w0", process="p0", reason="it died", max_attempts=1)
    else:
        held = HeldClaim(claims["b"].job.ref, claims["b"].token, "p0", 0)
        assert driver.workers.take_back("w0", held, reason="no process performs it", max_handovers=1)
    assert driver.states(run) == {"a": "failed", "b": "failed"}
    assert driver.runs.get(run).error == "task 'a': the first"
    assert len(driver.events(run, "crew_kickoff_failed")) == 1


@pytest.mark.parametrize("how", ["retry", "release"])
def test_who_lost_the_claim_gives_nothing_back(driver: Driver, how: str) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    task.release(replayed=0)
    driver.take()
    with pytest.raises(ClaimLost):
        task.retry(1.0, "it raised", replayed=0) if how == "retry" else task.release(replayed=0)
    assert driver.states(run) == {"a": "running"}


def test_the_next_attempt_comes_when_its_time_has_come(driver: Driver, clock: Any) -> None:
    run = driver.submit(plan_of("a"))
    driver.task(driver.take()["a"]).retry(1.0, "it raised", replayed=0)
    assert driver.states(run) == {"a": "delayed"}
    clock.go_on(999)
    assert (driver.workers.move_due(), list(driver.jobs())) == (0, [])
    clock.go_on(1)
    assert (driver.workers.move_due(), [job.attempt for job in driver.jobs()]) == (1, [2])
    assert driver.states(run) == {"a": "queued"}


def test_what_is_no_longer_delayed_is_not_sent_when_its_time_has_come(driver: Driver, clock: Any) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    due = keys.key("due_key", home=keys.home())
    driver.redis.zadd(due, {claim.job.ref: 0})
    driver.workers.move_due()
    assert not driver.redis.exists(due)
    assert (driver.states(run), list(driver.jobs())) == ({"a": "running"}, [])


def test_a_job_that_somebody_claimed_is_not_sent_on(driver: Driver) -> None:
    driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    return_job(driver.line, claim.job)
    assert list(driver.jobs()) == []


def test_only_the_claim_that_is_named_is_taken_back(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    first = driver.take()["a"]
    driver.task(first).release(replayed=0)
    second = driver.take()["a"]
    held = HeldClaim(first.job.ref, first.token, "p0", 0)
    assert not driver.workers.take_back("w0", held, reason="no process performs it")
    assert [claim.token for claim in driver.workers.beat("w0", LEASE).claims] == [second.token]
    assert driver.states(run) == {"a": "running"}
    # Where it is on its worker's list alone, it is taken off that
    claims = keys.key("claims_key", home=keys.home(), worker="w1")
    driver.redis.hset(claims, first.job.ref, f"{first.token}|p0|0")
    assert not driver.workers.take_back("w1", held, reason="no process performs it")
    assert not driver.redis.exists(claims)


def test_an_event_whose_answer_is_lost_is_told_once(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    driver.line.lose = 1
    first = task.append_event("agent_execution_started", "a", ends="agent_execution_error")
    second = task.append_event("tool_usage_started", "a", ends="tool_usage_error")
    assert second == first + 1
    assert len(driver.events(run, "agent_execution_started")) == 1


def test_an_event_that_is_no_trigger_makes_no_checkpoint(driver: Driver) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    task = driver.task(driver.take()["a"])
    before = driver.runs.checkpoints(run, "main")
    task.append_event("tool_usage_started", "a", ends="tool_usage_error")
    assert driver.runs.checkpoints(run, "main") == before
    task.append_event("agent_execution_started", "a", trigger="agent_execution_started")
    assert len(driver.runs.checkpoints(run, "main")) == len(before) + 1


def test_the_agent_of_another_kind_of_crew_is_not_at_work_still(driver: Driver) -> None:
    run = driver.submit(plan_of("a"), adapter="crewai")
    task = driver.task(driver.take()["a"])
    task.append_event("agent_execution_started", "a", parent=task._claim.scope.task, ends="agent_execution_error")
    task.release(replayed=0)
    assert [event["error"] for event in driver.events(run, "agent_execution_error")] == ["interrupted"]
    assert driver.take()["a"].scope.agent == 0


def test_a_turn_whose_answer_is_lost_is_taken_once(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    turn = partial(
        scripts.load("take_turn"), driver.redis, run=keys.run_key(run), limits='[["crew", 1]]', minute=60_000
    )
    assert [turn(nonce="one"), turn(nonce="one")] == [0, 0]
    assert turn(nonce="another") > 0


def test_an_attempt_that_failed_counts_when_the_run_goes_on(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    for failed in range(3):
        claim = driver.take()["a"]
        assert (claim.failed, claim.failures, claim.job.attempt) == (failed, 0, failed + 1)
        driver.task(claim).fail("no", replayed=0)
        assert driver.resume(run) == "resumed"


def test_what_a_join_waited_for_is_forgotten_when_it_may_run(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b", "c: a b"))
    waits = keys.key("waits_key", branch_key=keys.branch_key(run, "main"))
    driver.work(limit=1)
    assert driver.redis.hgetall(waits) == {"c": "1"}
    driver.work(limit=1)
    assert not driver.redis.exists(waits)


def test_what_a_straggler_pays_lives_no_longer_than_its_run(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b"))
    claims = driver.take()
    driver.task(claims["a"]).fail("no", replayed=0)
    driver.task(claims["b"]).record_step("s#1", "1", replayed=0, entry=GPT)
    for key in ("ledger_key", "events_key"):
        assert driver.redis.pttl(keys.key(key, run=keys.run_key(run))) > 0
    journal = keys.key("journal_key", branch_key=keys.branch_key(run, "main"), name="b")
    assert driver.redis.pttl(journal) > 0


def test_what_was_accounted_for_is_what_was_noted(driver: Driver) -> None:
    """Also the note of a step that a dead process had not begun: its worker may remember that as under way."""
    run, said = driver.submit(plan_of("a")), [""]

    def begins(number: int, replayed: int) -> ClaimedTask:
        """It has a note that is reserved for the next step."""
        task = ClaimedTask(driver.line, driver.take()["a"], partial(said.__setitem__, 0))
        for step in range(2):
            task.begin_step()
            task.record_step(f"s#{number}.{step}", "1", replayed=replayed * (not step))
        driver.line.settle()
        return task

    def seen_to() -> list[str]:
        fields = driver.redis.hgetall(keys.run_key(run))
        return [value for field, value in fields.items() if field.startswith("begun:")]

    begins(1, 0)
    driver.workers.reap("w0", process="p0", reason="it died", max_attempts=9, out={"p0": said[0]}, dead=True)
    assert (driver.runs.get(run).in_doubt, seen_to()) == (0, ['[["step","","",1]]'])
    begins(2, 2).release(replayed=0)
    assert len(seen_to()) == 1, "who says itself that it begins no more has nothing to account for"
