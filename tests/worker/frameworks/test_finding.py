"""What of a file is run: the agent that the others work for, or all that it does as a script."""

from pathlib import Path
from typing import Any

import pytest

from runner.bundles import loader
from runner.bundles.arguments import Given, given
from runner.bundles.program import Program
from runner.bundles.target import parse_target
from runner.client import Client
from runner.core.errors import BadCrew, BadInput
from runner.engine import adapters
from runner.testing import ModelServer

from .test_kills import digs, pytestmark, written

__all__ = ["pytestmark"]

OPENAI = "from agents import Agent, handoff, function_tool, Runner\n"
BACK = """
billing = Agent(name="billing")
refunds = Agent(name="refunds")
triage = Agent(name="triage", handoffs=[billing, handoff(refunds)])
billing.handoffs.append(triage)
refunds.handoffs.append(handoff(triage))
"""
TOOLS = """
a_helper = Agent(name="helper")
lead = Agent(name="lead", tools=[a_helper.as_tool("help", "Helps.")])
"""
CALLED = """
from pydantic_ai import Agent

a_helper = Agent("test")
lead = Agent("test")


@lead.tool_plain
async def ask(question: str) -> str:
    return await answer(question)


async def answer(question: str) -> str:
    return (await a_helper.run(question)).output
"""
ALIKE = """
one = Agent(name="one")
two = Agent(name="two", handoffs=[one])
one.handoffs.append(two)
"""
NOTHING = """
def work(prompt):
    return Runner.run_sync(Agent(name="one"), prompt)
"""
MAIN = (
    '\n\ndef main():\n    print("It is", agent.run_sync("Dig.").output)\n\n\nif __name__ == "__main__":\n    main()\n'
)


def found(folder: Path, code: str, inputs: dict[str, object] | None = None) -> tuple[str, object]:
    file = folder / "agent.py"
    file.write_text(code)
    token = given.set(Given(inputs or {}))
    try:
        module = loader.load_target(parse_target(str(file)))
        return loader.find_crew(module, None, adapters.is_crew, adapters.chosen, adapters.factories)
    finally:
        given.reset(token)


@pytest.mark.parametrize(("code", "name"), [(OPENAI + BACK, "triage"), (OPENAI + TOOLS, "lead"), (CALLED, "lead")])
def test_the_agent_that_the_others_work_for_is_run(code: str, name: str, tmp_path: Path) -> None:
    assert found(tmp_path, code)[0] == name


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (OPENAI + ALIKE, "agent.py has 2 agents: one, two; name one, as in agent.py:one"),
        (
            OPENAI + NOTHING,
            "agent.py: no agent or graph in it; it defines work (a function): write agent = Agent(...) at its top "
            "level in it, or a function without arguments that runs it",
        ),
    ],
)
def test_where_it_is_not_clear_the_message_speaks_of_agents(code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadCrew) as error:
        found(tmp_path, code)
    assert str(error.value) == said


def test_what_a_script_of_the_project_calls_is_run_where_there_is_no_prompt(tmp_path: Path) -> None:
    # Given a package as `uv init --package` makes it
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n[project.scripts]\nx = "agent:main"\n')
    code = CALLED + "\n\ndef main():\n    print(lead.run_sync('Dig.').output)\n"
    assert found(tmp_path, code) == ("main()", Program("main"))
    # And with a prompt its agent is
    (tmp_path / "other").mkdir()
    assert found(tmp_path / "other", code, {"prompt": "Dig."})[0] == "lead"


def test_what_is_no_agent_is_said_in_the_words_of_agents(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(OPENAI + TOOLS + "def make():\n    return 3\n")
    module = loader.load_target(parse_target(str(tmp_path / "agent.py")))
    with pytest.raises(
        BadCrew,
        match=r"^agent\.py:make returned an int, not an agent; to run it as a function, name agent\.py:make\(\)$",
    ):
        loader.find_crew(module, "make", adapters.is_crew, adapters.chosen, adapters.factories)


def test_an_agent_that_is_given_a_prompt_is_run_though_the_file_is_a_script(tmp_path: Path) -> None:
    code = CALLED + MAIN.replace("agent.", "lead.")
    assert found(tmp_path, code, {"prompt": "Dig."})[0] == "lead"
    (tmp_path / "other").mkdir()
    assert found(tmp_path / "other", code)[1] == Program("__main__")


def test_what_a_file_does_as_a_script_is_one_task(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given a file that runs its agent under if __name__ == "__main__"
    with ModelServer(digs) as models:
        file = written(tmp_path, "pydantic-ai", models)
        file.write_text(file.read_text() + MAIN)
        fleet.start("--concurrency", "1", "--pool", "prefork")
        # When it is submitted without a prompt
        result = client.submit(file).wait(150)
    # Then its output is what it prints
    assert result.outputs == {"main": "It is done"}, result.error
    assert (tmp_path / "trace").read_text().split() == ["0", "1", "2"]


GRAPH = """
from typing import TypedDict
from langgraph.graph import END, START, StateGraph

class State(TypedDict):
    question: str
    tries: int

graph = StateGraph(State).add_node("node", lambda state: {"tries": 2}).add_edge(START, "node").add_edge("node", END)
graph = graph.compile()
"""


def test_an_input_that_the_state_of_a_graph_does_not_declare_is_refused(client: Client, tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text(GRAPH)
    says = r"no input 'questoin' \(did you mean 'question'\?\); it has 'question', 'tries'$"
    with pytest.raises(BadInput, match=says):
        client.submit(tmp_path / "graph.py", {"question": "why?", "questoin": "why?"})
    assert list(client.runs()) == []
    run = client.submit(tmp_path / "graph.py", {"question": "why?"})
    with pytest.raises(BadInput, match=rf"^the run {run.id} has {says}"):
        client.fork(run.id, inputs={"questoin": "how?"})
    client.fork(run.id, inputs={"question": "how?"})
    (tmp_path / "graph.py").write_text(GRAPH.replace("StateGraph(State)", "StateGraph(State, input_schema=dict)"))
    client.submit(tmp_path / "graph.py", {"questoin": "why?"})
