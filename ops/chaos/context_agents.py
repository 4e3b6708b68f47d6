"""Files that run an agent with a context of their own, in which its tool counts: what they print says what it counted.

Each pays for three things, one after another, and its tool gives what was paid for so far.
"""

PAY = """
    with open({trace!r}, "a") as file:
        file.write(f"{{i}}\\n")
    if i in {dies!r} and not os.path.exists(f"{trace}.{{i}}"):
        open(f"{trace}.{{i}}", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    paid.append(i)
    return f"paid {{paid}}"
"""

PYDANTIC_AI = """
import os, signal
from dataclasses import dataclass, field

import httpx
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


@dataclass
class Deps:
    client: httpx.AsyncClient
    paid: list[int] = field(default_factory=list)


model = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(base_url={url!r}, api_key="sk-secret"))
agent = Agent(model, deps_type=Deps)


@agent.tool
def look(ctx: RunContext[Deps], i: int) -> str:
    paid = ctx.deps.paid
"""

PYDANTIC_AI_END = """

deps = Deps(httpx.AsyncClient())
print(agent.run_sync("Dig.", deps=deps).output, deps.paid)
"""

OPENAI_AGENTS = """
import os, signal

from agents import Agent, OpenAIChatCompletionsModel, RunContextWrapper, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)
model = OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI(base_url={url!r}, api_key="sk-secret", max_retries=0))


class Basket(BaseModel):
    paid: list[int] = []


@function_tool
def look(wrapper: RunContextWrapper[Basket], i: int) -> str:
    paid = wrapper.context.paid
"""

OPENAI_AGENTS_END = """

basket = Basket()
agent = Agent(name="digger", tools=[look], model=model)
print(Runner.run_sync(agent, "Dig.", context=basket).final_output, basket.paid)
"""

LANGCHAIN = """
import os, signal

from langchain.agents import AgentState, create_agent
from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.types import Command


class State(AgentState):
    told: str


class Basket:
    def __init__(self) -> None:
        self.paid: list[int] = []


@tool
def look(i: int, runtime: ToolRuntime[Basket, State]) -> Command:
    "Looks at a thing."
    found = pay(runtime.context.paid, i)
    return Command(update={{"told": found, "messages": [ToolMessage(found, tool_call_id=runtime.tool_call_id)]}})


def pay(paid: list[int], i: int) -> str:
"""

LANGCHAIN_END = """

model = ChatOpenAI(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0)
graph = create_agent(model, [look], state_schema=State, context_schema=Basket)
basket = Basket()
state = graph.invoke({{"messages": [{{"role": "user", "content": "Dig."}}]}}, context=basket)
assert state["told"] == f"paid {{basket.paid}}"
print(state["messages"][-1].content, basket.paid)
"""

LANGGRAPH_STORE = """
import os, signal

from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.config import get_store
from langgraph.store.memory import InMemoryStore


@tool
def look(i: int, runtime: ToolRuntime) -> str:
    "Looks at a thing."
    found = pay([item.value["paid"] for item in runtime.store.search(("paid",))], i)
    runtime.store.put(("paid",), str(i), {{"paid": i}})
    return found + remembered.invoke({{"i": i}})


@tool
def remembered(i: int) -> str:
    "Remembers a thing."
    get_store().put(("seen", str(i)), "last", {{"seen": i}})
    return ""


def pay(paid: list[int], i: int) -> str:
"""

LANGGRAPH_STORE_END = """

model = ChatOpenAI(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0)
store = InMemoryStore()
graph = create_agent(model, [look], store=store)
state = graph.invoke({{"messages": [{{"role": "user", "content": "Dig."}}]}})
paid = [item.value["paid"] for item in store.search(("paid",))]
assert paid == [item.value["seen"] for item in store.search(("seen",))]
print(state["messages"][-1].content, paid)
"""

LANGGRAPH_SENT = """
import operator, os, signal
from typing import Annotated

from langchain.agents import AgentState, create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.config import get_config


class State(AgentState):
    paid: Annotated[list[int], operator.add]


@tool
def look(i: int) -> str:
    "Looks at a thing."
    graph = get_config()["configurable"]
    paid = [*graph["__pregel_read"]("paid")]
    found = pay(paid, i)
    graph["__pregel_send"]([("paid", [i])])
    return found


def pay(paid: list[int], i: int) -> str:
"""

LANGGRAPH_SENT_END = """

model = ChatOpenAI(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0)
graph = create_agent(model, [look], state_schema=State)
state = graph.invoke({{"messages": [{{"role": "user", "content": "Dig."}}], "paid": []}})
print(state["messages"][-1].content, state["paid"])
"""

CONTEXTS = {
    "pydantic-ai": PYDANTIC_AI + PAY.strip("\n") + PYDANTIC_AI_END,
    "openai-agents": OPENAI_AGENTS + PAY.strip("\n") + OPENAI_AGENTS_END,
    "langchain": LANGCHAIN + PAY.strip("\n") + LANGCHAIN_END,
    "langgraph sent": LANGGRAPH_SENT + PAY.strip("\n") + LANGGRAPH_SENT_END,
    "langgraph store": LANGGRAPH_STORE + PAY.strip("\n") + LANGGRAPH_STORE_END,
}
"""Each by its framework, with places as in `framework_agents`."""

AGNO = """
import os, signal

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.run import RunContext


def look(run_context: RunContext, i: int) -> str:
    "Looks at a thing."
    paid = run_context.session_state.setdefault("paid", [])
"""

AGNO_END = """

model = OpenAIChat("gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
agent = Agent(model=model, tools=[look], telemetry=False, session_state={{"paid": []}})
found = agent.run("Dig.")
print(found.content, found.session_state["paid"])
"""

GOOGLE_ADK = """
import asyncio, os, signal

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools import ToolContext
from google.genai import types


def look(i: int, tool_context: ToolContext) -> str:
    "Looks at a thing."
    paid = tool_context.state.setdefault("paid", [])
    tool_context.state["last"] = i
"""

GOOGLE_ADK_END = """

model = LiteLlm(model="openai/gpt-4o-mini", api_base={url!r}, api_key="sk-secret")
runner = InMemoryRunner(agent=LlmAgent(name="digger", model=model, tools=[look]), app_name="dig")


async def main():
    session = await runner.session_service.create_session(app_name="dig", user_id="u")
    said = types.Content(role="user", parts=[types.Part(text="Dig.")])
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=said):
        if event.is_final_response():
            answer = event.content.parts[0].text
    session = await runner.session_service.get_session(app_name="dig", user_id="u", session_id=session.id)
    assert session.state["last"] == session.state["paid"][-1]
    print(answer, session.state["paid"])


asyncio.run(main())
"""

STRANDS = """
import os, signal

from strands import Agent, ToolContext, tool
from strands.models.openai import OpenAIModel


@tool(context=True)
def look(i: int, tool_context: ToolContext) -> str:
    "Looks at a thing."
    paid = tool_context.agent.state.get("paid") or []
    tool_context.invocation_state["basket"].append(i)
    found = pay(paid, i)
    tool_context.agent.state.set("paid", paid)
    return found


def pay(paid: list[int], i: int) -> str:
"""

STRANDS_END = """

client = {{"base_url": {url!r}, "api_key": "sk-secret", "max_retries": 0}}
agent = Agent(model=OpenAIModel(client_args=client, model_id="gpt-4o-mini"), tools=[look], callback_handler=None)
basket = []
found = str(agent("Dig.", invocation_state={{"basket": basket}})).strip()
assert basket == agent.state.get("paid"), basket
print(found, basket)
"""

SMOLAGENTS = """
import os, signal

from smolagents import OpenAIServerModel, Tool, ToolCallingAgent


class Look(Tool):
    name = "look"
    description = "Looks at a thing."
    inputs = {{"i": {{"type": "integer", "description": "Its number."}}}}
    output_type = "string"

    def __init__(self):
        super().__init__()
        self.paid = []

    def forward(self, i: int) -> str:
        return pay(self.paid, i)


def pay(paid, i):
"""

SMOLAGENTS_END = """

model = OpenAIServerModel("gpt-4o-mini", api_base={url!r}, api_key="sk-secret")
look = Look()
print(ToolCallingAgent([look], model, verbosity_level=0).run("Dig."), look.paid)
"""

LLAMA_INDEX = """
import asyncio, os, signal

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike


class Basket:
    def __init__(self):
        self.paid = []

    def look(self, i: int) -> str:
        "Looks at a thing."
        return pay(self.paid, i)


def pay(paid, i):
"""

LLAMA_INDEX_END = """

model = OpenAILike("gpt-4o-mini", api_base={url!r}, api_key="sk-secret", is_chat_model=True,
    is_function_calling_model=True, max_retries=0)
basket = Basket()


async def main():
    print(await FunctionAgent(tools=[basket.look], llm=model, streaming=False).run("Dig."), basket.paid)


asyncio.run(main())
"""

AUTOGEN = """
import asyncio, os, signal

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


class Basket:
    def __init__(self):
        self.paid = []

    def look(self, i: int) -> str:
        "Looks at a thing."
        return pay(self.paid, i)


def pay(paid, i):
"""

AUTOGEN_END = """

model = OpenAIChatCompletionClient(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0)
basket = Basket()


async def main():
    found = await AssistantAgent("digger", model, tools=[basket.look], max_tool_iterations=10).run(task="Dig.")
    print(found.messages[-1].content, basket.paid)


asyncio.run(main())
"""

ELSEWHERE = {
    "agno": AGNO + PAY.strip("\n") + AGNO_END,
    "google-adk": GOOGLE_ADK + PAY.strip("\n") + GOOGLE_ADK_END,
    "strands": STRANDS + PAY.strip("\n") + STRANDS_END,
    "smolagents": SMOLAGENTS + PAY.strip("\n") + SMOLAGENTS_END,
    "llama-index": LLAMA_INDEX + PAY.strip("\n") + LLAMA_INDEX_END,
    "autogen": AUTOGEN + PAY.strip("\n") + AUTOGEN_END,
}
"""Those that are tried in environments of their own."""
