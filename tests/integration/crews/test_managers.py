"""Managers, coworkers and plans, in this process, against a model server that counts."""

import json
from typing import Any

import pytest

from runner import Agent, BaseLLM, Crew, Process, Task
from runner.core.errors import BadCrew, ModelError
from runner.events import event_bus
from runner.testing import Answer, Call, ModelServer, Rule

DELEGATE, ASK = "delegate_work_to_coworker", "ask_question_to_coworker"


@pytest.fixture
def serve(monkeypatch):
    """A model server with this script; the vendors' clients know where it is."""
    servers: list[ModelServer] = []

    def start(*script: Rule) -> ModelServer:
        server = ModelServer(list(script)).start()
        servers.append(server)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def told():
    """What the event bus tells: the type, and whose it is."""
    seen: list[tuple[str, str | None]] = []
    with event_bus.scoped_handlers():
        event_bus.on("*")(lambda source, event: seen.append((event.type, getattr(event, "agent_role", None))))
        yield seen
        event_bus.flush()


def agents(**more: Any) -> list[Agent]:
    return [
        Agent(role="researcher", goal="find out", llm="openai/small", **more),
        Agent(role="writer", goal="write", llm="openai/small", **more),
    ]


RESEARCHER, WRITER = Rule("You are researcher", "Owls fly."), Rule("You are writer", "An article.")


def test_a_manager_has_the_work_done_and_every_call_is_in_its_task(serve, told):
    manager = Rule(
        "You are Crew Manager",
        Call(DELEGATE, {"task": "Research owls.", "context": "At night.", "coworker": ' "Researcher" '}),
        [Call(ASK, {"question": "Well?", "coworker": "[writer]"}), Call(ASK, {"question": "?", "coworker": "boss"})],
        "Done: owls.",
    )
    server = serve(RESEARCHER, WRITER, manager)
    crew = Crew(
        agents=agents(),
        tasks=[Task(name="t", description="Owls."), Task(name="f", run=lambda ctx: ctx.context[0].raw.upper())],
        process=Process.hierarchical,
        manager_llm="openai/large",
    )
    result = crew.kickoff()
    event_bus.flush()
    assert (result.raw, result.tasks_output[0].agent) == ("DONE: OWLS.", "Crew Manager")
    assert [request.model for request in server.log] == ["large", "small", "large", "small", "large"]
    assert "Research owls." in server.log[1].text
    assert "At night." in server.log[1].text
    assert server.log[-1].results[:2] == ["Owls fly.", "An article."]
    assert "there is no coworker 'boss'; there are: 'researcher', 'writer'" in server.log[-1].results[2]
    of_coworkers = [event for event in told if event[1] in ("researcher", "writer")]
    done = [
        ("agent_execution_started", 1),
        ("llm_call_started", 2),
        ("llm_call_completed", 3),
        ("agent_execution_completed", 4),
    ]
    assert of_coworkers == [(kind, who) for who in ("researcher", "writer") for kind, _ in done]


def test_with_an_agent_of_its_own_a_task_can_be_given_to_that_one_alone(serve):
    server = serve(WRITER, Rule("You are boss", Call(DELEGATE, {"task": "x", "coworker": "researcher"}), "No."))
    crew = Crew(
        agents=agents(),
        process="hierarchical",
        manager_agent=Agent(role="boss", llm="openai/large", allow_delegation=True),
    )
    crew.tasks.append(Task(description="Write.", agent=crew.agents[1]))
    assert crew.kickoff().raw == "No."
    assert "there are: 'writer'" in server.log[-1].results[0]


def test_an_agent_that_may_delegate_has_coworkers_and_another_has_none(serve):
    server = serve(
        RESEARCHER, Rule("You are writer", Call(ASK, {"question": "What flies?", "coworker": "researcher"}), "Owls.")
    )
    researcher, writer = agents()
    writer.allow_delegation = True
    crew = Crew(
        agents=[researcher, writer], tasks=[Task(description=f"By {a.role}", agent=a) for a in (researcher, writer)]
    )
    assert crew.kickoff().raw == "Owls."
    assert [list(request.tools) for request in server.log] == [
        [], [DELEGATE, ASK], [], [DELEGATE, ASK],
    ]  # fmt: skip


def test_a_coworker_whose_model_is_away_fails_the_task_and_costs_nothing_twice(serve):
    def away() -> Rule:
        return Rule("You are researcher", Answer("no such model", status=404), times=1)

    manager = Rule("You are Crew Manager", Call(DELEGATE, {"task": "x", "coworker": "researcher"}), "Done.")
    server = serve(away(), RESEARCHER, manager)
    crew = Crew(agents=agents(), tasks=[Task(description="Owls.")], process="hierarchical", manager_llm="openai/large")
    with pytest.raises(ModelError, match="no such model"):
        crew.kickoff()
    server.reset()
    server.use([away(), RESEARCHER, manager])
    again = Task(description="Owls.", max_retries=1, retry_delay=0)
    assert (
        Crew(agents=agents(), tasks=[again], process="hierarchical", manager_llm="openai/large").kickoff().raw
        == "Done."
    )
    assert (server.requests, server.paid) == (4, 3)


PLAN = json.dumps({"list_of_plans_per_task": [{"task_number": 2, "task": "b", "plan": "1. Think of hens."}]})


def test_a_plan_is_made_once_and_told_with_the_tasks_it_is_for(serve):
    server = serve(Rule("You are Task Execution Planner", PLAN), WRITER)
    writer = agents()[1]
    seen = []
    tasks = [
        Task(name="a", description="Owls on {day}.", expected_output="a line", agent=writer),
        Task(name="b", description="Hens.", agent=writer),
        Task(name="c", run=lambda ctx: seen.append((list(ctx.outputs), [one.name for one in ctx.context]))),
    ]
    crew = Crew(agents=[writer], tasks=tasks, planning=True, planning_llm="openai/plans")
    result = crew.kickoff({"day": "Monday"})
    assert [output.name for output in result.tasks_output] == ["a", "b", "c"]
    assert [request.model for request in server.log] == ["plans", "small", "small"]
    assert "Task 1: Owls on Monday.\nIt is to give: a line\nIt is done by: writer. Goal: write" in server.log[0].text
    assert ["1. Think of hens." in request.text for request in server.log[1:]] == [False, True]
    assert '"list_of_plans_per_task"' not in server.log[2].text
    assert seen == [(["a", "b"], ["a", "b"])]


class Mute(BaseLLM):
    def call(self, messages: Any, **_: Any) -> str:
        return ""


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "needs a manager: give the crew manager_llm=... or manager_agent="),
        ({"manager_agent": 0}, "the manager 'researcher' is one of the crew's agents too"),
        ({"manager_agent": Agent(role="boss", llm=Mute("m"), tools=[len])}, "the manager 'boss' has tools"),
        ({"manager_agent": Agent(role="boss")}, "the manager 'boss' has no model"),
        ({"manager_llm": Mute("m"), "agents": []}, "has no agent to which the manager could delegate it"),
        (
            {"manager_llm": Mute("m"), "agents": [Agent(role="a")]},
            "the agent 'a', to which work may be delegated, has no model",
        ),
    ],
)
def test_what_cannot_be_managed_is_said_in_a_line(monkeypatch, fields, why):
    monkeypatch.delenv("OPENAI_MODEL_NAME", raising=False)
    monkeypatch.delenv("MODEL", raising=False)
    crew = {"agents": [Agent(role="researcher", llm=Mute("m"))], "tasks": [Task(description="x")], **fields}
    if crew.get("manager_agent") == 0:
        crew["manager_agent"] = crew["agents"][0]
    with pytest.raises(BadCrew, match=why):
        Crew(process=Process.hierarchical, **crew).kickoff()


def test_a_planner_needs_a_model(monkeypatch):
    monkeypatch.delenv("OPENAI_MODEL_NAME", raising=False)
    monkeypatch.delenv("MODEL", raising=False)
    with pytest.raises(BadCrew, match="the crew's planner has no model: give it planning_llm="):
        Crew(tasks=[Task(run=lambda ctx: "x")], planning=True).kickoff()
    with pytest.raises(BadCrew, match="two tasks are called 'planning'"):
        Crew(tasks=[Task(name="planning", run=lambda ctx: "x")], planning=True, planning_llm=Mute("m")).kickoff()
