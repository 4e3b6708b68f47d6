"""What every store does as tasks and runs end: commits, retries, failures, the dead, questions."""

import json
from typing import Any

import pytest

from runner.core.errors import Conflict
from runner.core.ledger import Counters
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.dependencies import ReadSet
from runner.core.states import RunStatus
from runner.testing.store_driver import LEASE, StoreDriver, plan_of, seen
from runner.testing.store_driver import NOTHING_SERVED as NONE

DIAMOND = plan_of("a", "b: a", "c: a", "d: b c")


PLAN_WITH_TIMEOUT = Plan("a crew", (PlannedTask("a", timeout=2.5),))


class EndingConformance:
    """Laws 4 and 5."""

    # -- the commit: law 4

    def test_a_commit_heard_twice_is_one(self, driver: StoreDriver) -> None:
        claim = driver.begun(DIAMOND)
        assert driver.commit(claim) == "running"
        before = seen(driver), driver.event_log("r-1")
        assert driver.commit(claim) == "running"
        assert (seen(driver), driver.event_log("r-1")) == before

    def test_a_commit_is_output_checkpoint_frontier_and_jobs(self, driver: StoreDriver) -> None:
        driver.commit(driver.begun(DIAMOND))
        assert driver.states("r-1") == {"b": "queued", "c": "queued"}
        assert sorted(job.task for job in driver.jobs()) == ["b", "c"]
        (one,) = driver.runs.checkpoints("r-1", "main")
        assert (one.seq, one.trigger, one.task) == (1, "task_completed", "a")

    def test_a_join_waits_for_all_it_comes_after(self, driver: StoreDriver) -> None:
        driver.commit(driver.begun(DIAMOND))
        claims = driver.take("b", "c")
        driver.commit(claims["c"])
        assert driver.states("r-1") == {"b": "running"}
        driver.commit(claims["b"])
        assert driver.states("r-1") == {"d": "queued"}

    def test_a_task_knows_which_events_ended_it_and_its_branch(self, driver: StoreDriver) -> None:
        task = driver.task(claim := driver.begun(plan_of("a")))
        driver.commit(claim, task=task)
        assert task.end_events == (3, 4)

    def test_files_that_tasks_left_are_told_oldest_first(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a", "b: a"))
        for key, name in (("a", "x"), ("b", "y")):
            record = json.dumps({"raw": f"the text of {key}", "files": {name: None}})
            unlocks = DIAMOND.dependents[key] if key == "a" else ()
            unlocks = tuple(one for one in unlocks if one.key == "b")
            task = driver.task(driver.take(key)[key])
            task.commit(record, unlocks, used=ReadSet(files=True), replayed=NONE)
        assert driver.store.files_left("r-1", "main") == [{"x": "the text of a"}, {"y": "the text of b"}]

    # -- ends: law 5

    def test_a_retry_comes_after_its_delay_and_not_before(self, driver: StoreDriver) -> None:
        driver.task(driver.begun(DIAMOND)).retry(2.0, "it raised", trace="where", replayed=NONE)
        (standing,) = driver.runs.in_flight("r-1", "main")
        assert (standing.state, standing.attempt, standing.trace) == ("delayed", 2, "where")
        driver.go_on(1999)
        assert driver.workers.move_due() == 0
        driver.go_on(1)
        assert driver.workers.move_due() == 1
        claim = driver.take("a")["a"]
        assert (claim.failures, claim.failed) == (1, 1)

    def test_a_task_that_fails_for_good_fails_its_branch_and_a_resume_begins_it_anew(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a", "b", "c: a"))
        claims = driver.take("a", "b")
        driver.task(claims["a"]).fail("broken", replayed=NONE)
        run = driver.runs.get("r-1")
        assert (run.status, run.error) == (RunStatus.failed, "task 'a': broken")
        assert driver.commit(claims["b"]) == "failed"  # what was paid for is kept
        assert driver.resume("r-1") == "resumed"
        assert driver.states("r-1") == {"a": "queued"}
        again = driver.take("a")["a"]
        assert (again.failures, again.failed) == (0, 1)
        driver.commit(again)
        driver.work()
        assert driver.runs.get("r-1").status is RunStatus.completed

    def test_what_is_done_cannot_be_resumed(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a"))
        driver.work()
        with pytest.raises(Conflict):
            driver.resume("r-1")

    def test_a_lapsed_worker_loses_its_claims_and_a_living_one_does_not(self, driver: StoreDriver) -> None:
        claim = driver.begun(DIAMOND)
        how: dict[str, Any] = {"reason": "its lease lapsed", "max_attempts": 9, "only_lapsed": True}
        assert driver.workers.reap("w0", **how) == []
        driver.go_on(LEASE)
        assert driver.workers.reap("w0", **how) == [claim.job]
        assert not driver.workers.beat("w0", LEASE).stood
        assert driver.states("r-1") == {"a": "queued"}
        assert driver.runs.get("r-1").recoveries == 1

    def test_a_worker_that_registered_anew_is_not_judged_by_what_it_was(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        driver.take("a")
        driver.workers.beat("w0", LEASE, '{"again": 1}')
        assert driver.workers.reap("w0", reason="gone", max_attempts=9, about="{}") == []
        assert driver.states("r-1") == {"a": "running"}

    def test_a_heartbeat_tells_a_worker_what_it_holds(self, driver: StoreDriver) -> None:
        claim = driver.begun(PLAN_WITH_TIMEOUT)
        beat = driver.workers.beat("w0", LEASE)
        (held,) = beat.claims
        assert beat.stood
        assert (held.ref, held.token, held.process, held.deadline) == (claim.job.ref, claim.token, "p0", beat.at + 2500)
        driver.runs.cancel("r-1", "enough")
        after = driver.workers.beat("w0", LEASE)
        assert (after.claims, after.recheck) == ((), beat.recheck + 1)

    def test_a_task_that_kills_its_workers_fails_its_run(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        for crash in (1, 2, 3):
            driver.take("a")
            driver.workers.reap("w0", process="p0", reason="killed", max_attempts=3)
            assert driver.runs.get("r-1").status is (RunStatus.failed if crash == 3 else RunStatus.running)

    def test_a_worker_that_was_asked_to_end_has_not_died_of_its_tasks(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        for handover in (1, 2, 3):
            (claim,) = driver.take("a").values()
            how: dict[str, Any] = {"reason": "it was slow", "max_attempts": 1, "max_handovers": 3}
            assert driver.workers.reap("w0", process="p0", **how) == [claim.job]
            assert driver.runs.get("r-1").status is (RunStatus.failed if handover == 3 else RunStatus.running)
        told = [kind for kind, *_ in driver.event_log("r-1")]
        assert (told.count("task_released"), told.count("task_recovered")) == (3, 0)

    def test_who_hands_a_task_over_has_not_died_of_it(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        for handovers in (9, 9, 0):
            driver.take("a")
            driver.workers.reap("w0", process="p0", reason="it ended", max_attempts=2, max_handovers=handovers)
        assert driver.runs.get("r-1").status is RunStatus.running

    def test_a_task_that_gets_further_each_time_does_not(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        for crash in range(6):
            task = driver.task(claim := driver.take("a")["a"])
            for step in range(crash + 1):
                task.record_step(f"s#{step}", "1", replayed=Counters())
            assert len(claim.recorded) == crash
            driver.workers.reap("w0", process="p0", reason="killed", max_attempts=2)
        assert driver.runs.get("r-1").status is RunStatus.running

    def test_a_job_whose_message_is_lost_is_sent_again(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        (job,) = driver.jobs()
        assert driver.workers.redeliver(1000) == 0
        driver.go_on(1000)
        assert driver.workers.redeliver(1000) == 1
        assert list(driver.jobs()) == [job]

    def test_a_job_that_is_running_is_not_sent_again(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        driver.take("a")
        driver.go_on(1000)
        assert driver.workers.redeliver(1000) == 0
        assert list(driver.jobs()) == []

    def test_a_message_that_waits_is_not_doubled(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        driver.go_on(1000)
        assert driver.workers.redeliver(1000) == 0

    def test_a_cancelled_run_goes_on_from_what_was_recorded(self, driver: StoreDriver) -> None:
        driver.task(driver.begun(DIAMOND)).record_step("s#1", '"paid"', replayed=NONE)
        assert driver.runs.cancel("r-1", "enough") == "running"
        assert driver.runs.cancel("r-1", "enough") == "cancelled"
        assert driver.states("r-1") == {"a": "held"}
        assert driver.resume("r-1") == "resumed"
        assert driver.resume("r-1") == "changed"
        assert driver.take("a")["a"].recorded == {"s#1": '"paid"'}

    # -- questions

    def test_a_question_waits_for_its_answer_and_goes_on_with_it(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(plan_of("a", "b: a")))
        task.record_step("s#1", '"paid"', replayed=NONE)
        task.ask("q#1", '{"message": "Good?", "emit": ["yes"]}', replayed=NONE)
        assert driver.runs.get("r-1").status is RunStatus.waiting
        (question,) = driver.runs.questions("r-1", "main")
        assert (question.task, question.message, question.labels) == ("a", "Good?", ["yes"])
        assert driver.runs.answer("r-1", "main", question, '"yes"') == "answered"
        assert driver.runs.answer("r-1", "main", question, '"no"') == "not asked"
        claim = driver.take("a")["a"]
        assert claim.recorded == {"s#1": '"paid"', "q#1": '"yes"'}
        assert driver.runs.get("r-1").status is RunStatus.running
        driver.task(claim).ask("q#2", "{}", replayed=NONE)
        assert driver.runs.answer("r-1", "main", question, '"late"') == "changed"

    def test_a_branch_of_which_more_is_in_flight_than_was_asked_goes_on(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a", "b", "c", "d: a b c"))
        claims = driver.take("a", "b", "c")
        driver.task(claims["a"]).ask("q#1", "{}", replayed=NONE)
        assert driver.commit(claims["b"]) == "running"
        assert driver.commit(claims["c"]) == "waiting"

    def test_a_branch_waits_when_nothing_else_is_in_flight(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a", "b", "c: a b"))
        claims = driver.take("a", "b")
        driver.task(claims["a"]).ask("q#1", "{}", replayed=NONE)
        assert driver.runs.get("r-1").status is RunStatus.running
        assert driver.commit(claims["b"]) == "waiting"
        assert driver.runs.cancel("r-1", "enough") == "waiting"
        (question,) = driver.runs.questions("r-1", "main")
        assert driver.runs.answer("r-1", "main", question, "1") == "cancelled"

    @pytest.mark.parametrize("after", [("x", "b2"), ("x", "b2", "c: b2"), ("x", "n", "b2: n", "c: b2")])
    def test_what_failed_and_is_in_the_plan_no_more_does_not_keep_a_question_from_its_person(
        self, driver: StoreDriver, after: tuple[str, ...]
    ) -> None:
        driver.submit(plan_of("x", "b"))
        claims = driver.take("x", "b")
        driver.commit(claims["x"])
        driver.task(claims["b"]).fail("no", replayed=NONE)
        assert resumed(driver, *after) == "running"
        assert driver.states("r-1")["b"] == "failed", "as it was: who resumes with the plan of before knows"
        if "n" in after:
            driver.commit(driver.take("n")["n"])
        driver.task(driver.take("b2")["b2"]).ask("q#1", "{}", replayed=NONE)
        assert driver.runs.get("r-1").status is RunStatus.waiting
        assert driver.runs.branch("r-1", "main").status is RunStatus.waiting
        (question,) = driver.runs.questions("r-1", "main")
        assert driver.runs.answer("r-1", "main", question, "1") == "answered"
        driver.work()
        assert driver.runs.get("r-1").status is RunStatus.completed

    @pytest.mark.parametrize("process", ["", "p1"])
    def test_what_was_set_aside_and_is_begun_again_is_waited_for(self, driver: StoreDriver, process: str) -> None:
        """The question is asked again: the one before takes no answer any more."""
        driver.submit(plan_of("a", "b", "other"))
        claims = driver.take("a", "b", "other")
        driver.task(claims["a"]).ask("q#1", "{}", replayed=NONE)
        (stale,) = driver.runs.questions("r-1", "main")
        driver.task(claims["other"]).fail("no", replayed=NONE)
        assert resumed(driver, "b", "new", "a: new") == "running"
        assert driver.runs.questions("r-1", "main") == []
        assert driver.runs.answer("r-1", "main", stale, "1") == "not asked"
        claims = driver.take("b", "new")
        driver.task(claims["b"]).ask("q#1", "{}", replayed=NONE)
        task = driver.task(claims["new"])
        assert driver.commit(claims["new"], task=task, process=process) == "running"
        again = task.next or driver.take("a")["a"]
        driver.task(again).ask("q#1", "{}", replayed=NONE)
        assert driver.runs.get("r-1").status is RunStatus.waiting
        for question in driver.runs.questions("r-1", "main"):
            assert driver.runs.answer("r-1", "main", question, "1") == "answered"
        driver.work()
        assert driver.runs.get("r-1").status is RunStatus.completed

    @pytest.mark.parametrize("after", [(), ("a",), ("a", "c: a")])
    def test_a_resume_after_which_only_questions_stand_waits_for_them(
        self, driver: StoreDriver, after: tuple[str, ...]
    ) -> None:
        driver.submit(plan_of("a", "b") if after else plan_of("a"))
        claims = driver.take()
        driver.task(claims["a"]).ask("q#1", "{}", replayed=NONE)
        if after:
            driver.task(claims["b"]).fail("no", replayed=NONE)
        else:
            driver.runs.cancel("r-1", "enough")
        assert resumed(driver, *after) == "waiting"
        (question,) = driver.runs.questions("r-1", "main")
        assert driver.runs.answer("r-1", "main", question, "1") == "answered"
        driver.work()
        assert driver.runs.get("r-1").status is RunStatus.completed


def resumed(driver: StoreDriver, *tasks: str) -> str:
    """Resume with this plan, or with the run's own. Returns the run's status after it."""
    plan = plan_of(*tasks) if tasks else None
    how: dict[str, Any] = {"plan": plan, "fields": {"plan": plan.digest}} if plan is not None else {}
    assert driver.resume("r-1", **how) == "resumed"
    return driver.runs.get("r-1").status.value
