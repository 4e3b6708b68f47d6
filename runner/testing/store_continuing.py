"""What every store does for a process that continues: its commit gives it the next task, and its claim, at once."""

import pytest

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim, Job
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Expansion
from runner.engine.ports import ClaimedTask
from runner.testing.store_driver import LEASE, QUEUE, StoreDriver, plan_of
from runner.testing.store_driver import NOTHING_SERVED as NONE

DIAMOND = plan_of("a", "b: a", "c: a", "d: b c")
WITH_TIMEOUT = Plan("a crew", (PlannedTask("a"), PlannedTask("b", ("a",), timeout=2.5)))
GROWS = Plan("a flow", (PlannedTask("a"),), grows={"name": "F", "methods": []})


def received(driver: StoreDriver) -> Job:
    """Return the oldest message, and leave the others where they are."""
    job = driver.receive()
    assert job is not None
    return job


def claimed(driver: StoreDriver, worker: str = "w0") -> tuple[Claim, ClaimedTask]:
    """Return the claim's task."""
    claim = driver.claim(received(driver), worker)
    assert isinstance(claim, Claim)
    return claim, driver.task(claim)


class ContinuingConformance:
    """Laws 1, 3 and 4, where a commit also claims the next task."""

    def test_a_process_continues_with_the_first_task_that_its_commit_makes_ready(self, driver: StoreDriver) -> None:
        task = driver.task(claim := driver.begun(DIAMOND))
        driver.commit(claim, task=task, process="p1")
        going = task.next
        assert going is not None
        assert (going.job.task, going.job.attempt, going.worker) == ("b", 1, claim.worker)
        assert going.token > claim.token
        assert going.context["a"]["raw"] == "a()"
        assert driver.states("r-1") == {"b": "running", "c": "queued"}
        assert [job.task for job in driver.jobs()] == ["c"], "what it continues with is not sent"
        assert [told[:2] for told in driver.event_log("r-1")][-2:] == [("task_completed", "a"), ("task_started", "b")]
        assert driver.commit(going) == "running"

    def test_a_claim_that_came_with_a_commit_is_taken_back_as_any(self, driver: StoreDriver) -> None:
        task = driver.task(claim := driver.begun(plan_of("a", "b: a")))
        driver.commit(claim, task=task, process="p1")
        assert driver.workers.reap(claim.worker, process="p1", reason="it died", max_attempts=5)
        assert driver.states("r-1") == {"b": "queued"}
        assert task.next is not None
        with pytest.raises(ClaimLost):
            driver.commit(task.next)

    @pytest.mark.parametrize(
        ("fields", "taken"), [({}, True), ({"adapter": "strange"}, False), ({"environment": "e crew.py"}, False)]
    )
    def test_a_process_after_whose_commit_nothing_is_ready_continues_with_a_job_of_its_queue(
        self, driver: StoreDriver, fields: dict[str, str], taken: bool
    ) -> None:
        task = driver.task(claim := driver.begun(plan_of("a")))
        driver.submit(plan_of("a", "b: a"), "r-2", **fields)
        assert driver.commit(claim, task=task, process="p1", queue=QUEUE) == "completed"
        assert (task.next is not None) == taken, "of the same kind alone"
        assert driver.states("r-2") == {"a": "running" if taken else "queued"}
        assert [job.run_id for job in driver.jobs()] == ([] if taken else ["r-2"])
        if task.next is not None:
            assert (task.next.job.run_id, task.next.job.task, task.next.worker) == ("r-2", "a", claim.worker)
            assert driver.commit(task.next) == "running"

    def test_what_is_ready_comes_before_what_waits(self, driver: StoreDriver) -> None:
        task = driver.task(claim := driver.begun(plan_of("a", "b: a")))
        driver.submit(plan_of("a"), "r-2")
        driver.commit(claim, task=task, process="p1", queue=QUEUE)
        assert task.next is not None
        assert task.next.job.task == "b"

    def test_a_process_continues_with_a_join_that_its_commit_completes(self, driver: StoreDriver) -> None:
        driver.commit(driver.begun(DIAMOND))
        claims = driver.take("b", "c")
        driver.commit(claims["c"])
        driver.commit(claims["b"], task=(task := driver.task(claims["b"])), process="p1")
        assert task.next is not None
        assert task.next.job.task == "d"
        assert {key: output["raw"] for key, output in task.next.context.items()} == {"b": "b(a())", "c": "c(a())"}

    def test_a_join_that_still_waits_is_passed_over(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a", "x", "b: a x", "c: a"))
        claims = driver.take("a", "x")
        driver.commit(claims["a"], task=(task := driver.task(claims["a"])), process="p1")
        assert task.next is not None
        assert task.next.job.task == "c"
        assert driver.states("r-1") == {"x": "running", "c": "running"}
        driver.commit(claims["x"])
        assert driver.states("r-1") == {"c": "running", "b": "queued"}

    def test_the_time_of_what_it_continues_with_is_limited_as_planned(self, driver: StoreDriver) -> None:
        driver.submit(WITH_TIMEOUT)
        claim, task = claimed(driver)
        driver.commit(claim, task=task, process="p1")
        beat = driver.workers.beat("w0", LEASE)
        assert [(held.process, held.deadline) for held in beat.claims] == [("p1", beat.at + 2500)]

    def test_a_plan_that_grows_tells_all_before_its_process_continues(self, driver: StoreDriver) -> None:
        driver.submit(GROWS)
        claim, task = claimed(driver)
        notes = (("task_log", "one"), ("task_log", "two"))
        assert driver.expand(claim, Expansion('{"raw": "a"}', (PlannedTask("c"),), notes=notes), "", task, "p1")
        assert task.next is not None
        events = list(driver.runs.events("r-1"))
        assert [event.type for event in events[2:]] == ["task_completed", "task_log", "task_log", "task_started"]
        assert [event.seq for event in events] == list(range(1, 7))
        assert driver.expand(task.next, Expansion('{"raw": "c"}'), driver.store.branch("r-1", "main").shared().version)

    @pytest.mark.parametrize("why", ["its own run", "over", "taken meanwhile", "of an attempt before"])
    def test_what_is_not_to_be_done_is_left_to_who_receives_messages(self, driver: StoreDriver, why: str) -> None:
        driver.submit(plan_of("a", "b") if why == "its own run" else plan_of("a"))
        claim, task = claimed(driver)
        if why != "its own run":
            driver.submit(plan_of("a"), "r-2")
        match why:
            case "over":
                driver.runs.cancel("r-2", "enough")
            case "taken meanwhile":
                driver.store.return_job(job := received(driver))
                assert isinstance(driver.claim(job, "w1"), Claim)
            case "of an attempt before":
                driver.store.return_job(job := received(driver))
                one = driver.claim(job, "w1")
                assert isinstance(one, Claim)
                driver.task(one).release(replayed=NONE)
        states = driver.states("r-2") if why != "its own run" else {"b": "queued"}
        driver.commit(claim, task=task, process="p1", queue=QUEUE)
        assert task.next is None
        assert driver.states("r-1" if why == "its own run" else "r-2") == states
        if why == "over":
            assert driver.receive() is None, "who cancels a run takes its messages out"
        else:
            assert received(driver).attempt == 1, "its message is there, the oldest"

    def test_nothing_that_waits_is_no_error(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a"))
        claim, task = claimed(driver)
        assert driver.commit(claim, task=task, process="p1", queue=QUEUE) == "completed"
        assert task.next is None

    @pytest.mark.parametrize("process", ["", "p1"])
    def test_a_task_is_done_as_the_plan_has_it_by_now(self, driver: StoreDriver, process: str) -> None:
        """Also a task in flight that waits for another one under the plan with which its run was resumed."""
        before = Plan("a crew", (PlannedTask("x"), PlannedTask("a", ("x",), ("x",), 2.5)))
        driver.submit(before)
        driver.commit(driver.take("x")["x"])
        driver.runs.cancel("r-1", "enough")
        after = Plan("a crew", (PlannedTask("x"), PlannedTask("new"), PlannedTask("a", ("new",), ())))
        assert driver.resume("r-1", plan=after, fields={"plan": after.digest}) == "resumed"
        claim = driver.take("new")["new"]
        driver.commit(claim, task=(task := driver.task(claim)), process=process)
        found = task.next if process else driver.take("a")["a"]
        assert found is not None
        assert (found.job.task, found.context) == ("a", {})
        assert [held.deadline for held in driver.workers.beat("w0", LEASE).claims] == [0]
