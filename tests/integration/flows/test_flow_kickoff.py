"""``flow.kickoff()``: state, failures and events."""

import asyncio
import gc
import threading
import tracemalloc
from typing import Any

import pytest
from pydantic import BaseModel

from runner import Crew, Task
from runner.core.errors import BadInput
from runner.events import (
    CrewKickoffStartedEvent,
    FlowFailedEvent,
    FlowFinishedEvent,
    FlowStartedEvent,
    FlowStateConflictEvent,
    MethodExecutionFailedEvent,
    MethodExecutionFinishedEvent,
    MethodExecutionStartedEvent,
    event_bus,
)
from runner.flows import Flow, and_, human_feedback, listen, or_, start


class Counted(BaseModel):
    count: int = 0
    names: list[str] = []


@pytest.fixture
def heard():
    """Events as they come, in order."""
    events: list[Any] = []
    with event_bus.scoped_handlers():
        event_bus.on("*")(lambda source, event: events.append(event))
        yield events


def both() -> threading.Barrier:
    """Two methods that meet here do run side by side."""
    return threading.Barrier(2, timeout=20)


# -- state


def test_inputs_go_into_the_state():
    class F(Flow[Counted]):
        @start()
        def begin(self):
            return self.state.count

    assert F().kickoff(inputs={"count": 3}) == 3
    with pytest.raises(BadInput, match=r"Invalid inputs for structured state: Counted\.count"):
        F().kickoff(inputs={"count": "many"})
    flow = F()
    flow.kickoff(inputs={"id": "mine"})
    assert flow.flow_id == flow.state.id == "mine"


def test_side_by_side_each_sees_its_own_and_what_was_done_before():
    meet, seen = both(), {}

    class F(Flow[dict]):
        @start()
        def begin(self):
            self.state["items"] = []

        @listen(begin)
        def one(self):
            self.state["one"] = 1
            self.state["items"].append("one")
            meet.wait()
            seen["one"] = dict(self.state)
            meet.wait()

        @listen(begin)
        def other(self):
            self.state["other"] = 2
            self.state["items"].append("other")
            meet.wait()
            seen["other"] = dict(self.state)
            meet.wait()

        @listen(and_(one, other))
        def end(self):
            return sorted(self.state["items"]), self.state["one"], self.state["other"]

    assert F().kickoff() == (["one", "other"], 1, 2)
    assert "other" not in seen["one"]
    assert "one" not in seen["other"]


def test_a_real_conflict_is_told_and_the_later_one_wins(heard, caplog):
    first_done = threading.Event()

    class F(Flow[dict]):
        @start()
        def early(self):
            self.state["winner"] = "early"
            self.state["mine"] = 1

        @start()
        def late(self):
            assert first_done.wait(20)
            self.state["winner"] = "late"

        @listen(early)
        def signal(self):
            first_done.set()

    flow = F()
    flow.kickoff()
    assert flow.state["winner"] == "late"
    assert flow.state["mine"] == 1
    (conflict,) = [event for event in heard if isinstance(event, FlowStateConflictEvent)]
    assert (conflict.method_name, conflict.fields, conflict.others) == ("late", ["winner"], ["early"])
    assert conflict.text == (
        "winner: changed by early while late was at work; the values of late are kept, since it finished last"
    )
    assert f"F: {conflict.text}" in caplog.messages


def test_threads_that_a_method_makes_see_its_state():
    class F(Flow[dict]):
        @start()
        def begin(self):
            thread = threading.Thread(target=lambda: self.state.update(found=1))
            thread.start()
            thread.join()
            return self.state["found"]

    flow = F()
    assert flow.kickoff() == 1
    assert flow.state["found"] == 1


def test_what_cannot_be_copied_is_shared():
    class F(Flow[dict]):
        @start()
        def begin(self):
            self.state["lock"] = threading.Lock()
            self.state["n"] = 1

        @listen(begin)
        def use(self):
            with self.state["lock"]:
                self.state["n"] += 1
                return self.state["n"]

    assert F().kickoff() == 2


def test_a_failed_method_changes_nothing():
    class F(Flow[Counted]):
        @start()
        def begin(self):
            self.state.count = 7
            raise ValueError("no")

    flow = F()
    with pytest.raises(ValueError, match="no"):
        flow.kickoff()
    assert flow.state.count == 0


# -- failures


def test_what_is_at_work_beside_a_failure_is_kept():
    failed = threading.Event()

    class F(Flow[dict]):
        @start()
        def breaks(self):
            failed.set()
            raise ValueError("broken")

        @start()
        def works(self):
            assert failed.wait(20)
            self.state["kept"] = True
            return "paid for"

        @listen(works)
        def never(self):
            raise AssertionError("nothing new begins after a failure")

    flow = F()
    with pytest.raises(ValueError, match="broken"):
        flow.kickoff()
    assert flow.method_outputs == ["paid for"]
    assert flow.state["kept"] is True


def test_retries_begin_with_the_state_as_it_was_and_keep_steps():
    calls = []

    class F(Flow[Counted]):
        @start(max_retries=2, retry_delay=0.0)
        def begin(self):
            self.state.count += 1
            paid = self.step("call", calls.append, "paid")
            self.step("each", lambda: None)
            if len(calls) < 3:
                calls.append("failed")
                raise OSError("try again")
            return (self.state.count, paid)

    flow = F()
    assert flow.kickoff() == (1, None)
    assert calls == ["paid", "failed", "failed"]


def test_a_timeout():
    from runner.core.errors import TaskTimeout

    class F(Flow):
        @start(timeout=0.05)
        def slow(self):
            while True:
                threading.Event().wait(0.01)

    with pytest.raises(TaskTimeout, match=r"longer than its timeout of 0\.05 s"):
        F().kickoff()


def test_a_timeout_of_a_coroutine_method():
    from runner.core.errors import TaskTimeout

    class F(Flow):
        @start(timeout=0.05)
        async def slow(self):
            await asyncio.Event().wait()

    with pytest.raises(TaskTimeout, match=r"longer than its timeout of 0\.05 s"):
        F().kickoff()


def test_an_answer_of_a_person_is_outside_of_the_timeout_of_a_coroutine_method(monkeypatch):
    class F(Flow):
        @start(timeout=0.05)
        @human_feedback("Good?")
        async def draft(self):
            return "text"

    monkeypatch.setattr("runner.flows.execution.on_terminal", lambda _: threading.Event().wait(0.2) or "fine")
    assert F().kickoff().feedback == "fine"


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_timeout_of_what_a_coroutine_method_calls_is_not_its_own(timeout):
    class F(Flow):
        @start(timeout=timeout)
        async def asks(self):
            raise TimeoutError("the model did not answer")

    with pytest.raises(TimeoutError, match="the model did not answer"):
        F().kickoff()


def test_a_kickoff_that_is_cancelled_is_not_late():
    class F(Flow):
        @start(timeout=60)
        async def slow(self):
            begun.set()
            await asyncio.Event().wait()

    async def main():
        kickoff = asyncio.create_task(F().kickoff_async())
        await begun.wait()
        kickoff.cancel()
        with pytest.raises(asyncio.CancelledError):
            await kickoff

    begun = asyncio.Event()
    asyncio.run(main())


# -- events


def types(events: list[Any]) -> list[tuple[str, str | None]]:
    return [(event.type, getattr(event, "method_name", None)) for event in events]


def test_events_in_order_and_in_their_places(heard):
    class F(Flow[dict]):
        @start()
        def a(self):
            self.state["n"] = 1
            return "A"

        @listen(a)
        def b(self, text): ...

    flow = F()
    flow.kickoff({"q": 1})
    assert types(heard) == [
        ("flow_created", None),
        ("flow_started", None),
        ("method_execution_started", "a"),
        ("method_execution_finished", "a"),
        ("method_execution_started", "b"),
        ("method_execution_finished", "b"),
        ("flow_finished", None),
    ]
    _, began, a0, a1, b0, _, ended = heard
    assert isinstance(began, FlowStartedEvent)
    assert began.inputs == {"q": 1}
    assert a0.parent_event_id == b0.parent_event_id == began.event_id
    assert a1.started_event_id == a0.event_id
    assert b0.triggered_by_event_id == a1.event_id
    assert "n" not in a0.state
    assert a1.state["n"] == 1
    assert (a1.result, b0.params) == ("A", {"_0": "A"})
    assert isinstance(ended, FlowFinishedEvent)
    assert ended.started_event_id == began.event_id
    assert ended.parent_event_id is None


def test_events_of_a_failure(heard):
    class F(Flow):
        @start()
        def a(self):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        F().kickoff()
    assert [type(event) for event in heard[-2:]] == [MethodExecutionFailedEvent, FlowFailedEvent]
    assert heard[-1].error == "ValueError: no"


def test_a_crew_inside_a_method_is_a_child_of_it(heard):
    class F(Flow):
        @start()
        def work(self):
            return Crew(tasks=[Task(name="t", run=lambda ctx: "done")]).kickoff().raw

    assert F().kickoff() == "done"
    began = [event for event in heard if isinstance(event, CrewKickoffStartedEvent)]
    method = next(event for event in heard if isinstance(event, MethodExecutionStartedEvent))
    assert [event.parent_event_id for event in began] == [method.event_id] * len(began)


def test_a_flow_inside_a_method_has_its_own_state():
    class Inner(Flow[dict]):
        @start()
        def begin(self):
            self.state["x"] = "inner"

    class Outer(Flow[dict]):
        @start()
        def begin(self):
            self.state["x"] = "outer"
            inner = Inner()
            inner.kickoff()
            return self.state["x"], inner.state["x"]

    assert Outer().kickoff() == ("outer", "inner")


def test_quiet_flows_tell_nothing(heard):
    class F(Flow):
        suppress_flow_events = True

        @start()
        def a(self): ...

    F().kickoff()
    assert [event for event in heard if isinstance(event, MethodExecutionFinishedEvent)] == []


def test_memory_is_flat_over_many_kickoffs():
    class F(Flow[Counted]):
        @start()
        def a(self):
            return "x" * 1000

        @listen(or_(a, "never"))
        def b(self, text):
            self.state.count += len(text)

    def grown(kickoffs: int) -> int:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(kickoffs):
            F().kickoff()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    grown(20)
    # The least of two: a table of the interpreter's own (interned names) may happen to grow in one of them.
    assert min(grown(50), grown(50)) < 50_000
    tracemalloc.stop()
