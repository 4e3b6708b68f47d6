"""Programs as the authors of other frameworks write them: an agent that looks at five things, and prints what it says.

Each row is one way of asking it. ``@URL@`` and ``@ROOT@`` are where its model is; the function ``look`` stands at
``@LOOK@``, under its decorator, and is async in the rows that await.
"""

from matrix_program import DIG, LOOK, LOOK_ASYNC, Row


def rows(name: str, place: str, package: str, code: str, ways: dict[str, str], last: str = "") -> dict[str, Row]:
    found = {}
    for way, main in ways.items():
        look = LOOK_ASYNC if "await" in main and "# sync tool" not in main else LOOK
        block = "\n".join(f"    {line}" for line in main.strip("\n").splitlines())
        whole = DIG + code.replace("@LOOK@", look.strip("\n")) + '\nif __name__ == "__main__":\n' + block + "\n"
        found[f"{name}, {way}"] = Row(place, package, whole, last)
    return found


PYDANTIC_AI = """
from pydantic_ai import Agent
@MODEL@

agent = Agent(model, instructions="You dig.")


@agent.tool_plain
@LOOK@
"""
_PYDANTIC_MODELS = {
    "": """
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
model = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(base_url="@URL@", api_key="sk-secret"))
""",
    " responses": """
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
model = OpenAIResponsesModel("gpt-4o-mini", provider=OpenAIProvider(base_url="@URL@", api_key="sk-secret"))
""",
    " Anthropic": """
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
model = AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(base_url="@ROOT@", api_key="sk-secret"))
""",
    " Google": """
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider
model = GoogleModel("gemini-2.5-flash", provider=GoogleProvider(base_url="@ROOT@", api_key="sk-secret"))
""",
}
PYDANTIC_WAYS = {
    "sync": 'print(agent.run_sync("Dig.").output)',
    "async": """
async def main():
    print((await agent.run("Dig.")).output)
asyncio.run(main())
""",
    "streamed": """
async def main():
    async with agent.run_stream("Dig.") as said:
        async for text in said.stream_text(delta=True):
            print(text, end="")
asyncio.run(main()) # await
""",
}

_OPENAI_AGENTS = """
from agents import Agent, @MODEL@, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
model = @MODEL@("gpt-4o-mini", AsyncOpenAI(base_url="@URL@", api_key="sk-secret"))


@function_tool
@LOOK@

agent = Agent(name="digger", instructions="You dig.", tools=[look], model=model)
"""
_OPENAI_AGENTS_WAYS = {
    "sync": 'print(Runner.run_sync(agent, "Dig.").final_output)',
    "async": """
async def main():
    print((await Runner.run(agent, "Dig.")).final_output)
asyncio.run(main())
""",
    "streamed": """
async def main():
    said = Runner.run_streamed(agent, "Dig.")
    async for event in said.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            print(event.data.delta, end="")
    print(said.final_output)
asyncio.run(main()) # await
""",
}

_LANGCHAIN = """
from langchain.agents import create_agent
from langchain.tools import tool
@MODEL@


@tool
@LOOK@

agent = create_agent(model, [look], system_prompt="You dig.")
said = {"messages": [{"role": "user", "content": "Dig."}]}
"""
_LANGCHAIN_OPENAI = """
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="gpt-4o-mini", base_url="@URL@", api_key="sk-secret")
"""
_LANGCHAIN_WAYS = {
    "sync": 'print(agent.invoke(said)["messages"][-1].text)',
    "async": """
async def main():
    print((await agent.ainvoke(said))["messages"][-1].text)
asyncio.run(main())
""",
    "streamed": """
for piece, about in agent.stream(said, stream_mode="messages"):
    print(piece.text, end="|")
""",
    "async streamed": """
async def main():
    async for piece, about in agent.astream(said, stream_mode="messages"):
        print(piece.text, end="|")
asyncio.run(main()) # await
""",
}

_LANGGRAPH = """
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
@LOOK@

model = ChatOpenAI(model="gpt-4o-mini", base_url="@URL@", api_key="sk-secret").bind_tools([look])


def ask(state):
    return {"messages": [model.invoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("ask", ask)
builder.add_node("tools", ToolNode([look]))
builder.add_edge(START, "ask")
builder.add_conditional_edges("ask", tools_condition)
builder.add_edge("tools", "ask")
agent = builder.compile()
said = {"messages": [{"role": "user", "content": "Dig."}]}
"""
_LANGGRAPH_ASYNC = _LANGGRAPH.replace("def ask", "async def ask").replace("model.invoke", "await model.ainvoke")

ADK = """
from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.runners import InMemoryRunner
from google.genai import types
@MODEL@


@LOOK@

agent = LlmAgent(name="digger", model=model, instruction="You dig.", tools=[look])
runner = InMemoryRunner(agent=agent, app_name="dig")
said = types.Content(role="user", parts=[types.Part(text="Dig.")])


def tell(event):
    for part in event.content.parts if event.content and event.content.parts else ():
        if part.text:
            print(event.partial, part.text)
"""
ADK_MODELS = {
    "": """
from google.adk.models.google_llm import Gemini
os.environ.update(GOOGLE_API_KEY="sk-secret", GOOGLE_GEMINI_BASE_URL="@ROOT@", GOOGLE_GENAI_USE_VERTEXAI="0")
model = Gemini(model="gemini-2.5-flash")
""",
    " LiteLLM": """
import litellm
from google.adk.models.lite_llm import LiteLlm
model = LiteLlm(model="openai/gpt-4o-mini", api_base="@URL@", api_key="sk-secret")
""",
}
ADK_MAIN = """
async def main():
    session = await runner.session_service.create_session(app_name="dig", user_id="u")
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=said@MORE@):
        tell(event)
asyncio.run(main())
"""
_ADK_WAYS = {
    "sync": """
session = asyncio.run(runner.session_service.create_session(app_name="dig", user_id="u"))
for event in runner.run(user_id="u", session_id=session.id, new_message=said):
    tell(event)
""",
    "async": ADK_MAIN.replace("@MORE@", ""),
    "streamed": ADK_MAIN.replace("@MORE@", ", run_config=RunConfig(streaming_mode=StreamingMode.SSE)"),
}

_SMOLAGENTS = """
from smolagents import @KIND@, OpenAIServerModel, tool

model = OpenAIServerModel("gpt-4o-mini", api_base="@URL@", api_key="sk-secret")


@tool
@LOOK@

agent = @KIND@([look], model, verbosity_level=0@MORE@)
"""
_SMOLAGENTS_WAYS = {
    "sync": 'print(agent.run("Dig."))',
    "streamed": """
for step in agent.run("Dig.", stream=True):
    print(getattr(step, "content", None) or getattr(step, "output", None) or type(step).__name__)
""",
}

_AGNO = """
from agno.agent import Agent
from agno.models.openai import @MODEL@

@LOOK@

model = @MODEL@("gpt-4o-mini", base_url="@URL@", api_key="sk-secret")
agent = Agent(model=model, tools=[look], telemetry=False)
"""
_AGNO_WAYS = {
    "sync": 'print(agent.run("Dig.").content)',
    "async": """
async def main():
    print((await agent.arun("Dig.")).content)
asyncio.run(main())
""",
    "streamed": """
for event in agent.run("Dig.", stream=True):
    print(event.event, event.content)
""",
    "async streamed": """
async def main():
    async for event in agent.arun("Dig.", stream=True):
        print(event.event, event.content)
asyncio.run(main()) # await
""",
}

_LLAMA = """
from llama_index.core.agent.workflow import AgentStream, @KIND@
from llama_index.llms.openai_like import OpenAILike

@LOOK@

model = OpenAILike("gpt-4o-mini", api_base="@URL@", api_key="sk-secret", is_chat_model=True,
    is_function_calling_model=True)
agent = @KIND@(name="digger", tools=[look], llm=model, streaming=@STREAMS@)
"""
_LLAMA_WAYS = {
    "async": """
async def main():
    print(await agent.run("Dig."))
asyncio.run(main())
""",
    "streamed": """
async def main():
    handler = agent.run("Dig.")
    async for event in handler.stream_events():
        if isinstance(event, AgentStream):
            print(event.delta, end="|")
    print(await handler)
asyncio.run(main()) # sync tool
""",
}

_AUTOGEN = """
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

@LOOK@

model = OpenAIChatCompletionClient(model="gpt-4o-mini", base_url="@URL@", api_key="sk-secret")
agent = AssistantAgent("digger", model, tools=[look], max_tool_iterations=10, model_client_stream=@STREAMS@)
"""
_AUTOGEN_WAYS = {
    "async": """
async def main():
    print((await agent.run(task="Dig.")).messages[-1].content)
asyncio.run(main())
""",
    "streamed": """
async def main():
    async for message in agent.run_stream(task="Dig."):
        print(getattr(message, "content", "end"))
asyncio.run(main()) # sync tool await
""",
}

_MICROSOFT = """
from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

@LOOK@

client = OpenAIChatCompletionClient("gpt-4o-mini", base_url="@URL@", api_key="sk-secret")
agent = Agent(client, "You dig.", tools=[look])
"""
_MICROSOFT_WAYS = {
    "async": """
async def main():
    print((await agent.run("Dig.")).text)
asyncio.run(main())
""",
    "streamed": """
async def main():
    async for piece in agent.run("Dig.", stream=True):
        print(piece.text, end="|")
asyncio.run(main()) # sync tool await
""",
}

_STRANDS = """
from strands import Agent, tool
@MODEL@


@tool
@LOOK@

agent = Agent(model=model, tools=[look], callback_handler=None, system_prompt="You dig.")
"""
_STRANDS_MODELS = {
    "": """
from strands.models.openai import OpenAIModel
model = OpenAIModel(client_args={"base_url": "@URL@", "api_key": "sk-secret"}, model_id="gpt-4o-mini")
""",
    " Bedrock": """
from strands.models import BedrockModel
os.environ.update(AWS_ACCESS_KEY_ID="sk-secret", AWS_SECRET_ACCESS_KEY="sk-secret", AWS_DEFAULT_REGION="us-east-1")
model = BedrockModel(model_id="anthropic.claude-sonnet-4", endpoint_url="@ROOT@")
""",
    " Google": """
from strands.models.gemini import GeminiModel
client = {"api_key": "sk-secret", "http_options": {"base_url": "@ROOT@"}}
model = GeminiModel(client_args=client, model_id="gemini-2.5-flash")
""",
}
_STRANDS_WAYS = {
    "sync": 'print(agent("Dig."))',
    "async": """
async def main():
    print(await agent.invoke_async("Dig."))
asyncio.run(main())
""",
    "streamed": """
async def main():
    async for event in agent.stream_async("Dig."):
        print(event.get("data", ""), end="|")
asyncio.run(main()) # await
""",
}

_CREWAI = """
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool("look")
@LOOK@

model = LLM("openai/gpt-4o-mini", base_url="@URL@", api_key="sk-secret", stream=@STREAMS@)
digger = Agent(role="Digger", goal="Dig", backstory="Digs.", llm=model, tools=[look])
task = Task(description="Dig.", expected_output="A word.", agent=digger)
crew = Crew(agents=[digger], tasks=[task])
"""

ROWS: dict[str, Row] = {}
for _more, _model in _PYDANTIC_MODELS.items():
    _code = PYDANTIC_AI.replace("@MODEL@", _model.strip())
    ROWS |= rows(f"pydantic-ai{_more}", "main", "pydantic-ai-slim", _code, PYDANTIC_WAYS)
for _more, _model in {" responses": "OpenAIResponsesModel", " chat": "OpenAIChatCompletionsModel"}.items():
    _code = _OPENAI_AGENTS.replace("@MODEL@", _model)
    ROWS |= rows(f"OpenAI Agents{_more}", "main", "openai-agents", _code, _OPENAI_AGENTS_WAYS)
ROWS |= rows(
    "LangChain", "main", "langchain", _LANGCHAIN.replace("@MODEL@", _LANGCHAIN_OPENAI.strip()), _LANGCHAIN_WAYS
)
for _way, _main in _LANGCHAIN_WAYS.items():
    ROWS |= rows("LangGraph", "main", "langgraph", _LANGGRAPH_ASYNC if "async" in _way else _LANGGRAPH, {_way: _main})
for _more, _model in ADK_MODELS.items():
    ROWS |= rows(f"Google ADK{_more}", "google-adk", "google-adk", ADK.replace("@MODEL@", _model.strip()), _ADK_WAYS)
for _way, _main in _SMOLAGENTS_WAYS.items():
    _code = _SMOLAGENTS.replace("@KIND@", "ToolCallingAgent")
    _code = _code.replace("@MORE@", ", stream_outputs=True" if _way == "streamed" else "")
    ROWS |= rows("smolagents", "smolagents", "smolagents", _code, {_way: _main}, "final_answer")
ROWS |= rows("Agno", "agno", "agno", _AGNO.replace("@MODEL@", "OpenAIChat"), _AGNO_WAYS)
ROWS |= rows("Agno responses", "agno", "agno", _AGNO.replace("@MODEL@", "OpenAIResponses"), _AGNO_WAYS)
for _way, _main in _LLAMA_WAYS.items():
    _code = _LLAMA.replace("@KIND@", "FunctionAgent").replace("@STREAMS@", str(_way == "streamed"))
    ROWS |= rows("LlamaIndex", "llama-index", "llama-index-core", _code, {_way: _main})
for _way, _main in _AUTOGEN_WAYS.items():
    _code = _AUTOGEN.replace("@STREAMS@", str(_way == "streamed"))
    ROWS |= rows("AutoGen", "autogen", "autogen-agentchat", _code, {_way: _main})
ROWS |= rows("Microsoft Agent Framework", "msaf", "agent-framework-core", _MICROSOFT, _MICROSOFT_WAYS)
for _more, _model in _STRANDS_MODELS.items():
    ROWS |= rows(
        f"Strands{_more}", "strands", "strands-agents", _STRANDS.replace("@MODEL@", _model.strip()), _STRANDS_WAYS
    )
for _way in ("sync", "streamed"):
    _code = _CREWAI.replace("@STREAMS@", str(_way == "streamed"))
    ROWS |= rows("CrewAI", "crewai", "crewai", _code, {_way: "print(crew.kickoff().raw)"})
