"""A crew with a manager and a plan, on workers that are killed at every call of a model."""

from collections import Counter
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, Call, ModelServer, Rule

pytestmark = pytest.mark.timeout(150)

CREW = """
    from runner import Agent, tool

    @tool
    def search(query: str) -> str:
        "Search for something."
        trace(f"step search {query}")
        return f"pages on {query}"

    crew = Crew(
        agents=[
            Agent(role="researcher", goal="find out", llm="openai/small", tools=[search]),
            Agent(role="writer", goal="write", llm="openai/small"),
        ],
        tasks=[Task(name="t", description="An article on {topic}.")],
        process=Process.hierarchical,
        manager_llm="openai/large",
        planning=True,
    )
"""
PLAN = '{"list_of_plans_per_task": [{"task_number": 1, "plan": "Ask the researcher first."}]}'
SCRIPT = [
    Rule("You are Task Execution Planner", Answer(PLAN, delay=0.3)),
    Rule(
        "You are researcher", Answer(calls=(Call("search", {"query": "owls"}),), delay=0.3), Answer("Owls.", delay=0.3)
    ),
    Rule("You are writer", Answer("An article.", delay=0.3)),
    Rule(
        "You are Crew Manager",
        Answer(
            calls=(
                Call("delegate_work_to_coworker", {"task": "Research.", "coworker": "researcher"}),
                Call("delegate_work_to_coworker", {"task": "Write.", "coworker": "writer"}),
            ),
            delay=0.3,
        ),
        Answer("Final.", delay=0.3),
    ),
]
CALLS = {"Task Execution Planner": 1, "researcher": 2, "writer": 1, "Crew Manager": 2}


def test_a_manager_whose_worker_is_killed_at_every_call(
    fleet: Any, client: Client, crew_of: Any, trace: Any, well_told: Any, eventually: Any
) -> None:
    with ModelServer(SCRIPT) as server:
        worker = fleet.start("--concurrency", "1", **server.environment)
        handle = client.submit(crew_of(CREW), {"topic": "owls"})
        killed, kills = set[str](), 0

        def asked() -> set[str] | bool:
            return {one.digest for one in server.log} - killed or handle.status != "running"

        while (found := eventually(asked, why="a call")) is not True:
            killed.update(found)
            kills += 1
            worker.kill_group()
            worker = fleet.start("--concurrency", "1", **server.environment)
        result = handle.result()
        assert (result.status, result.result) == ("completed", "Final."), result
        ledger = result.ledger
        assert server.paid == ledger["paid"] + ledger["in_doubt"]
        assert ledger["paid"] == len(killed) == 6
        assert 2 < ledger["in_doubt"] <= kills * server.at_once  # one for each crash and call in flight
        assert Counter({line["agent"]: line["calls"] for line in ledger["by"]}) == CALLS
        assert {line["task"] for line in ledger["by"] if line["agent"] != "Task Execution Planner"} == {"t"}
        assert trace.lines() == ["step search owls"]
        well_told(handle)
