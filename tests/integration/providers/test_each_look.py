"""What a script looks at before its first write is what it writes, no less and no more: a test for each look.

`test_all_or_nothing` breaks every key that a call touches; here are those that a call comes by in some cases alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from redis.exceptions import ResponseError

from runner.core.errors import ClaimLost
from runner.core.jobs import Refusal
from runner.core.ledger import AccountKey, Counters, Usage
from runner.core.plan import THREAD, Plan, PlannedTask, queue_for
from runner.core.states import RunStatus
from runner.journal.recorder import DoneStep
from runner.providers.redis import keys, scripts, store
from runner.providers.redis.keys import queue_of
from runner.providers.redis.workers import HeldClaim

from .calls import contents
from .driver import QUEUE, Driver, plan_of
from .others import refused, somebody_elses

GPT = AccountKey("model", "A", "gpt")


def run_part(name: str, run: str) -> str:
    return keys.key(name, run=keys.run_key(run))


def branch_part(name: str, run: str, branch: str = "main") -> str:
    return keys.key(name, branch_key=keys.branch_key(run, branch))


@pytest.mark.parametrize("then", ["goes on", "is its branch's last", "comes when its branch is over"])
def test_a_commit_looks_at_what_it_writes_alone(driver: Driver, then: str) -> None:
    """Where a key is somebody else's, who does not write to it goes on."""
    driver.submit(plan_of("a", "b", "c", "d: c"))
    claims = driver.take("a", "b", "c")
    home = keys.HOME
    if then == "goes on":
        driver.redis.set(keys.key("expiring_key", home=home), "somebody else's")
        driver.redis.set(QUEUE, "somebody else's")
        assert driver.commit(claims["a"]) == "running"
    elif then == "is its branch's last":
        driver.commit(claims["a"])
        driver.commit(claims["b"])
        driver.commit(claims["c"])
        (last,) = driver.take("d").values()
        driver.redis.set(QUEUE, "somebody else's")
        assert driver.commit(last) == "completed"
    else:
        driver.task(claims["a"]).fail("no", replayed=0)
        driver.redis.set(QUEUE, "somebody else's")
        assert driver.commit(claims["c"]) == "failed"
    driver.redis.delete(QUEUE, keys.key("expiring_key", home=home))


def test_a_worker_of_whose_claims_one_cannot_be_taken_back_stays(driver: Driver) -> None:
    run, other = driver.submit(plan_of("a")), driver.submit(plan_of("a"), "r-2")
    jobs = {job.run_id: job for job in driver.jobs()}
    for job in jobs.values():
        driver.claim(job)
    with somebody_elses(driver, run_part("events_key", run)):
        assert driver.workers.reap("w0", reason="it is gone", max_attempts=5) == [jobs[other]]
        assert driver.workers.claimed("w0") == 1
        assert "w0" in [one.id for one in driver.workers.registered()]
    assert driver.workers.reap("w0", reason="it is gone", max_attempts=5) == [jobs[run]]
    assert "w0" not in [one.id for one in driver.workers.registered()]


def test_a_commit_whose_output_is_there_writes_nothing_over_it(driver: Driver) -> None:
    """It does not look for one before: that it is the first to write it shows with its first write."""
    run = driver.submit(plan_of("a", "b: a"))
    claim = driver.take()["a"]
    driver.redis.hset(branch_part("outputs_key", run), "a", '{"seq":1,"token":1,"raw":"another"}')
    before = contents(driver.redis)
    with pytest.raises(ClaimLost):
        driver.commit(claim)
    after = contents(driver.redis)
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert changed == {keys.run_key(run), run_part("events_key", run)}, "an event says that it was refused"


def test_a_commit_looks_at_the_ledger_where_it_writes_there(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b", "c"))
    claims = driver.take()
    driver.task(claims["a"]).record_step("s#1", "1", replayed=0)
    driver.task(claims["b"]).begin_step(GPT)
    with somebody_elses(driver, run_part("ledger_key", run)):
        replayed = Counters({GPT: 1})
        with refused(driver):
            driver.task(claims["a"]).commit('{"raw":"a"}', [], replayed=replayed)
        with refused(driver):
            driver.task(claims["b"]).commit('{"raw":"b"}', [], replayed=0)
        assert driver.commit(claims["a"]) == "running"
        assert driver.commit(claims["c"]) == "running"


def test_a_step_looks_at_what_it_writes_alone(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    with somebody_elses(driver, run_part("events_key", run)):
        task.record_step("s#1", "1", replayed=0)
        with refused(driver):
            task.record_step("s#2", "1", replayed=0, entry=GPT)
    with somebody_elses(driver, run_part("ledger_key", run)):
        task.record_step("s#3", "1", replayed=0, entry=None)
        with refused(driver):
            task.record_step("s#4", "1", replayed=0, entry=GPT, reported=True)
        with refused(driver):
            task.record_step("s#5", "1", replayed=Counters({GPT: 1}), entry=None)
        with refused(driver):
            task.record_steps([DoneStep("s#6", "1")], replayed=Counters({GPT: 1}))
    # As versions of before, which recorded all by one script
    monkeypatch.setattr(task, "_record_call", lambda *_: 0)
    for part in ("events_key", "ledger_key"):
        with somebody_elses(driver, run_part(part, run)), refused(driver):
            task.record_step("s#7", "1", replayed=0, entry=GPT, usage=Usage(5, 2))


@pytest.mark.parametrize("envelope", ["", None])
def test_a_job_is_sent_past_the_one_of_queue_and_outbox_that_it_does_not_take(
    driver: Driver, envelope: str | None
) -> None:
    driver.submit(plan_of("a"), **({} if envelope is None else {"envelope": envelope}))
    (job,) = driver.jobs() if envelope is None else driver.workers.outbox()
    claim = driver.claim(job)
    assert not isinstance(claim, Refusal)
    outbox = keys.key("outbox_key", home=keys.home())
    with somebody_elses(driver, QUEUE if envelope == "" else outbox):
        driver.task(claim).release(replayed=0)


@pytest.mark.parametrize("asked", ["", None], ids=["for none", "nothing said"])
def test_who_keeps_no_checkpoints_looks_at_none(driver: Driver, asked: str | None) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on="")
    if asked is None:
        driver.redis.hdel(keys.run_key(run), "checkpoint_on")
    with somebody_elses(driver, branch_part("checkpoints_key", run)):
        claim = driver.take()["a"]
    with somebody_elses(driver, branch_part("lineage_key", run)):
        # (As it ends its branch, it would look at all of them.)
        driver.redis.hincrby(keys.branch_key(run, "main"), "left", 1)
        assert driver.commit(claim) == "running"


def test_the_end_of_a_branch_looks_at_no_other_while_one_goes_on(driver: Driver, fork: Any) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    fork(run, branch="f")
    with somebody_elses(driver, branch_part("commit_log_key", run, "f")):
        (job,) = [job for job in driver.jobs() if job.branch == "main"]
        claim = driver.claim(job)
        assert not isinstance(claim, Refusal)
        assert driver.commit(claim) == "completed"


def test_a_task_that_may_be_tried_again_is_taken_back_whatever_the_end_of_its_run_would_come_by(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    with somebody_elses(driver, branch_part("shared_key", run)):
        assert driver.workers.reap("w0", process="p0", reason="it died", max_attempts=1) == []
        assert driver.workers.reap("w0", process="p0", reason="it died", max_attempts=2) == [claim.job]


@pytest.mark.parametrize("part", ["open_key", "waits_key"])
def test_a_resume_looks_at_its_branch_also_while_another_one_goes_on(driver: Driver, fork: Any, part: str) -> None:
    run = driver.submit(plan_of("a", "b"), checkpoint_on=",*,")
    fork(run, branch="f")
    driver.runs.cancel(run, "enough", "main")
    with somebody_elses(driver, branch_part(part, run)), refused(driver):
        driver.resume(run)
    assert driver.resume(run) == "resumed"


def test_a_claim_that_does_not_hold_is_not_taken_back_whatever_its_run_has(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    driver.task(claim).release(replayed=0)
    with somebody_elses(driver, run_part("events_key", run)):
        held = HeldClaim(claim.job.ref, claim.token, "p0", 0)
        assert not driver.workers.take_back("w0", held, reason="no process performs it")


def test_an_event_that_triggers_no_checkpoint_looks_at_none(driver: Driver) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    task = driver.task(driver.take()["a"])
    with somebody_elses(driver, branch_part("checkpoints_key", run)):
        assert task.append_event("tool_usage_started", "a", ends="tool_usage_error")
        with refused(driver):
            task.append_event("agent_execution_started", "a", trigger="agent_execution_started")


def test_a_job_of_a_run_that_cannot_be_written_to_holds_up_no_other(driver: Driver, clock: Any) -> None:
    run, _ = driver.submit(plan_of("a")), driver.submit(plan_of("a"), "r-2")
    with somebody_elses(driver, run_part("events_key", run)):
        driver.redis.delete(QUEUE)
        clock.go_on(1000)
        assert driver.workers.redeliver(1000) == 1
        assert [job.run_id for job in driver.jobs()] == ["r-2"]
        clock.go_on(999)
        assert driver.workers.redeliver(1000) == 0
    clock.go_on(1)
    assert driver.workers.redeliver(1000) == 2


def test_an_attempt_of_a_run_that_cannot_be_written_to_holds_up_no_other(driver: Driver, clock: Any) -> None:
    run, _ = driver.submit(plan_of("a")), driver.submit(plan_of("a"), "r-2")
    for job in list(driver.jobs()):
        claim = driver.claim(job)
        assert not isinstance(claim, Refusal)
        driver.task(claim).retry(1.0, "it raised", replayed=0)
    clock.go_on(1000)
    with somebody_elses(driver, run_part("events_key", run)):
        driver.workers.move_due()
        assert [job.run_id for job in driver.jobs()] == ["r-2"]
    clock.go_on(1000)
    assert driver.workers.move_due() == 1
    assert [job.run_id for job in driver.jobs()] == [run]


def test_an_answer_looks_at_the_journal_before_it_takes_its_run_along(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    driver.task(driver.take()["a"]).ask("q#1", '"what?"', replayed=0)
    (question,) = driver.runs.questions(run, "main")
    driver.redis.hdel(keys.run_key(run), "protocol")  # by a version of before
    journal = keys.key("journal_key", branch_key=keys.branch_key(run, "main"), name="a")
    with somebody_elses(driver, journal), refused(driver):
        driver.runs.answer(run, "main", question, '"that"')
    assert driver.runs.answer(run, "main", question, '"that"') == "answered"


def test_who_counts_a_call_looks_at_the_ledger(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    driver.task(claim).release(replayed=0)
    about = {"run": keys.run_key(run), "task": keys.key("task_key", branch_key=keys.branch_key(run, "main"), name="a")}
    call = {**about, "name": "main", "key": "a", "token": claim.token, "begun": "", "new": Counters([GPT]).text()}
    with somebody_elses(driver, run_part("ledger_key", run)), refused(driver):
        scripts.load("begin_step")(driver.redis, **call)
    assert scripts.load("begin_step")(driver.redis, **call) == 0
    assert driver.runs.get(run).in_doubt == 1


def test_a_commit_looks_at_what_it_unlocks(driver: Driver) -> None:
    run = driver.submit(plan_of("a", "b", "c: a b", "d: a"))
    claims = driver.take()
    unlocked = keys.key("task_key", branch_key=keys.branch_key(run, "main"), name="d")
    for key in (branch_part("waits_key", run), unlocked, QUEUE, keys.key("queued_key", home=keys.home())):
        with somebody_elses(driver, key), refused(driver):
            driver.commit(claims["a"])
    assert driver.commit(claims["a"]) == "running"


@pytest.mark.parametrize("index", ["queued_key", "due_key", "active_key", "expiring_key"])
def test_the_last_commit_looks_at_what_its_run_ends_with(driver: Driver, index: str) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    if index in ("queued_key", "due_key"):  # it looks there for what else is in flight
        driver.redis.sadd(branch_part("open_key", run), "of a plan of before")
        driver.task(claim).note("log", "a run to which nothing else has happened has no such task")
        driver.line.settle()
    with somebody_elses(driver, keys.key(index, home=keys.home())), refused(driver):
        driver.commit(claim)
    assert driver.commit(claim) == "completed"


@pytest.mark.parametrize("end", ["commit", "fail", "release", "take back", "reap"])
@pytest.mark.parametrize("what", ["its checkpoints", "a task in flight"])
def test_the_end_of_a_branch_looks_at_it_also_while_another_one_goes_on(
    driver: Driver, fork: Any, end: str, what: str
) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    fork(run, branch="f")
    (job,) = [job for job in driver.jobs() if job.branch == "main"]
    claim = driver.claim(job)
    assert not isinstance(claim, Refusal)
    task, held = driver.task(claim), HeldClaim(job.ref, claim.token, "p0", 0)
    driver.redis.sadd(branch_part("open_key", run), "of a plan of before")
    other = keys.key("task_key", branch_key=keys.branch_key(run, "main"), name="of a plan of before")
    ends: dict[str, Callable[[], Any]] = {
        "commit": lambda: driver.commit(claim),
        "fail": lambda: task.fail("no", replayed=0),
        "release": lambda: task.release(replayed=0, max_handovers=1),
        "take back": lambda: driver.workers.take_back("w0", held, reason="no process performs it", max_handovers=1),
        "reap": lambda: driver.workers.reap("w0", process="p0", reason="it died", max_attempts=1),
    }
    with somebody_elses(driver, other if what == "a task in flight" else branch_part("checkpoints_key", run)):
        if end == "reap":  # it does not hold up those of others
            before = contents(driver.redis)
            assert ends[end]() == []
            assert contents(driver.redis) == before
        else:
            with refused(driver):
                ends[end]()
    ends[end]()
    assert driver.runs.status(run, "main") is (RunStatus.completed if end == "commit" else RunStatus.failed)


def test_a_run_that_is_gone_is_missed_before_anything_is_written(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    driver.redis.delete(keys.run_key(run))
    before = contents(driver.redis)
    with pytest.raises(ResponseError, match="there is no run here"):
        driver.task(claim).release(replayed=0)
    assert contents(driver.redis) == before


def test_a_refusal_is_told_or_changes_nothing(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    task.release(replayed=0)
    with somebody_elses(driver, run_part("events_key", run)), refused(driver):
        task.record_step("s#1", "1", replayed=0)
    with pytest.raises(ClaimLost):
        task.record_step("s#1", "1", replayed=0)
    assert [event["operation"] for event in driver.events(run, "write_refused")] == ["step"]


def test_what_is_somebody_else_s_gets_no_lifetime_from_a_run(driver: Driver, fork: Any) -> None:
    run = driver.submit(plan_of("a"))
    fork(run, branch="f")
    driver.runs.cancel(run, "enough", "f")
    for part in ("outputs_key", "commit_log_key", "checkpoints_key", "shared_key"):
        with somebody_elses(driver, branch_part(part, run, "f")), refused(driver):
            driver.runs.cancel(run, "enough")
    assert driver.runs.cancel(run, "enough") == "running"


@pytest.mark.parametrize("index", ["queued_key", "due_key"])
def test_who_leaves_a_job_to_others_looks_at_where_it_is_to_wait(driver: Driver, index: str) -> None:
    driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    unfit = partial(store.claim, driver.line, job, worker="w0", process="p0", unfit=["native"])
    with somebody_elses(driver, keys.key(index, home=keys.home())), refused(driver):
        unfit()
    assert unfit() == Refusal("unfit")


def test_a_commit_looks_at_the_claims_of_its_worker(driver: Driver) -> None:
    driver.submit(plan_of("a", "b"))
    claims = driver.take()
    with somebody_elses(driver, keys.key("claims_key", home=keys.home(), worker="w0")), refused(driver):
        driver.commit(claims["a"])
    assert driver.commit(claims["a"]) == "running"


def test_the_last_commit_of_a_run_with_other_branches_looks_at_all_of_them(driver: Driver, fork: Any) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    fork(run, branch="f")
    driver.runs.cancel(run, "enough", "f")
    (claim,) = driver.take().values()
    assert claim.job.branch == "main"
    for part in ("open_key", "waits_key"):
        with somebody_elses(driver, branch_part(part, run, "f")), refused(driver):
            driver.commit(claim)
    assert driver.commit(claim) == "completed"


@pytest.mark.parametrize("part", ["bundle_key", "batch_key", "batch_ended_key"])
def test_the_last_commit_looks_at_what_its_run_shares_with_others(driver: Driver, part: str) -> None:
    driver.runs.put_bundle("sha", b"packed")
    run = driver.submit(plan_of("a"), bundle="sha")
    claim = driver.take()["a"]
    driver.redis.hset(keys.run_key(run), "batch", "b-1")
    shared = {"bundle_key": {"sha": "sha"}}.get(part, {"batch": "b-1"})
    with somebody_elses(driver, keys.key(part, home=keys.home(), **shared)), refused(driver):
        driver.task(claim).commit('{"raw":"a"}', (), replayed=0)
    assert driver.commit(claim) == "completed"


@pytest.mark.parametrize("part", ["branches_key", "branch_key"])
def test_who_ends_a_branch_looks_at_the_others_of_its_run(driver: Driver, fork: Any, part: str) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    fork(run, branch="f")
    driver.runs.cancel(run, "enough", "f")
    task = driver.task(next(iter(driver.take().values())))
    key = run_part(part, run) if part == "branches_key" else keys.branch_key(run, "f")
    with somebody_elses(driver, key), refused(driver):
        task.fail("no", replayed=0)
    task.fail("no", replayed=0)


def test_a_task_of_a_shared_thread_is_sent_where_its_queue_is_one(driver: Driver) -> None:
    queue = queue_of(QUEUE)
    threads = queue_for(queue, THREAD)
    waits = PlannedTask("b", ("a",), pool=THREAD)
    driver.submit(Plan("a crew", (PlannedTask("a"), waits, PlannedTask("c", ("a",)))), queue=queue)
    claim = driver.claim(next(driver.jobs(queue)))
    assert not isinstance(claim, Refusal)
    with somebody_elses(driver, threads), refused(driver):
        driver.commit(claim)
    assert driver.commit(claim) == "running"


def test_a_worker_that_ends_looks_at_what_the_end_of_a_branch_comes_by(driver: Driver) -> None:
    run = driver.submit(plan_of("a"))
    claim = driver.take()["a"]
    how: Any = {"process": "p0", "reason": "it was slow", "max_attempts": 9}
    with somebody_elses(driver, branch_part("shared_key", run)):
        assert driver.workers.reap("w0", **how, max_handovers=1) == []
        assert driver.workers.reap("w0", **how, max_handovers=2) == [claim.job]


def test_a_new_branch_is_listed_also_while_another_one_goes_on(
    driver: Driver, fork: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = driver.submit(plan_of("a"), checkpoint_on=",*,")
    fork(run, branch="f")
    driver.runs.cancel(run, "enough", "main")
    slots: dict[str, Any] = {}
    with monkeypatch.context() as patch:
        patch.setattr(scripts.LuaScript, "__call__", lambda script, client, **given: slots.update(given))
        driver.resume(run, "again", start=driver.runs.checkpoints(run, "main")[0])
    with somebody_elses(driver, run_part("branches_key", run)), refused(driver):
        scripts.load("resume")(driver.redis, **slots)
    assert scripts.load("resume")(driver.redis, **slots) == "resumed"
