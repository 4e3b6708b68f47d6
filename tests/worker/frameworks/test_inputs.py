"""What an agent cannot begin without is asked for before anything is stored, as its framework declares it."""

import asyncio
import operator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, model_validator

from runner.adapters.frameworks.langgraph import FRAMEWORK as LANGGRAPH
from runner.bundles.arguments import Given, given
from runner.cli import input_lines
from runner.client import Client
from runner.client.batch_sources import by_first
from runner.client.submission import prepare
from runner.core.errors import BadCrew, BadInput
from runner.core.plan import Plan

from ...support.later import Later
from .test_finding import found
from .test_kills import pytestmark

__all__ = ["pytestmark"]

langchain, langchain_core, langgraph = map(Later, ("langchain", "langchain_core", "langgraph"))
START = "__start__"  # LangGraph's


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


def at_once(state: Any) -> Any:
    return {"found": [state["topic"], *state["seen"]], "tries": len(state["seen"])}


def knows(state: Any) -> Any:
    return {"topic": "owls"}


async def knows_too(state: Any) -> Any:
    return knows(state)


def plain(state: Begin) -> Any:
    return {"topic": "owls"}


class Made(BaseModel):
    topic: str

    @model_validator(mode="before")
    @classmethod
    def fills(cls, given: Any) -> Any:
        return {"topic": "owls", **given}

    @dataclass
    class Data:
        topic: str = field(init=False)
        tries: int = 0

        def __post_init__(self) -> None:
            self.topic = "owls"


def memory() -> Any:
    from langgraph.checkpoint.memory import InMemorySaver

    return InMemorySaver()


def managed() -> Any:
    class Managed(TypedDict):
        topic: str
        tries: int
        remaining_steps: langgraph.managed.RemainingSteps

    return graph(Managed, lambda state: {"topic": str(state["remaining_steps"])})


def fails_over() -> Any:
    first, then = map(langchain_core.runnables.RunnableLambda, (at_once, knows))
    return graph(State, first.with_fallbacks([then]))


def asynchronous() -> Any:
    return graph(State, langchain_core.runnables.RunnableLambda(at_once, afunc=knows_too))


def graph(of: Any, node: Any = at_once, input_schema: Any = None, checkpointer: Any = None, **how: Any) -> Any:
    made = (
        langgraph.graph.StateGraph(of, input_schema=input_schema).add_node("node", node, **how).add_edge(START, "node")
    )
    if how.get("defer"):
        made = made.add_node("first", knows).add_edge(START, "first")
    return made.compile(checkpointer=checkpointer)


def begun(one: Any) -> Any:
    """In a thread that its author names, and that has a topic."""
    one = one.with_config(configurable={"thread_id": "one"})
    one.invoke({"topic": "owls"})
    return one


def test_a_graph_needs_what_it_fails_without_and_no_more() -> None:
    # Of a class that checks nothing, what the first nodes look up; a reducer begins with something
    assert LANGGRAPH.inputs(graph(State)) == ["topic"]
    assert LANGGRAPH.inputs(graph(State, knows)) == []
    assert LANGGRAPH.inputs(graph(State, graph(State))) == []
    # Of one that does, what it declares
    assert [LANGGRAPH.inputs(graph(of, knows)) for of in (Model, Data)] == [["topic"], ["topic"]]
    # And what chooses the first node is a function as they are
    chosen = langgraph.graph.StateGraph(State).add_node("node", knows)
    chosen = chosen.add_conditional_edges(START, lambda state: state["tries"])
    assert LANGGRAPH.inputs(chosen.compile()) == ["tries"]


@pytest.mark.parametrize(
    "made",
    [
        lambda: graph(State, knows, input_schema=Begin),  # whose fields nobody looks at
        lambda: graph(State, knows, input_schema=Model),  # which no node is given
        lambda: graph(Model, plain),
        lambda: graph(Made, knows),
        lambda: graph(Made.Data, knows),
        fails_over,
        asynchronous,
        lambda: graph(State, at_once, error_handler=knows),
        lambda: graph(State, at_once, defer=True),
        managed,
        lambda: begun(graph(State, at_once, checkpointer=memory())),
        lambda: langgraph.func.entrypoint()(knows),
    ],
)
def test_a_graph_that_can_do_without_needs_nothing(made: Any) -> None:
    one = made()
    assert LANGGRAPH.inputs(one) == []
    asyncio.run(one.ainvoke({"tries": 1, "found": []}))


def test_an_agent_needs_nothing_of_its_state_that_nobody_looks_up() -> None:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    class Prefers(langchain.agents.AgentState[Any]):
        language: str

    model = GenericFakeChatModel(messages=iter([langchain_core.messages.AIMessage("Owls.")]))
    assert LANGGRAPH.inputs(langchain.agents.create_agent(model, state_schema=Prefers)) == ["prompt"]


def test_messages_stand_for_the_prompt() -> None:
    class Chat(langgraph.graph.MessagesState):
        topic: str

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
CLIENT += "\n\n@agent.tool\ndef look(ctx) -> str:\n    return str(ctx.deps)\n"
NO_CONTEXT = DEPS.replace("@agent.tool\ndef look(ctx)", "@agent.tool_plain\ndef look()").replace("ctx.deps", "Deps")
ENTRY = """
from langgraph.func import entrypoint

@entrypoint()
def work(topic: str | None) -> str:
    return f"about {topic}"
"""
MAIN = "from pydantic_ai import Agent\n\ndef main(topic: str, tries: int, often=False):\n    return topic * tries\n"


@pytest.mark.parametrize(
    ("code", "where", "inputs", "said"),
    [
        (GRAPH, "", {}, "the agent needs the inputs 'topic' and 'tries' (a whole number): give each with"),
        (
            GRAPH,
            "",
            {"tries": "2"},
            "the agent needs the input 'topic': give it with --input topic=... or inputs={...}",
        ),
        (GRAPH, "", {"topic": "a", "tries": "x"}, "the input 'tries' is a whole number, not 'x'"),
        (
            DEPS,
            "",
            {"prompt": "Dig."},
            "the agent needs the input 'deps' (an object): give it with --input deps=... or",
        ),
        (ENTRY, "", {}, "the agent needs the input 'topic': give it with --input topic=..."),
        (ENTRY, "", {"topic": "a", "tries": "2"}, "the agent has no input 'tries'"),
        (
            MAIN.replace("topic: str", "topic, /"),
            ":main()",
            {"topic": "a"},
            "main takes topic by position only, which no",
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
    with pytest.raises((BadInput, BadCrew)) as error:
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
    # And each leaves a checkpoint, from which it is forked with other inputs, and compared
    for one in (function, run):
        [kept] = client.checkpoints(one.id)
        assert client.resume(one.id, checkpoint=kept.id).result().status == "completed"
        again = one.fork(checkpoint=kept.id, inputs={"topic": "be"})
        assert "bebe" in str(again.wait(150).result)
        assert client.diff(one.id, "main", str(again.branch)).to_dict()["inputs"]


SCRIPT = (
    "from pydantic_ai import Agent\n\nagent = Agent('test')\n\nif __name__ == '__main__':\n    agent.run_sync('Dig.')\n"
)
CREW = """
from runner import Crew, Task

crew = Crew(tasks=[Task(name="write", description="Write about {topic}", run=lambda ctx: ctx.inputs["topic"])])

if __name__ == "__main__":
    print(crew.kickoff(inputs={"topic": "owls"}).raw)
"""
TEAM = """
from runner import Crew, Task

class Team:
    def __init__(self, topic):
        self.topic = topic

    def crew(self):
        return Crew(name=self.topic, tasks=[Task(name="write", run=lambda ctx: self.topic)])
"""


def test_a_script_takes_no_inputs_whichever_line_of_many_has_them(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(SCRIPT)
    prepared = prepare(str(tmp_path / "agent.py"), inputs={})
    assert prepared.is_script
    assert Plan.from_json(prepared.plan.to_json()).takes == ()  # so are forks of its runs refused
    with pytest.raises(BadInput, match=r"^the script takes no inputs, and 'prompt' is given: name the agent that is"):
        prepared.given({"prompt": "Dig."})
    (tmp_path / "lines").write_text('{}\n{"prompt": "Dig."}\n')
    with (
        input_lines.opened(str(tmp_path / "lines")) as source,
        pytest.raises(BadInput, match=r"^--each lines, line 2: the script takes no inputs, and 'prompt' is given:"),
    ):
        input_lines.check(source, "lines", {}, prepared)
    assert not prepare(str(tmp_path / "agent.py"), inputs={"prompt": "Dig."}).is_script


def test_where_only_a_script_has_a_crews_inputs_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(CREW)
    prepared = prepare(str(tmp_path / "team.py"))
    with pytest.raises(BadInput, match=r"; or name what the file does as a script, which has them: team.py:__main__"):
        prepared.refuse_missing({})
    named = prepare(f"{tmp_path / 'team.py'}:__main__")
    named.refuse_missing(named.given({}))
    # Also where the block calls a function that kicks it off
    head, _, block = CREW.partition('if __name__ == "__main__":\n')
    (tmp_path / "calls.py").write_text(f'{head}def main():\n{block}\nif __name__ == "__main__":\n    main()\n')
    with pytest.raises(BadInput, match=r"; or name what the file does as a script, which has them: calls.py:__main__"):
        prepare(str(tmp_path / "calls.py")).refuse_missing({})
    # Of several crews, too, and where the project's main.py has them
    (tmp_path / "all.py").write_text(
        "from runner import Crew, Task\none, two = [Crew(tasks=[Task(name='a', run=print)]) for _ in 'ab']\n"
        "if __name__ == '__main__':\n    one.kickoff()\n    two.kickoff()\n"
    )
    with pytest.raises(BadCrew, match=r"has 2 crews: one, two; name one, .*, or what kicks them off: all.py:__main__$"):
        prepare(str(tmp_path / "all.py"))
    assert prepare(f"{tmp_path / 'all.py'}:__main__").attr == "__main__()"
    (tmp_path / "crew.py").write_text(CREW.partition("\nif ")[0])
    (tmp_path / "main.py").write_text("def run(): ...\n")
    with pytest.raises(BadInput, match=r"; or name the function that has them, as in .*main.py:run$"):
        prepare(str(tmp_path / "crew.py")).refuse_missing({})


def test_a_file_is_read_by_the_first_of_many_inputs_in_python_too(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(TEAM)
    prepared, numbered = by_first(tmp_path / "team.py:Team", iter([{"topic": "owls"}, {"topic": "bees"}]))
    assert prepared.plan.crew == "owls"
    assert list(numbered) == [(1, {"topic": "owls"}), (2, {"topic": "bees"})]
    assert list(by_first(prepared, iter(()))[1]) == []


def test_an_entrypoint_is_given_what_it_declares_and_no_dict_of_it(tmp_path: Path) -> None:
    async def result(one: Any, inputs: dict[str, Any]) -> Any:
        return await LANGGRAPH.run(one, inputs)

    _, one = found(tmp_path, ENTRY)
    assert asyncio.run(result(one, {"topic": "owls"})) == "about owls"
    assert LANGGRAPH.inputs(langgraph.func.entrypoint()(knows)) == []  # which may take any

    @langgraph.func.entrypoint()
    async def adds(numbers: list[int], *, previous: Any = None) -> int:
        return sum(numbers)

    assert (LANGGRAPH.inputs(adds), LANGGRAPH.input_kinds(adds)) == (["numbers"], {"numbers": "array"})
    assert asyncio.run(result(adds, {"numbers": [1, 2]})) == 3


@pytest.mark.parametrize(
    ("more", "needed"),
    [
        ("", ["prompt"]),
        ("@agent.instructions\ndef says() -> str:\n    return 'Dig.'\n", ["prompt"]),
        ("@agent.instructions\ndef says(ctx) -> str:\n    return ctx.deps.who\n", ["prompt", "deps"]),
        ("@agent.system_prompt\ndef says(ctx) -> str:\n    return ctx.deps.who\n", ["prompt", "deps"]),
        ("@agent.output_validator\ndef says(ctx, it: str) -> str:\n    return ctx.deps.who\n", ["prompt", "deps"]),
        ("@agent.toolset\ndef more(ctx):\n    return None\n", ["prompt", "deps"]),
        ("@agent.tool\ndef more(ctx) -> str:\n    return ctx.deps.who\n", ["prompt", "deps"]),
    ],
)
def test_deps_are_not_asked_for_where_no_function_takes_the_context(
    more: str, needed: list[str], tmp_path: Path
) -> None:
    from runner.adapters.frameworks.pydantic_ai import FRAMEWORK

    assert FRAMEWORK.inputs(found(tmp_path, NO_CONTEXT + more)[1]) == needed


def test_deps_that_no_input_can_be_are_said_so(tmp_path: Path) -> None:
    name, agent = found(tmp_path, CLIENT, {"prompt": "Dig."})
    from runner.engine import adapters

    assert name == "agent"
    with pytest.raises(BadCrew, match=r"^the agent's deps are a Client, which no input can be: name the function"):
        adapters.required(agent).plan(agent, "agent")
