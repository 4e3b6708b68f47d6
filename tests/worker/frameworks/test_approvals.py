"""What agents of other frameworks ask a person: the run waits, and nothing is done again for the answer."""

import importlib.util
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, Call, ModelServer

pytestmark = pytest.mark.timeout(180)


def needs(module: str) -> pytest.MarkDecorator:
    """Some are tried in environments of their own: they do not go together, or with the tests' tools."""
    wanted = module in ("pydantic_ai", "agents", "langchain", "langgraph") and os.environ.get("RUNNER_TEST_ALL")
    return pytest.mark.skipif(not wanted and not importlib.util.find_spec(module), reason=f"{module} is missing")


GOOGLE = "google.adk" if importlib.util.find_spec("google") else "google"

PAY = '''
def pay(amount: int) -> str:
    """Pays an amount."""
    with open({trace!r}, "a") as file:
        file.write(f"{{amount}}\\n")
    return f"paid {{amount}}"
'''

PYDANTIC_AI = (
    """
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(base_url={url!r}, api_key="sk-secret"))
agent = Agent(model, output_type=[str, DeferredToolRequests])


@agent.tool_plain(requires_approval=True)
"""
    + PAY
)

OPENAI_AGENTS = (
    """
from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
model = OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI(base_url={url!r}, api_key="sk-secret", max_retries=0))


@function_tool(needs_approval=True)
"""
    + PAY
    + """
agent = Agent(name="payer", tools=[pay], model=model)
"""
)

_LANGCHAIN = (
    """
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver


@tool
"""
    + PAY
    + """
asks = HumanInTheLoopMiddleware(interrupt_on={{"pay": True}}, interrupt_mode="MODE")
model = ChatOpenAI(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
graph = create_agent(model, tools=[pay], middleware=[asks], checkpointer=InMemorySaver())
"""
)

AGNO = (
    """
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools import tool


@tool(requires_confirmation=True)
"""
    + PAY
    + """
agent = Agent(model=OpenAIChat("gpt-4o-mini", base_url={url!r}, api_key="sk-secret"), tools=[pay], telemetry=False)
"""
)

GOOGLE_ADK = (
    """
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.tools import FunctionTool

"""
    + PAY
    + """

model = LiteLlm(model="openai/gpt-4o-mini", api_base={url!r}, api_key="sk-secret")
root_agent = LlmAgent(name="payer", model=model, tools=[FunctionTool(pay, require_confirmation=True)])
"""
)

AGENTS = [
    pytest.param(PYDANTIC_AI, "too much", marks=needs("pydantic_ai")),
    pytest.param(OPENAI_AGENTS, "too much", marks=needs("agents")),
    pytest.param(_LANGCHAIN.replace("MODE", "batched"), "too much", marks=needs("langchain")),
    pytest.param(_LANGCHAIN.replace("MODE", "per_call"), "too much", marks=needs("langchain")),
    pytest.param(AGNO, "too much", marks=needs("agno")),
    pytest.param(GOOGLE_ADK, "rejected", marks=needs(GOOGLE)),
]

STRANDS = (
    """
from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent, HookProvider
from strands.models.openai import OpenAIModel


class Asks(HookProvider):
    def register_hooks(self, registry, **kwargs):
        registry.add_callback(BeforeToolCallEvent, self.ask)

    def ask(self, event):
        said = event.interrupt("pay", reason=event.tool_use["input"])
        if said != "yes":
            event.cancel_tool = f"not allowed: {{said}}"


@tool
"""
    + PAY
    + """
model = OpenAIModel(client_args={{"base_url": {url!r}, "api_key": "sk-secret"}}, model_id="gpt-4o-mini")
agent = Agent(model=model, tools=[pay], hooks=[Asks()], callback_handler=None)
"""
)

LLAMA_INDEX = """
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index.llms.openai_like import OpenAILike
from runner import durable


async def pay(ctx: Context, amount: int) -> str:
    'Pays an amount.'
    asked = InputRequiredEvent(prefix="pay", reason={{"amount": amount}})
    said = (await ctx.wait_for_event(HumanResponseEvent, waiter_id=f"pay {{amount}}", waiter_event=asked)).response
    return paid(amount) if said == "yes" else f"not allowed: {{said}}"


@durable
def paid(amount: int) -> str:
    with open({trace!r}, "a") as file:
        file.write(f"{{amount}}\\n")
    return f"paid {{amount}}"


model = OpenAILike("gpt-4o-mini", api_base={url!r}, api_key="sk-secret", is_chat_model=True,
    is_function_calling_model=True, max_retries=0)
agent = FunctionAgent(tools=[pay], llm=model, streaming=False)
"""

AUTOGEN = """
import asyncio
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def main():
    model = OpenAIChatCompletionClient(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0)
    people = [UserProxyAgent("one"), UserProxyAgent("two", input_func=input)]
    until = TextMentionTermination("APPROVE")
    team = RoundRobinGroupChat([AssistantAgent("poet", model), *people], termination_condition=until)
    print((await team.run(task="Write.")).messages[-1].content)


if __name__ == "__main__":
    asyncio.run(main())
"""

ELICITS = """
import asyncio

import mcp
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from runner import Crew, Task

server = MCPServer("journeys", log_level="CRITICAL")


class When(BaseModel):
    hour: int


class Where(BaseModel):
    place: str
    hotel: bool


@server.tool()
async def book(ctx: Context) -> str:
    with open("TRACE", "a") as file:
        file.write("used\\n")
    hour = (await ctx.elicit("When?", When)).data.hour
    where = (await ctx.elicit("Where?", Where)).data
    return f"{hour} {where.place} {where.hotel}"


async def use():
    async with mcp.Client(server, mode="legacy") as client:
        return (await client.call_tool("book", {})).content[0].text


crew = Crew(tasks=[Task(name="book", run=lambda _: asyncio.run(use()))])
"""

TRIP = """
from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt


class Trip(TypedDict, total=False):
    to: str
    seats: int


def where(state: Trip) -> Trip:
    return {"to": interrupt("Where to?")}


def seats(state: Trip) -> Trip:
    with open("TRACE", "a") as file:
        file.write("seats\\n")
    return {"seats": interrupt({"to": state["to"], "ask": "seats"})}


graph = StateGraph(Trip)
graph.add_node("where", where)
graph.add_node("seats", seats)
graph.add_edge(START, "where")
graph.add_edge("where", "seats")
graph.add_edge("seats", END)
trip = graph.compile(checkpointer=InMemorySaver())
"""


def pays_twice(request: Any) -> Answer:
    """Has 5 paid, then 7; then says what it was told."""
    at = len(request.results)
    return Answer(calls=[Call("pay", {"amount": 5 + 2 * at})]) if at < 2 else Answer(f"told: {request.results[1]}")


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer(pays_twice) as one:
        yield one


@pytest.mark.parametrize(("code", "told"), AGENTS)
def test_a_tool_is_used_when_a_person_approves_of_exactly_these_arguments(
    code: str, told: str, models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent that may not use its tool without a person
    file, trace = tmp_path / "agent.py", tmp_path / "trace"
    file.write_text(code.format(url=models.url, trace=str(trace)))
    fleet.start("--concurrency", "1", "--pool", "prefork")
    waiting = client.submit(file, {"prompt": "Pay."}).wait(150)
    # Then the run waits, and says what is to be done
    assert waiting.status == "waiting", waiting.error
    (asked,) = waiting.asked
    assert (asked.message, asked.labels) == ('May it use pay({"amount": 5})?', ["approve", "reject"])
    assert not trace.exists()
    # When it is approved, the next use is another question
    waiting = client.answer(waiting.run_id, approve=True).wait(150)
    assert [one.message for one in waiting.asked] == ['May it use pay({"amount": 7})?'], waiting.error
    # and when that is rejected, the agent learns why
    result = client.answer(waiting.run_id, reject="too much").wait(150)
    assert result.status == "completed", result.error
    assert told in result.outputs["agent"]
    # and nothing was done twice
    assert trace.read_text().split() == ["5"]
    assert Counter(len(request.results) for request in models.log) == {0: 1, 1: 1, 2: 1}
    assert (result.ledger["paid"], result.ledger["in_doubt"], result.ledger["tools"]["paid"]) == (3, 0, 1)


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        pytest.param(STRANDS, '{"name": "pay", "reason": {"amount": %d}}', marks=needs("strands")),
        pytest.param(LLAMA_INDEX, '{"prefix": "pay", "reason": {"amount": %d}}', marks=needs("llama_index")),
    ],
)
def test_what_an_agent_asks_in_words_of_its_own_is_answered_in_text(
    code: str, asked: str, models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    file, trace = tmp_path / "agent.py", tmp_path / "trace"
    file.write_text(code.format(url=models.url, trace=str(trace)))
    fleet.start("--concurrency", "1", "--pool", "prefork")
    waiting = client.submit(file, {"prompt": "Pay."}).wait(150)
    assert [one.message for one in waiting.asked] == [asked % 5], waiting.error
    waiting = client.answer(waiting.run_id, "yes").wait(150)
    assert [one.message for one in waiting.asked] == [asked % 7], waiting.error
    result = client.answer(waiting.run_id, "no").wait(150)
    assert "not allowed: no" in result.outputs["agent"], result.error
    assert trace.read_text().split() == ["5"]
    assert Counter(len(request.results) for request in models.log) == {0: 1, 1: 1, 2: 1}


@needs("langgraph")
def test_a_graph_asks_what_it_likes(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given a graph of which two nodes interrupt it
    file = tmp_path / "trip.py"
    file.write_text(TRIP.replace("TRACE", str(tmp_path / "trace")))
    fleet.start("--concurrency", "1", "--pool", "prefork")
    waiting = client.submit(file).wait(150)
    assert [one.message for one in waiting.asked] == ["Where to?"], waiting.error
    # When each is answered, in text or in JSON
    waiting = client.answer(waiting.run_id, "Rome").wait(150)
    assert [one.message for one in waiting.asked] == ['{"ask": "seats", "to": "Rome"}'], waiting.error
    result = client.answer(waiting.run_id, "2").wait(150)
    # Then the graph has the answers
    assert result.outputs["agent"].replace(" ", "") == '{"to":"Rome","seats":2}', result.error


@needs("langgraph")
def test_a_graph_that_could_not_go_on_says_what_it_needs(fleet: Any, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "trip.py"
    file.write_text(TRIP.replace("TRACE", str(tmp_path / "trace")).replace("checkpointer=InMemorySaver()", ""))
    fleet.start("--concurrency", "1", "--pool", "prefork")
    result = client.submit(file).wait(150)
    assert result.status == "failed"
    assert "compile it with an InMemorySaver()" in (result.error or "")


def test_what_code_reads_from_a_terminal_is_asked(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given a function that reads two lines with the same prompt, one of them in a thread
    (file := tmp_path / "crew.py").write_text(
        "import asyncio\nfrom runner import Crew, Task\n\n\n"
        "def ask(ctx):\n"
        "    who = input('Who? ')\n"
        "    return f\"{who} and {asyncio.run(asyncio.to_thread(input, 'Who? '))}\"\n\n\n"
        "crew = Crew(tasks=[Task(name='ask', run=ask)])\n"
    )
    fleet.start()
    # Then the run waits at each
    waiting = client.submit(file).wait(150)
    assert [one.message for one in waiting.asked] == ["Who?"], waiting.error
    waiting = client.answer(waiting.run_id, text="Ada").wait(150)
    assert waiting.status == "waiting", waiting.error
    assert client.answer(waiting.run_id, text="Bob").wait(150).outputs == {"ask": "Ada and Bob"}


@needs("autogen_agentchat")
def test_people_in_a_team_of_autogen_are_asked(models: ModelServer, fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given a team with two people, one of whom is read from the terminal by default
    models.use(lambda _: Answer("a poem"))
    (file := tmp_path / "agent.py").write_text(AUTOGEN.format(url=models.url))
    fleet.start("--concurrency", "1", "--pool", "prefork")
    # When they answer one after the other
    waiting = client.submit(file).wait(150)
    for answer in ("More.", "APPROVE"):
        assert [one.message for one in waiting.asked] == ["Enter your response:"], waiting.error
        waiting = client.answer(waiting.run_id, text=answer).wait(150)
    # Then the team goes on with each answer, and its model was asked once
    assert (waiting.result, len(models.log)) == ("APPROVE", 1), waiting.error


def test_what_an_mcp_server_asks_its_user_is_asked(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given a task that uses a server's tool, which asks twice
    file, trace = tmp_path / "crew.py", tmp_path / "trace"
    file.write_text(ELICITS.replace("TRACE", str(trace)))
    fleet.start("--concurrency", "1", "--pool", "prefork")
    # Then the run waits, and the tool is used again with each answer
    waiting = client.submit(file).wait(150)
    assert [one.message for one in waiting.asked] == ["When?"], waiting.error
    waiting = client.answer(waiting.run_id, text="12").wait(150)
    assert [one.message for one in waiting.asked] == ["Where?"], waiting.error
    result = client.answer(waiting.run_id, text='{"place": "Rome", "hotel": true}').wait(150)
    assert result.outputs == {"book": "12 Rome True"}, result.error
    assert trace.read_text().split() == ["used"] * 3
    assert (result.ledger["tools"]["paid"], result.ledger["tools"]["in_doubt"]) == (1, 2)
