"""What every store does, wherever it keeps its runs: the laws of the design, each over the port alone."""

import pytest

from runner.core.plan.dependencies import ReadSet
from runner.testing.store_batches import BatchConformance
from runner.testing.store_branches import BranchConformance
from runner.testing.store_claims import ClaimConformance
from runner.testing.store_continuing import ContinuingConformance
from runner.testing.store_driver import NOTHING_SERVED as NONE
from runner.testing.store_driver import StoreDriver, plan_of
from runner.testing.store_endings import EndingConformance


class StoreConformance(ClaimConformance, EndingConformance, ContinuingConformance, BranchConformance, BatchConformance):
    """Tests of a store. A subclass defines the fixture ``driver``: a `StoreDriver` on an empty store."""

    @pytest.fixture
    def driver(self) -> StoreDriver:
        """Return the driver of the store under test. To be overridden."""
        raise NotImplementedError("give a fixture: driver")

    # -- events

    def test_a_run_is_one_tree_of_events(self, driver: StoreDriver) -> None:
        driver.task(driver.begun(plan_of("a", "b: a"))).release(replayed=NONE)
        driver.work()
        assert driver.event_log("r-1") == [
            ("crew_kickoff_started", "", 0, 0),
            ("task_started", "a", 1, 0),
            ("task_released", "a", 2, 0),
            ("task_resumed", "a", 2, 0),
            ("task_completed", "a", 1, 2),
            ("task_started", "b", 1, 0),
            ("task_completed", "b", 1, 6),
            ("crew_kickoff_completed", "", 0, 1),
        ]
        events = list(driver.runs.events("r-1"))
        assert [event.seq for event in events] == list(range(1, 9))
        assert list(driver.runs.events("r-1", events[5].id)) == events[6:]

    def test_what_an_attempt_left_open_is_closed_the_innermost_first(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(plan_of("a")))
        tool = task.append_event("tool_usage_started", "a", more={"tool": "x"}, ends="tool_usage_error")
        inner = task.append_event("llm_call_started", "a", parent=tool, cause=2, ends="llm_call_failed")
        done = task.append_event("llm_call_started", "a", parent=tool, ends="llm_call_failed")
        task.append_event("llm_call_completed", "a", parent=tool, started=done)
        task.retry(0, "it raised", replayed=NONE)
        assert driver.event_log("r-1")[6:8] == [
            ("llm_call_failed", "a", tool, inner),
            ("tool_usage_error", "a", 2, tool),
        ]
        events = list(driver.runs.events("r-1"))
        assert events[2].fields["tool"] == "x"
        assert events[3].cause == 2

    def test_what_is_told_goes_with_the_next_write_in_order(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(plan_of("a")))
        agent = task.defer_event("agent_execution_started", "a", ends="agent_execution_error")
        call = task.defer_event("llm_call_started", "a", more={"model": "m"}, parent=agent, ends="llm_call_failed")
        own = task.append_event("own", "a", parent=call)
        assert (agent.sequence, call.sequence, own) == (3, 4, 5)
        task.defer_event("llm_call_completed", "a", parent=agent, started=call, cause=agent)
        task.commit('{"raw": "x"}', (), used=ReadSet(), replayed=NONE)
        assert driver.event_log("r-1")[2:7] == [
            ("agent_execution_started", "a", 2, 0),
            ("llm_call_started", "a", 3, 0),
            ("own", "a", 4, 0),
            ("llm_call_completed", "a", 3, 4),
            ("agent_execution_error", "a", 2, 3),
        ]
        assert [event.fields.get("model") for event in driver.runs.events("r-1")][3] == "m"

    @pytest.mark.parametrize("end", ["release", "fail"])
    def test_no_task_ends_without_what_was_told(self, driver: StoreDriver, end: str) -> None:
        task = driver.task(driver.begun(plan_of("a")))
        task.defer_event("tool_usage_started", "a")
        if end == "fail":
            task.fail("it raised", replayed=NONE)
        else:
            task.release(replayed=NONE)
        assert driver.event_log("r-1")[2][0] == "tool_usage_started"

    def test_what_code_tells_can_be_a_checkpoint(self, driver: StoreDriver) -> None:
        task = driver.task(driver.begun(plan_of("a"), checkpoint_on=",tool_usage_finished,"))
        task.append_event("tool_usage_finished", "a", trigger="tool_usage_finished")
        task.append_event("tool_usage_error", "a", trigger="tool_usage_error")
        (one,) = driver.runs.checkpoints("r-1", "main")
        assert (one.trigger, one.task) == ("tool_usage_finished", "a")

    # -- calls in a minute

    def test_so_many_calls_of_a_minute_and_then_none(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a"))
        pacer = driver.store.pacer("r-1")
        assert [pacer.acquire([("crew", 2)]), pacer.acquire([("crew", 2), ("agent", 9)])] == [0, 0]
        assert 59 < pacer.acquire([("crew", 2)]) <= 60
        assert pacer.acquire([("agent", 9)]) == 0
        driver.go_on(60_001)
        assert driver.store.pacer("r-1").acquire([("crew", 2)]) == 0
