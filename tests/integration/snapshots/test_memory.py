"""What hundreds of kickoffs leave in memory."""

import gc
from collections import Counter
from typing import Any

import pytest

from runner import Agent, BaseLLM, CheckpointConfig, Crew, RuntimeState, Task
from runner.events import EventRecord, event_bus
from runner.events.record import EventNode
from runner.snapshots import Progress

from ...support.soak import in_soak

KINDS = (RuntimeState, EventRecord, EventNode, Progress, Crew, Task, Agent)


def living() -> Counter[str]:
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS))


class Answers(BaseLLM):
    def __init__(self) -> None:
        super().__init__("answers")

    def call(self, messages: Any, **_: Any) -> str:
        return "an answer"


def crew(**fields: Any) -> Crew:
    tasks = [
        Task(name="a", run=lambda ctx: ctx.step("a", str, 1)),
        Task(name="b", description="Go.", agent=Agent(role="r", llm=Answers())),
    ]
    return Crew(tasks=tasks, **fields)


@pytest.mark.parametrize("armed", [False, *in_soak(True)])
def test_kickoffs_without_a_config_leave_nothing(armed, monkeypatch):
    """Also in a process in which another crew has checkpoints."""
    monkeypatch.setattr(event_bus, "_armed", armed)
    one = crew()
    one.kickoff()
    before, tracked = living(), len(gc.get_objects())
    for i in range(300):
        if i % 10 == 0:
            crew().kickoff()
        else:
            one.kickoff()
    assert living() <= before
    assert len(gc.get_objects()) - tracked < 250, "not one a kickoff"


def test_kickoffs_with_a_config_are_bounded(place):
    one = crew(checkpoint=CheckpointConfig(location=place.location, on_events=["task_completed"], max_checkpoints=1))
    one.kickoff()
    before, tracked = living(), len(gc.get_objects())
    for _ in range(200):
        one.kickoff()
    assert living() <= before
    assert len(gc.get_objects()) - tracked < 150, "not one a kickoff"


def test_a_long_run_keeps_a_bounded_record(place, monkeypatch):
    """Its oldest events go, and never a start that is open."""
    sizes, types = [], []

    def work(ctx: Any) -> str:
        for i in range(100):
            ctx.step("a", int, i)
            sizes.append(len(event_bus.runtime_state.event_record))
        types.extend(node.event.type for node in event_bus.runtime_state.event_record.all_nodes())
        return "x"

    monkeypatch.setattr(event_bus, "state_factory", lambda: bounded())
    settings = CheckpointConfig(location=place.location, max_checkpoints=1)
    Crew(tasks=[Task(name="a", run=work)], checkpoint=settings).kickoff()
    assert max(sizes) == 50
    assert types[:2] == ["crew_kickoff_started", "task_started"]


def bounded() -> RuntimeState:
    state = RuntimeState(root=[])
    state.event_record.max_nodes = 50
    return state
