"""The agents with hooks (`hook_agents`) of frameworks that are tried in environments of their own."""

import runpy
from pathlib import Path

BEGIN = runpy.run_path(str(Path(__file__).with_name("hook_agents.py")))["BEGIN"]

STRANDS = """
from strands import Agent, ToolContext, tool
from strands.hooks import AfterModelCallEvent, AfterToolCallEvent, BeforeToolCallEvent, HookProvider
from strands.models.openai import OpenAIModel


class Counts(HookProvider):
    def register_hooks(self, registry, **_):
        registry.add_callback(BeforeToolCallEvent, self.before)
        registry.add_callback(AfterToolCallEvent, self.after)
        registry.add_callback(AfterModelCallEvent, self.model)

    def before(self, event):
        note("before", event.tool_use["input"])
        event.invocation_state["basket"].hooks.append("before")
        event.tool_use["input"]["i"] += 10

    async def after(self, event):
        note("after", event.result["content"])
        await asyncio.sleep(0)
        event.invocation_state["basket"].hooks.append("after")
        event.agent.state.set("after", (event.agent.state.get("after") or 0) + 1)
        if event.result["content"][0]["text"] == "part 12" and not event.agent.state.get("again"):
            event.agent.state.set("again", True)
            event.tool_use["input"]["i"] -= 10
            event.retry = True
        event.result["content"][0]["text"] += "!"

    def model(self, event):
        note("model")


@tool(context=True)
async def look(i: int, tool_context: ToolContext) -> str:
    "Looks at a thing."
    return await dig(i, tool_context.invocation_state["basket"])


client = {{"base_url": {url!r}, "api_key": "sk-secret", "max_retries": 0}}
agent = Agent(model=OpenAIModel(client_args=client, model_id="gpt-4o-mini"), tools=[look], callback_handler=None,
    hooks=[Counts()])
print(str(agent("Dig.", invocation_state={{"basket": basket}})).strip(), basket, agent.state.get("after"))
"""

AGNO = """
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.run import RunContext
from agno.tools import tool
from agno.tools.function import FunctionCall


def before(fc: FunctionCall, run_context: RunContext):
    note("pre", fc.arguments)
    run_context.session_state["hooks"].append("pre")


def after(fc: FunctionCall, run_context: RunContext):
    note("post", fc.arguments, fc.result)
    run_context.session_state["hooks"].append("post")


async def around(run_context: RunContext, function_name, function_call, arguments):
    note("around", function_name, arguments)
    run_context.session_state["hooks"].append("before")
    arguments["i"] += 10
    given = await function_call(**arguments)
    run_context.session_state["hooks"].append("between")
    if given == "part 12":
        given = await function_call(**arguments)
    run_context.session_state["hooks"].append("after")
    note("after", given)
    return given + "!"


@tool(pre_hook=before, post_hook=after, tool_hooks=[around])
async def look(run_context: RunContext, i: int) -> str:
    "Looks at a thing."
    kept = Basket()
    kept.dug = run_context.session_state["dug"]
    return await dig(i, kept)


model = OpenAIChat("gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
agent = Agent(model=model, tools=[look], telemetry=False, session_state={{"dug": [], "hooks": []}})
found = asyncio.run(agent.arun("Dig."))
print(found.content, sorted(found.session_state["dug"]), sorted(found.session_state["hooks"]))
"""

AGENT_FRAMEWORK = """
from agent_framework import Agent, FunctionInvocationContext, FunctionMiddleware, chat_middleware, function_middleware
from agent_framework import tool
from agent_framework.openai import OpenAIChatCompletionClient


@function_middleware
async def around(context, call_next):
    note("before", context.function.name, context.arguments)
    basket.hooks.append("before")
    given = context.arguments
    context.arguments = {{**(given if isinstance(given, dict) else given.model_dump())}}
    context.arguments["i"] += 10
    await call_next()
    basket.hooks.append("between")
    basket.hooks.append("after")
    note("after")


class Counts(FunctionMiddleware):
    async def process(self, context, call_next):
        note("class before", context.function.name)
        basket.hooks.append("cbefore")
        await call_next()
        basket.hooks.append("cafter")


@chat_middleware
async def models(context, call_next):
    note("model", len(context.messages))
    await call_next()


@tool
async def look(i: int, ctx: FunctionInvocationContext) -> str:
    "Looks at a thing."
    return await dig(i, ctx.kwargs["basket"])


client = OpenAIChatCompletionClient(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
agent = Agent(client, tools=[look], middleware=[around, Counts(), models])
print(asyncio.run(agent.run("Dig.", function_invocation_kwargs={{"basket": basket}})).text, basket)
"""

SMOLAGENTS = """
from smolagents import OpenAIServerModel, Tool, ToolCallingAgent

class Look(Tool):
    name = "look"
    description = "Looks at a thing."
    inputs = {{"i": {{"type": "integer", "description": "Its number."}}}}
    output_type = "string"

    def __init__(self):
        super().__init__()
        self.basket = basket

    def forward(self, i: int) -> str:
        return asyncio.run(dig(i, self.basket))


def stepped(step, agent):
    note("stepped", getattr(step, "observations", None))
    basket.hooks.append("stepped")


def checks(answer, memory, agent=None):
    note("checks", answer)
    basket.hooks.append("checks")
    return True


model = OpenAIServerModel("gpt-4o-mini", api_base={url!r}, api_key="sk-secret")
agent = ToolCallingAgent([Look()], model, verbosity_level=0, step_callbacks=[stepped], final_answer_checks=[checks])
print(agent.run("Dig."), basket)
"""

LLAMA_INDEX = """
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike


class Counts(BaseEventHandler):
    @classmethod
    def class_name(cls):
        return "Counts"

    def handle(self, event, **_):
        note("event", type(event).__name__)
        basket.hooks.append("event")


class Spans(SimpleSpanHandler):
    def new_span(self, id_, bound_args, instance=None, parent_span_id=None, tags=None, **kwargs):
        if "FunctionTool" in id_:
            note("span", id_.partition("-")[0])
        return super().new_span(id_, bound_args, instance, parent_span_id, tags, **kwargs)


get_dispatcher().add_event_handler(Counts())
get_dispatcher().add_span_handler(Spans())


class Tools:
    def __init__(self):
        self.basket = basket

    async def look(self, i: int) -> str:
        "Looks at a thing."
        return await dig(i, self.basket)


def after(given):
    note("after", given)
    basket.hooks.append("after")
    return f"{{given}}!"


model = OpenAILike("gpt-4o-mini", api_base={url!r}, api_key="sk-secret", is_chat_model=True,
    is_function_calling_model=True, max_retries=0)
look = FunctionTool.from_defaults(async_fn=Tools().look, name="look", callback=after)


async def main():
    handler = FunctionAgent(tools=[look], llm=model, streaming=False).run("Dig.")
    async for event in handler.stream_events():
        note("stream", type(event).__name__)
    print(await handler, basket)


asyncio.run(main())
"""

AUTOGEN = """
import logging
from autogen_agentchat.agents import AssistantAgent
from autogen_core import EVENT_LOGGER_NAME
from autogen_ext.models.openai import OpenAIChatCompletionClient


class Counts(logging.Handler):
    def emit(self, record):
        note("logged", type(record.msg).__name__, getattr(record.msg, "kwargs", {{}}).get("arguments"))
        basket.hooks.append("logged")


logging.getLogger(EVENT_LOGGER_NAME).setLevel(logging.INFO)
logging.getLogger(EVENT_LOGGER_NAME).addHandler(Counts())


class Tools:
    def __init__(self):
        self.basket = basket

    async def look(self, i: int) -> str:
        "Looks at a thing."
        return await dig(i, self.basket)


model = OpenAIChatCompletionClient(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0)


async def main():
    agent = AssistantAgent("digger", model, tools=[Tools().look], max_tool_iterations=10)
    async for event in agent.run_stream(task="Dig."):
        note("stream", type(event).__name__)
        basket.hooks.append("stream")
    print(event.messages[-1].content, basket)


asyncio.run(main())
"""

GOOGLE_ADK = """
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools import ToolContext
from google.genai import types


class Counts(BasePlugin):
    async def before_tool_callback(self, *, tool, tool_args, tool_context):
        note("plugin before", tool_args)

    async def after_tool_callback(self, *, tool, tool_args, tool_context, result):
        note("plugin after", result)


def before(tool, args, tool_context):
    note("before", args)
    tool_context.state["before"] = tool_context.state.get("before", 0) + 1
    args["i"] += 10


async def after(tool, args, tool_context, tool_response):
    note("after", tool_response)
    await asyncio.sleep(0)
    tool_context.state["after"] = tool_context.state.get("after", 0) + 1
    return {{"result": tool_response["result"] + "!"}}


async def look(i: int, tool_context: ToolContext) -> dict:
    "Looks at a thing."
    kept = Basket()
    given = await dig(i, kept)
    tool_context.state["dug"] = sorted(tool_context.state.get("dug", []) + kept.dug)
    return {{"result": given}}


async def main():
    model = LiteLlm(model="openai/gpt-4o-mini", api_base={url!r}, api_key="sk-secret")
    agent = LlmAgent(name="digger", model=model, tools=[look], before_tool_callback=before, after_tool_callback=after)
    runner = InMemoryRunner(agent=agent, app_name="dig", plugins=[Counts(name="counts")])
    session = await runner.session_service.create_session(app_name="dig", user_id="u")
    said = types.Content(role="user", parts=[types.Part(text="Dig.")])
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=said):
        if event.is_final_response():
            answer = event.content.parts[0].text
    session = await runner.session_service.get_session(app_name="dig", user_id="u", session_id=session.id)
    print(answer, sorted((name, str(one)) for name, one in session.state.items()))


asyncio.run(main())
"""

ELSEWHERE = {
    name: BEGIN + code
    for name, code in (
        ("agent-framework", AGENT_FRAMEWORK),
        ("agno", AGNO),
        ("autogen", AUTOGEN),
        ("google-adk", GOOGLE_ADK),
        ("llama-index", LLAMA_INDEX),
        ("smolagents", SMOLAGENTS),
        ("strands", STRANDS),
    )
}
"""Each by the name of its adapter."""
