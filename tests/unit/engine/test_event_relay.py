"""What a task's code emits is told to its run: which figures, under which name, and when it is no longer."""

from collections.abc import Callable
from typing import Any

import pytest

from runner.testing.in_process import InProcess

EMITS = """
    from runner.events import BaseEvent, event_bus
    from runner.events.call_events import *

    def work(ctx):
        {code}
        return "done"

    crew = Crew(tasks=[Task(name="work", run=work)], checkpoint=CheckpointConfig(on_events=["tool_usage_finished"]))
    """


@pytest.fixture
def told(here: InProcess, begun: Callable[..., str]) -> Callable[[str], list[tuple[str, dict[str, Any]]]]:
    """The events of a run whose task runs the code: types and figures, without what the store itself records."""

    def run(code: str) -> list[tuple[str, dict[str, Any]]]:
        name = begun(EMITS.format(code=code.strip()))
        here.work()
        assert here.texts(name) == {"work": "done"}
        ours = ("task_", "crew_", "run_", "job_", "checkpoint")
        return [(one.type, one.fields) for one in here.runs.events(name) if not one.type.startswith(ours)]

    return run


def figures(found: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    about = ("task", "run", "branch")
    return [{name: value for name, value in fields.items() if name not in about} for _, fields in found]


def test_a_call_is_told_with_its_model_and_tokens_and_not_what_was_said(told: Any) -> None:
    found = told("""
        agent = type("Named", (), {"role": "clerk"})()
        event_bus.emit(None, LLMCallStartedEvent(model="m", from_agent=agent, messages="secret"))
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "cached_prompt_tokens": 1, "reasoning_tokens": "x"}
        event_bus.emit(None, LLMCallCompletedEvent(model="m", response="secret", usage=usage, replayed=True))
        event_bus.emit(None, LLMCallFailedEvent(model="m", error="secret"))
        """)
    assert [kind for kind, _ in found] == ["llm_call_started", "llm_call_completed", "llm_call_failed"]
    assert "secret" not in str(found)
    first, second, _ = figures(found)
    assert (first["model"], first["agent"]) == ("m", "clerk")
    assert {"prompt_tokens": "3", "completion_tokens": "2", "cached_tokens": "1", "replayed": "1"}.items() <= {
        name: str(value) for name, value in second.items()
    }.items()


def test_a_tool_is_told_by_its_name_if_it_is_one(told: Any) -> None:
    found = told("""
        for name in ("look up", "sk-{secret}"):
            event_bus.emit(None, ToolUsageStartedEvent(tool_name=name))
            event_bus.emit(None, ToolUsageFinishedEvent(tool_name=name, output="secret"))
        """)
    assert [fields.get("tool", "") for _, fields in found] == ["look up", "look up", "", ""]
    assert "secret" not in str(found)


def test_a_call_that_diverged_is_told_by_its_number_and_step(told: Any) -> None:
    found = told("""
        event_bus.emit(None, CallDivergedEvent(call=2, step="look"))
        event_bus.emit(None, CallDivergedEvent(call=3))
        """)
    assert [(str(fields["call"]), fields.get("step")) for _, fields in found] == [("2", "look"), ("3", None)]


def test_chunks_are_heard_of_and_not_told(told: Any) -> None:
    assert told('event_bus.emit(None, BaseEvent(type="llm_stream_chunk"))') == []


def test_what_handlers_emit_once_the_task_is_over_stays_here(here: InProcess, begun: Callable[..., str]) -> None:
    run = begun("""
        from runner.events import BaseEvent, event_bus

        @event_bus.on("task_completed")
        def late(source, event):
            event_bus.emit(None, BaseEvent(type="late"))
            trace("heard")

        @event_bus.on("crew_kickoff_completed")
        def later(source, event):
            trace("over")

        crew = Crew(tasks=[Task(name="work", run=lambda ctx: "done")])
        """)
    here.work()
    assert here.texts(run) == {"work": "done"}
    assert "late" not in [event.type for event in here.runs.events(run)]


def test_a_crew_hears_that_it_failed(here: InProcess, begun: Callable[..., str], done: Any, eventually: Any) -> None:
    run = begun("""
        from runner.events import event_bus

        @event_bus.on("task_failed", "crew_kickoff_failed")
        def failed(source, event):
            trace(f"{event.type}: {event.error}")

        def work(ctx):
            raise ValueError("broken")

        crew = Crew(tasks=[Task(name="work", run=work)])
        """)
    here.work()
    assert "broken" in here.runs.get(run).error
    eventually(lambda: len(done()) == 2, why="both are heard")
    assert [line.split(":")[0] for line in sorted(done(), reverse=True)] == ["task_failed", "crew_kickoff_failed"]
