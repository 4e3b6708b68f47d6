"""What every store does about claims: one holds a task, only it writes, and its steps are not lost."""

from collections.abc import Callable
from typing import Any

import pytest

from runner.core.errors import ClaimLost, NotFound
from runner.core.jobs import Claim, Job, Needed, Refusal
from runner.core.ledger import STEP, AccountKey, Counters, Usage
from runner.core.plan.dependencies import ReadSet
from runner.core.states import RunStatus
from runner.engine.ports import ClaimedTask
from runner.journal.recorder import BegunStep, DoneStep
from runner.providers.records import HeldClaim
from runner.testing.store_driver import LEASE, StoreDriver, plan_of, seen
from runner.testing.store_driver import NOTHING_SERVED as NONE

GPT, TOOL = AccountKey("model", "A", "gpt"), AccountKey("tool", model="look")
DIAMOND = plan_of("a", "b: a", "c: a", "d: b c")


WRITES: dict[str, Callable[[ClaimedTask], Any]] = {
    "record": lambda task: task.record_step("s#1", "1", replayed=NONE),
    "record some": lambda task: task.record_steps([DoneStep("s#1", "1")], begins=[BegunStep()], replayed=NONE),
    "begin a call": lambda task: task.begin_step(GPT),
    "note": lambda task: task.note("task_log", "here"),
    "append_event": lambda task: task.append_event("my_own", "a"),
    "commit": lambda task: task.commit('{"raw": "late"}', (), used=ReadSet(), replayed=NONE),
    "release": lambda task: task.release(replayed=NONE),
    "retry": lambda task: task.retry(1.0, "it raised", replayed=NONE),
    "fail": lambda task: task.fail("broken", replayed=NONE),
    "ask": lambda task: task.ask("q#1", "{}", replayed=NONE),
}

#: Each way in which a claim may end.
ENDS: dict[str, Callable[[StoreDriver, Claim, ClaimedTask], Any]] = {
    "released": lambda _driver, _claim, task: task.release(replayed=NONE),
    "retried": lambda _driver, _claim, task: task.retry(0, "it raised", replayed=NONE),
    "failed": lambda _driver, _claim, task: task.fail("broken", replayed=NONE),
    "committed": lambda driver, claim, task: driver.commit(claim, task=task),
    "reaped": lambda driver, _claim, _task: driver.workers.reap("w0", process="p0", reason="gone", max_attempts=9),
    "reaped as a whole": lambda driver, _claim, _task: driver.workers.reap("w0", reason="gone", max_attempts=9),
    "taken back": lambda driver, claim, _task: driver.workers.take_back("w0", _held(claim), **TAKEN_BACK),
    "cancelled": lambda driver, _claim, _task: driver.runs.cancel("r-1", "enough"),
}
TAKEN_BACK: dict[str, Any] = {"reason": "no process performs it", "max_handovers": 9}


def _held(claim: Claim) -> HeldClaim:
    return HeldClaim(claim.job.ref, claim.token, "p0", 0)


def _served() -> Counters:
    served = Counters()
    served.served(GPT, Usage(7, 3))
    return served


#: Each way to record a step. (What is served from the journal counts where it was recorded.)
RECORDS: dict[str, Callable[[ClaimedTask, str], Any]] = {
    "a step": lambda task, step: task.record_step(step, "1", replayed=NONE),
    "a call": lambda task, step: task.record_step(step, "1", entry=GPT, usage=Usage(5, 2), replayed=NONE),
    "a call after others": lambda task, step: task.record_step(step, "1", entry=GPT, replayed=_served()),
    "some": lambda task, step: task.record_steps([DoneStep(step, "1")], replayed=NONE),
}


class ClaimConformance:
    """Laws 1, 2 and 3."""

    # -- accepting

    def test_a_run_is_accepted_once(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        with pytest.raises(AssertionError):
            driver.submit(plan_of("another"))
        assert driver.states("r-1") == {"a": "queued"}
        assert driver.store.plan("r-1") == DIAMOND
        assert driver.store.existing(["r-1", "r-2"]) == {"r-1"}

    def test_a_run_without_its_code_is_not_accepted(self, driver: StoreDriver) -> None:
        with pytest.raises(AssertionError):
            driver.submit(DIAMOND, bundle="sha")
        assert not driver.runs.put_bundle("sha", None)
        assert driver.runs.put_bundle("sha", b"code")
        assert driver.runs.put_bundle("sha", None)
        driver.submit(DIAMOND, bundle="sha")
        assert driver.store.bundle("sha") == b"code"

    def test_damaged_code_is_forgotten_if_it_is_what_is_stored(self, driver: StoreDriver) -> None:
        driver.runs.put_bundle("sha", b"codf")
        assert not driver.store.drop_bundle("sha", b"code")
        assert driver.store.drop_bundle("sha", b"codf")
        with pytest.raises(NotFound):
            driver.store.bundle("sha")

    def test_what_is_not_there_is_not_found(self, driver: StoreDriver) -> None:
        for look in (driver.store.plan, driver.runs.get, driver.store.bundle):
            with pytest.raises(NotFound):
                look("r-9")
        assert driver.claim(Job("r-9", "main", "a", 1)) == Refusal("gone")
        assert driver.store.signature("r-9") == ""

    def test_a_run_goes_through_its_plan(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND, signature="signed")
        driver.work()
        assert driver.runs.get("r-1").status is RunStatus.completed
        assert driver.texts("r-1") == {"a": "a()", "b": "b(a())", "c": "c(a())", "d": "d(b(a()), c(a()))"}
        assert driver.states("r-1") == {}
        assert driver.store.signature("r-1") == "signed"

    # -- claims: law 3, and that a committed task never runs again

    def test_a_task_is_claimed_once(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        (job,) = driver.jobs()
        assert isinstance(driver.claim(job), Claim)
        assert driver.claim(job) == driver.claim(job, "w1") == Refusal("taken")

    def test_a_committed_task_is_never_given_again(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        (job,) = driver.jobs()
        claim = driver.claim(job)
        assert isinstance(claim, Claim)
        driver.commit(claim)
        assert driver.claim(job) == Refusal("taken")

    def test_a_claim_needs_a_lease(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        (job,) = driver.jobs()
        assert driver.claim(job, "a stranger") == Refusal("unregistered")
        driver.workers.beat("a stranger", LEASE, "{}")
        assert isinstance(driver.claim(job, "a stranger"), Claim)

    def test_a_claim_comes_with_all_that_is_needed(self, driver: StoreDriver) -> None:
        driver.commit(driver.begun(DIAMOND, inputs='{"topic": "ü"}', checkpoint_on=",task_completed,task_failed,"))
        claim = driver.take("b", "c")["c"]
        assert (claim.inputs, claim.recorded, claim.failures, claim.crew) == ({"topic": "ü"}, {}, 0, "a crew")
        assert {key: record["raw"] for key, record in claim.context.items()} == {"a": "a()"}
        assert claim.plan_digest == DIAMOND.digest
        assert claim.scope.triggers == {"task_completed", "task_failed"}

    def test_tokens_only_go_up(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        tokens = []
        for _ in range(3):
            claim = driver.take("a")["a"]
            tokens.append(claim.token)
            driver.task(claim).release(replayed=NONE)
        assert tokens == sorted(set(tokens))

    def test_a_job_that_its_worker_cannot_do_comes_again_later(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        (job,) = driver.jobs()
        assert driver.store.claim(job, worker="w0", process="p0", unfit=["native"]) == Refusal("unfit")
        assert driver.workers.move_due() == 0
        driver.go_on(1000)
        assert driver.workers.move_due() == 1
        assert driver.take("a")["a"].job == job

    def test_a_job_of_another_environment_stays_queued_and_is_told_where_it_belongs(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND, environment="0af1 in/crew.py", module="in.crew", attr="crew")
        (job,) = driver.jobs()
        for accepted in ("", ",0af,,f1,"):
            told = driver.store.claim(job, worker="w0", process="p0", unfit=(), environments=accepted)
            needed = Needed("0af1", "in/crew.py", "", "in.crew", "crew", "native")
            assert told == Refusal("environment", needed)
            assert driver.states("r-1") == {"a": "queued"}
        assert isinstance(driver.store.claim(job, worker="w0", process="p0", unfit=(), environments=",0af1,"), Claim)

    def test_a_process_for_any_environment_takes_each_and_one_for_some_what_needs_none(
        self, driver: StoreDriver
    ) -> None:
        driver.submit(DIAMOND, environment="0af1 in/crew.py", module="in.crew", attr="crew")
        driver.submit(DIAMOND, "r-2")
        first, second = driver.jobs()
        assert isinstance(driver.claim(first), Claim)
        assert isinstance(driver.store.claim(second, worker="w0", process="p0", unfit=(), environments=",0af1,"), Claim)

    def test_a_job_that_is_sent_on_waits_for_another_worker(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        (job,) = driver.jobs()
        driver.store.return_job(job)
        assert list(driver.jobs()) == [job]

    @pytest.mark.parametrize("write", WRITES)
    @pytest.mark.parametrize("end", ["released", "given to another", "reaped", "taken back", "cancelled"])
    def test_who_lost_the_claim_is_refused_and_changes_nothing(self, driver: StoreDriver, write: str, end: str) -> None:
        driver.submit(plan_of("a", "b"), checkpoint_on=",*,")
        claim = driver.take("a", "b")["a"]
        driver.task(claim).record_step("s#0", '"paid"', replayed=NONE)
        ENDS[end.replace("given to another", "released")](driver, claim, driver.task(claim))
        if end == "given to another":
            driver.take("a", process="p1")
        before = seen(driver)
        with pytest.raises(ClaimLost):
            WRITES[write](driver.task(claim))
        assert seen(driver) == before

    # -- steps: law 2

    def test_recorded_steps_come_back_to_the_next_claim(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(DIAMOND))
        for step in ("s#1", "s#2"):
            task.begin_step()
            task.record_step(step, f'"{step}"', replayed=NONE)
        driver.workers.reap("w0", process="p0", reason="it died", max_attempts=9)
        again = driver.take("a")["a"]
        assert again.recorded == {"s#1": '"s#1"', "s#2": '"s#2"'}
        assert again.job.attempt == 2
        assert driver.runs.get("r-1").in_doubt == 0

    def test_steps_side_by_side_are_recorded_together(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(DIAMOND))
        task.record_steps([], begins=[BegunStep()] * 4, replayed=NONE)
        done = [DoneStep("s#1", "1"), DoneStep("s#2", "2", None)]
        for _ in range(2):  # who records them again changes nothing
            task.record_steps(done, replayed=NONE)
        task.record_steps([DoneStep("s#1", "9"), DoneStep("s#3", "3")], dropped=1, begins=[BegunStep()], replayed=NONE)
        driver.workers.reap("w0", process="p0", reason="it died", max_attempts=9)
        assert driver.take("a")["a"].recorded == {"s#1": "1", "s#2": "2", "s#3": "3"}
        assert (driver.runs.get("r-1").paid, driver.runs.get("r-1").in_doubt) == (2, 1)

    def test_of_a_step_that_is_named_twice_side_by_side_the_first_stands(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(DIAMOND))
        task.record_steps([DoneStep("s#1", "1"), DoneStep("s#2", "2"), DoneStep("s#1", "3")], replayed=NONE)
        task.release(replayed=NONE)
        assert driver.take("a")["a"].recorded == {"s#1": "1", "s#2": "2"}
        assert driver.runs.get("r-1").paid == 2

    def test_what_was_replayed_before_steps_side_by_side_is_counted_once(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(DIAMOND))
        for _ in range(2):
            task.record_steps([DoneStep("s#1", "1"), DoneStep("s#2", "2")], replayed=Counters([STEP]))
        assert driver.runs.get("r-1").replayed == 1

    def test_a_step_that_stands_for_others_is_not_paid_for(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(DIAMOND))
        task.record_step("s#1", "1", entry=None, replayed=NONE)
        assert driver.runs.get("r-1").paid == 0

    def test_a_tool_without_a_name_is_counted_among_all(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(DIAMOND))
        task.record_step("s#1", "1", entry=AccountKey("tool"), replayed=NONE)
        assert driver.runs.get("r-1").tools_paid == 1
        assert driver.runs.tools("r-1") == {}

    # -- progress

    @pytest.mark.parametrize("how", RECORDS)
    def test_who_records_no_more_than_before_makes_no_progress(self, driver: StoreDriver, how: str) -> None:
        driver.submit(plan_of("a"))
        for crash in (1, 2):
            RECORDS[how](driver.task(driver.take("a")["a"]), f"s#{crash}")
            driver.workers.reap("w0", process="p0", reason="killed", max_attempts=2)
        assert driver.runs.get("r-1").status is RunStatus.failed

    @pytest.mark.parametrize("how", RECORDS)
    def test_who_records_more_than_before_is_handed_over_anew(self, driver: StoreDriver, how: str) -> None:
        driver.submit(plan_of("a"))
        for turn in range(3):
            task = driver.task(driver.take("a")["a"])
            for step in range(turn + 1):
                RECORDS[how](task, f"s#{turn}.{step}")
            driver.workers.reap("w0", process="p0", reason="it was slow", max_attempts=1, max_handovers=2)
        assert driver.runs.get("r-1").status is RunStatus.running

    def test_the_first_record_of_a_step_stands(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(DIAMOND))
        task.record_step("s#1", '"first"', replayed=NONE)
        task.record_step("s#1", '"second"', replayed=NONE)
        task.release(replayed=NONE)
        assert driver.take("a")["a"].recorded == {"s#1": '"first"'}
        assert driver.runs.get("r-1").paid == 1

    @pytest.mark.parametrize("end", ENDS)
    def test_what_was_begun_and_not_recorded_is_in_doubt(self, driver: StoreDriver, end: str) -> None:
        driver.submit(plan_of("a", "b"))
        claim = driver.take("a", "b")["a"]
        task = driver.task(claim)
        for entry in (GPT, GPT, TOOL):
            task.begin_step(entry)
        task.record_step("s#1", "1", entry=GPT, usage=Usage(5, 2), replayed=NONE)
        task.begin_step(GPT)
        task.drop_step(GPT)
        ENDS[end](driver, claim, task)
        run = driver.runs.get("r-1")
        assert (run.paid, run.in_doubt, run.tools_in_doubt) == (1, 1, 1)
        assert driver.runs.tools("r-1") == {"look": {"paid": 0, "replayed": 0, "in_doubt": 1}}
        (line,) = driver.runs.ledger("r-1")
        assert (line.task, line.agent, line.model, line.calls, line.in_doubt) == ("a", "A", "gpt", 1, 1)
        assert (line.prompt_tokens, line.completion_tokens) == (run.prompt_tokens, run.completion_tokens) == (5, 2)

    def test_a_call_that_never_left_a_dead_process_is_in_no_doubt(self, driver: StoreDriver) -> None:
        claim, said = driver.begun(DIAMOND), [""]
        task = driver.store.task(claim, lambda text: said.__setitem__(0, text), None)
        task.begin_step(GPT, intent_only=True)
        driver.workers.reap("w0", process="p0", reason="it died", max_attempts=9, out={"p0": said[0]})
        assert driver.runs.get("r-1").in_doubt == 0
        again = driver.take("a")["a"]
        task = driver.store.task(again, lambda text: said.__setitem__(0, text), None)
        task.begin_step(GPT, intent_only=True)
        task.mark_sent(GPT)
        driver.workers.reap("w0", process="p0", reason="it died", max_attempts=9, out={"p0": said[0]})
        assert driver.runs.get("r-1").in_doubt == 1

    def test_what_the_journal_served_is_counted(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        served = Counters()
        served.served(GPT, Usage(7, 3))
        served.served(STEP, Usage())
        driver.task(driver.take("a")["a"]).release(replayed=served)
        run = driver.runs.get("r-1")
        assert (run.replayed, run.replayed_tokens) == (2, 10)
        assert driver.runs.ledger("r-1")[0].replayed == 1

    # -- another broker

    def test_what_the_store_does_not_deliver_waits_in_the_outbox(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a", "b: a"), envelope="")
        (job,) = driver.workers.outbox()
        assert job == Job("r-1", "main", "a", 1)
        assert driver.receive() is None
        assert driver.workers.outbox() == [job], "who took it may have died before it was sent"
        driver.workers.sent(job)
        assert driver.workers.outbox() == []
        claim = driver.claim(job)
        assert isinstance(claim, Claim)
        driver.commit(claim)
        assert [job.task for job in driver.workers.outbox()] == ["b"]
