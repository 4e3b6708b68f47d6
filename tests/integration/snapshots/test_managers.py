"""Crews with a manager, coworkers and a plan go on from each of their checkpoints, and pay for nothing twice."""

from collections import Counter
from typing import Any

import pytest

from runner import Agent, CheckpointConfig, Crew, Process, Task, tool
from runner.testing import Call, ModelServer, Rule

DELEGATE = "delegate_work_to_coworker"
PLAN = '{"list_of_plans_per_task": [{"task_number": 1, "plan": "Ask twice."}]}'
SCRIPT = [
    Rule("You are Task Execution Planner", PLAN),
    Rule("You are researcher", Call("search", {"query": "owls"}), Call("search", {"query": "owls"}), "Owls."),
    Rule(
        "You are Crew Manager",
        Call(DELEGATE, {"task": "Research.", "coworker": "researcher"}),
        Call(DELEGATE, {"task": "Research.", "coworker": "researcher"}),
        "Final.",
    ),
]
CALLS = 10


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    with ModelServer(SCRIPT) as one:
        for name, value in one.environment.items():
            monkeypatch.setenv(name, value)
        yield one


def test_from_every_checkpoint_what_was_paid_is_not_paid_again(
    place: Any, server: Any, pairs_up: Any, events_of: Any
) -> None:
    used = Counter[str]()

    @tool
    def search(query: str) -> str:
        """Search for something."""
        used[query] += 1
        return f"{used[query]} pages"

    def crew() -> Crew:
        return Crew(
            agents=[Agent(role="researcher", llm="openai/small", tools=[search])],
            tasks=[Task(name="t", description="Owls.")],
            process=Process.hierarchical,
            manager_llm="openai/large",
            planning=True,
            checkpoint=CheckpointConfig(
                location=place.location,
                on_events=["llm_call_completed", "tool_usage_finished", "crew_kickoff_completed"],
            ),
        )

    assert crew().kickoff().raw == "Final."
    assert (server.paid, used) == (CALLS, {"owls": 4})
    whole = pairs_up(place.last)
    assert (whole["agent_execution_started", "t"], whole["agent_execution_error", "t"]) == (3, 0)
    for info in list(place.infos)[:-1]:
        told = Counter(event["type"] for event in events_of(place.read(info)))
        server.reset()
        used.clear()
        config = CheckpointConfig(
            restore_from=info.location, location=place.location, on_events=["crew_kickoff_completed"]
        )
        restored = crew().kickoff(from_checkpoint=config)
        assert (restored.raw, [one.name for one in restored.tasks_output]) == ("Final.", ["t"])
        assert server.paid == CALLS - told["llm_call_completed"]
        assert used["owls"] == 4 - sum(
            event["type"] == "tool_usage_finished" and event["tool_name"] == "search"
            for event in events_of(place.read(info))
        )
        now = pairs_up(place.last)
        for kind in ("task_started", "task_completed", "agent_execution_completed", "llm_call_completed"):
            assert now[kind, "t"] == whole[kind, "t"], kind
