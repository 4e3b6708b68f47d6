"""What an agent cannot begin without is asked for before anything is stored, as its framework declares it."""

import operator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from runner.adapters.frameworks.langgraph import FRAMEWORK as LANGGRAPH
from runner.bundles.arguments import Given, given
from runner.client import Client
from runner.core.errors import BadCrew, BadInput

from .test_finding import found
from .test_kills import pytestmark

__all__ = ["pytestmark"]


class State(TypedDict):
    topic: str
    tries: int
    found: list[str]
    seen: Annotated[list[str], operator.add]


class Begin(TypedDict):
    topic: str
    tries: NotRequired[int]


class Model(BaseModel):
    topic: str
    tries: int = 3


@dataclass
class Data:
    topic: str
    tries: int = 3
    found: list[str] = field(default_factory=list)


class Chat(MessagesState):
    topic: str


def at_once(state: Any) -> Any:
    return {"found": [state["topic"], *state["seen"]], "tries": len(state["seen"])}


def knows(state: Any) -> Any:
    return {"topic": "owls"}


def graph(of: Any, node: Any = at_once, **how: Any) -> Any:
    return StateGraph(of, **how).add_node("node", node).add_edge(START, "node").compile()


def test_a_graph_needs_what_it_fails_without_and_no_more() -> None:
    # Of a class that checks nothing, what the first nodes look up; a reducer begins with something
    assert LANGGRAPH.inputs(graph(State)) == ["topic"]
    assert LANGGRAPH.inputs(graph(State, knows)) == []
    assert LANGGRAPH.inputs(graph(State, graph(State))) == []
    # Of one that does, or that is there for the inputs alone, what it declares
    assert [LANGGRAPH.inputs(graph(of, knows)) for of in (Model, Data)] == [["topic"], ["topic"]]
    assert LANGGRAPH.inputs(graph(State, knows, input_schema=Begin)) == ["topic"]
    # And what chooses the first node is a function as they are
    chosen = StateGraph(State).add_node("node", knows).add_conditional_edges(START, lambda state: state["tries"])
    assert LANGGRAPH.inputs(chosen.compile()) == ["tries"]


def test_messages_stand_for_the_prompt() -> None:
    assert LANGGRAPH.inputs(graph(Chat)) == ["prompt", "topic"]
    token = given.set(Given(messages=[{"role": "user", "content": "Dig."}]))
    try:
        assert LANGGRAPH.inputs(graph(Chat)) == ["topic"]
    finally:
        given.reset(token)


GRAPH = """
from typing import TypedDict
from langgraph.graph import START, StateGraph

class State(TypedDict):
    topic: str
    tries: int
    answer: str

def node(state: State):
    return {"answer": state["topic"] * state["tries"]}

graph = StateGraph(State).add_node("node", node).add_edge(START, "node").compile()
"""
DEPS = """
from dataclasses import dataclass
from pydantic_ai import Agent

@dataclass
class Deps:
    who: str
    tries: int

agent = Agent("test", deps_type=Deps)

@agent.tool
def look(ctx) -> str:
    return ctx.deps.who * ctx.deps.tries
"""
CLIENT = "import httpx\nfrom pydantic_ai import Agent\n\nagent = Agent('test', deps_type=httpx.Client)\n"
MAIN = "from pydantic_ai import Agent\n\ndef main(topic: str, tries: int, often=False):\n    return topic * tries\n"


@pytest.mark.parametrize(
    ("code", "where", "inputs", "said"),
    [
        (GRAPH, "", {}, "the agent needs the inputs 'topic' and 'tries' (a whole number): give each with"),
        (
            GRAPH,
            "",
            {"tries": "2"},
            "the agent needs the input 'topic': give it with --input topic=... or inputs={...};",
        ),
        (GRAPH, "", {"topic": "a", "tries": "x"}, "the input 'tries' is a whole number, not 'x'"),
        (
            DEPS,
            "",
            {"prompt": "Dig."},
            "the agent needs the input 'deps' (an object): give it with --input deps=... or",
        ),
        (DEPS, "", {"prompt": "Dig.", "deps": "{}"}, "the input 'deps': Deps needs 'who' and 'tries'"),
        (MAIN, ":main()", {}, "the function needs the inputs 'topic' and 'tries' (a whole number): give each with"),
        (MAIN, ":main()", {"topic": "a", "tries": "x"}, "the input 'tries' is a whole number, not 'x'"),
        (MAIN, ":main()", {"topik": "a"}, "the function has no input 'topik' (did you mean 'topic'?); it has 'topic',"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_stored(
    code: str, where: str, inputs: dict[str, object], said: str, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text(code)
    with pytest.raises(BadInput) as error:
        client.submit(f"{tmp_path / 'agent.py'}{where}", inputs)
    assert str(error.value).startswith(said)
    assert client.runs() == []


def test_a_function_takes_the_inputs_of_its_arguments_names(fleet: Any, client: Client, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(MAIN)
    (tmp_path / "graph.py").write_text(GRAPH)
    fleet.start("--concurrency", "2", "--pool", "prefork")
    function = client.submit(f"{tmp_path / 'agent.py'}:main()", {"topic": "ow", "tries": "2"})
    run = client.submit(tmp_path / "graph.py", {"topic": "ow", "tries": "2"})
    assert function.wait(150).result == "owow"
    assert '"answer": "owow"' in str(run.wait(150).result)


def test_deps_that_no_input_can_be_are_said_so(tmp_path: Path) -> None:
    name, agent = found(tmp_path, CLIENT, {"prompt": "Dig."})
    from runner.engine import adapters

    assert name == "agent"
    with pytest.raises(BadCrew, match=r"^the agent's deps are a Client, which no input can be: name the function"):
        adapters.required(agent).plan(agent, "agent")
