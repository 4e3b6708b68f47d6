"""Agents as the authors of other frameworks write them: each looks at three things, one after another."""

LOOK = '''
def look(i: int) -> str:
    """Looks at a thing.

    Args:
        i: The number of the thing.
    """
    with open({trace!r}, "a") as file:
        file.write(f"{{i}}\\n")
    if i in {dies!r} and not os.path.exists(f"{trace}.{{i}}"):
        open(f"{trace}.{{i}}", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"part {{i}}"
'''

PYDANTIC_AI = """
import os, signal

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(base_url={url!r}, api_key="sk-secret"))
agent = Agent(model, name="digger", instructions="You dig.")


@agent.tool_plain
"""

OPENAI_AGENTS = """
import os, signal

from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
model = OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI(base_url={url!r}, api_key="sk-secret", max_retries=0))


@function_tool
"""

OPENAI_AGENTS_END = """
helper = Agent(name="helper", instructions="You help.", tools=[look], model=model)
digger = Agent(name="digger", instructions="You dig.", tools=[look], model=model, handoffs=[helper])
"""

OPENAI_RESPONSES = OPENAI_AGENTS.replace("OpenAIChatCompletionsModel", "OpenAIResponsesModel")

LANGCHAIN = """
import os, signal

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
"""

LANGCHAIN_END = """
graph = create_agent(ChatOpenAI(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0), [look])
"""

LANGGRAPH = """
import operator, os, signal
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from openai import OpenAI

from runner import durable

client = OpenAI(base_url={url!r}, api_key="sk-secret", max_retries=0)


class State(TypedDict):
    prompt: str
    parts: Annotated[list[str], operator.add]


@durable
"""

LANGGRAPH_END = """
def dig(state: State) -> State:
    messages = [{{"role": "user", "content": state["prompt"]}}]
    for part in state.get("parts", []):
        messages.append({{"role": "assistant", "content": "look"}})
        messages.append({{"role": "tool", "tool_call_id": "c", "content": part}})
    said = client.chat.completions.create(model="gpt-4o-mini", messages=messages).choices[0].message
    return {{"parts": ["done"]}} if said.content == "done" else {{"parts": [look(len(state.get("parts", [])))]}}


def whether(state: State) -> str:
    return END if state["parts"][-1] == "done" else "dig"


builder = StateGraph(State)
builder.add_node("dig", dig)
builder.add_edge(START, "dig")
builder.add_conditional_edges("dig", whether)
graph = builder.compile(name="digger")
"""

AGENTS = {
    "pydantic-ai": PYDANTIC_AI + LOOK.lstrip(),
    "openai-agents": OPENAI_AGENTS + LOOK.lstrip() + OPENAI_AGENTS_END,
    "openai-agents responses": OPENAI_RESPONSES + LOOK.lstrip() + OPENAI_AGENTS_END,
    "langchain": LANGCHAIN + LOOK.lstrip() + LANGCHAIN_END,
    "langgraph": LANGGRAPH + LOOK.lstrip() + LANGGRAPH_END,
}
"""Each by its framework, with places for ``url``, ``trace`` and which things it ``dies`` of, once each."""

OUTPUTS = {"langgraph": '{"prompt": "Dig.", "parts": ["part 0", "part 1", "part 2", "done"]}'}
"""What a run of them gives, where it is more than the last word."""

SMOLAGENTS = """
import os, signal

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

model = OpenAIServerModel("gpt-4o-mini", api_base={url!r}, api_key="sk-secret")


@tool
"""

SMOLAGENTS_END = """
look = tool(look)
agent = ToolCallingAgent([look], model, name="digger", verbosity_level=0)
"""

AGNO = """
import os, signal

from agno.agent import Agent
from agno.models.openai import OpenAIChat


"""

AGNO_END = """
agent = Agent(name="digger", model=OpenAIChat("gpt-4o-mini", base_url={url!r}, api_key="sk-secret"), tools=[look],
    telemetry=False)
"""

LLAMA_INDEX = """
import os, signal

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike


"""

LLAMA_INDEX_END = """
model = OpenAILike("gpt-4o-mini", api_base={url!r}, api_key="sk-secret", is_chat_model=True,
    is_function_calling_model=True, max_retries=0)
agent = FunctionAgent(name="digger", tools=[look], llm=model, streaming=False)
"""

AUTOGEN = """
import os, signal

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


"""

AUTOGEN_END = """
model = OpenAIChatCompletionClient(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0)
agent = AssistantAgent("digger", model, tools=[look], max_tool_iterations=10)
"""

GOOGLE_ADK = """
import os, signal

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm


"""

GOOGLE_ADK_END = """
model = LiteLlm(model="openai/gpt-4o-mini", api_base={url!r}, api_key="sk-secret")
root_agent = LlmAgent(name="digger", model=model, instruction="You dig.", tools=[look])
"""

OVER_AIOHTTP = """
import os

os.environ["DISABLE_AIOHTTP_TRANSPORT"] = "False"
"""

STRANDS = """
import os, signal

from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool
"""

STRANDS_END = """
client = {{"base_url": {url!r}, "api_key": "sk-secret", "max_retries": 0}}
model = OpenAIModel(client_args=client, model_id="gpt-4o-mini")
agent = Agent(name="digger", model=model, tools=[look], callback_handler=None)
"""

ELSEWHERE = {
    "smolagents": SMOLAGENTS.replace("@tool\n", "") + LOOK.lstrip() + SMOLAGENTS_END,
    "agno": AGNO + LOOK.lstrip() + AGNO_END,
    "llama-index": LLAMA_INDEX + LOOK.lstrip() + LLAMA_INDEX_END,
    "autogen": AUTOGEN + LOOK.lstrip() + AUTOGEN_END,
    "google-adk": GOOGLE_ADK + LOOK.lstrip() + GOOGLE_ADK_END,
    "google-adk aiohttp": OVER_AIOHTTP + GOOGLE_ADK + LOOK.lstrip() + GOOGLE_ADK_END,
    "strands": STRANDS + LOOK.lstrip() + STRANDS_END,
}
"""Those that are tried in environments of their own: they do not go together, or with the tests' tools."""
