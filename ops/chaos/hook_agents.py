"""Agents with hooks: code of the author's that the framework calls before, after and around uses of tools.

Each hook notes what it is called with, and changes an object in which the tool keeps something, while another use of
the tool is under way. Some change arguments or results, or have the tool used once more. What is printed says what was
changed.
"""

BEGIN = """
import asyncio, json, os, signal


def note(*what):
    with open({trace!r} + ".hooks", "a") as file:
        file.write(json.dumps([os.getpid(), *map(str, what)]) + "\\n")


class Basket:
    def __init__(self) -> None:
        self.dug: list[int] = []
        self.hooks: list[str] = []

    def __str__(self) -> str:
        return f"{{sorted(self.dug)}} {{sorted(self.hooks)}}"


basket = Basket()


async def dig(i: int, basket: Basket) -> str:
    with open({trace!r}, "a") as file:
        file.write(f"{{i}}\\n")
    if i in {dies!r} and not os.path.exists(f"{trace}.{{i}}"):
        open(f"{trace}.{{i}}", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    basket.dug.append(i)
    await asyncio.sleep(i % 10 / 5)
    return f"part {{i}}"
"""

LANGCHAIN = """
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import ToolRuntime
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


class Counts(BaseCallbackHandler):
    def on_tool_start(self, serialized, input_str, **_):
        note("tool starts", input_str)
        basket.hooks.append("starts")

    def on_tool_end(self, output, **_):
        note("tool ends", output.content, output.tool_call_id)
        basket.hooks.append("ends")


class AsyncCounts(AsyncCallbackHandler):
    async def on_tool_end(self, output, **_):
        note("tool ends, async", output.content, output.tool_call_id)
        await asyncio.sleep(0)
        basket.hooks.append("aends")

    async def on_llm_end(self, response, **_):
        note("model ends", response.generations[0][0].message.content)


class Retries(AgentMiddleware):
    async def awrap_tool_call(self, request, handler):
        note("before", request.tool_call["args"])
        basket.hooks.append("before")
        request.tool_call["args"]["i"] += 10
        given = await handler(request)
        basket.hooks.append("between")
        if given.content == "part 12":
            given = await handler(request)
        basket.hooks.append("after")
        given.content += "!"
        note("after", given.content)
        return given

    async def awrap_model_call(self, request, handler):
        note("model", len(request.messages))
        return await handler(request)


@tool
async def look(i: int, runtime: ToolRuntime[Basket]) -> str:
    "Looks at a thing."
    return await dig(i, runtime.context)


model = ChatOpenAI(model="gpt-4o-mini", base_url={url!r}, api_key="sk-secret", max_retries=0)
graph = create_agent(model, [look], context_schema=Basket, middleware=[Retries()])
said = {{"messages": [{{"role": "user", "content": "Dig."}}]}}
state = asyncio.run(graph.ainvoke(said, config={{"callbacks": [Counts(), AsyncCounts()]}}, context=basket))
print(state["messages"][-1].content, basket)
"""

OPENAI_AGENTS = """
from agents import Agent, AgentHooks, OpenAIChatCompletionsModel, RunContextWrapper, RunHooks, Runner, function_tool
from agents import ToolGuardrailFunctionOutput, ToolInputGuardrail, ToolOutputGuardrail, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)


class Counts(RunHooks):
    async def on_tool_start(self, context, agent, tool):
        note("starts", tool.name)
        context.context.hooks.append("starts")

    async def on_tool_end(self, context, agent, tool, result):
        note("ends", result)
        context.context.hooks.append("ends")


class Marks(AgentHooks):
    async def on_tool_end(self, context, agent, tool, result):
        note("agent's", result)
        context.context.hooks.append("agent's")


def checks(data):
    note("checks", data.context.tool_arguments)
    data.context.context.hooks.append("checks")
    return ToolGuardrailFunctionOutput.allow()


async def reads(data):
    note("reads", data.output)
    data.context.context.hooks.append("reads")
    return ToolGuardrailFunctionOutput.allow()


@function_tool(tool_input_guardrails=[ToolInputGuardrail(checks)], tool_output_guardrails=[ToolOutputGuardrail(reads)])
async def look(context: RunContextWrapper[Basket], i: int) -> str:
    "Looks at a thing."
    return await dig(i, context.context)


model = OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI(base_url={url!r}, api_key="sk-secret", max_retries=0))
agent = Agent(name="digger", tools=[look], model=model, hooks=Marks())
print(Runner.run_sync(agent, "Dig.", context=basket, hooks=Counts()).final_output, basket)
"""

PYDANTIC_AI = """
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset


class Counts(WrapperToolset):
    async def call_tool(self, name, tool_args, ctx, tool):
        note("before", tool_args)
        ctx.deps.hooks.append("before")
        given = await super().call_tool(name, {{"i": tool_args["i"] + 10}}, ctx, tool)
        ctx.deps.hooks.append("between")
        if given == "part 12":
            given = await super().call_tool(name, {{"i": tool_args["i"] + 10}}, ctx, tool)
        ctx.deps.hooks.append("after")
        note("after", given)
        return given + "!"


def history(ctx: RunContext[Basket], messages):
    note("history", len(messages))
    ctx.deps.hooks.append("history")
    return messages


async def look(ctx: RunContext[Basket], i: int) -> str:
    "Looks at a thing."
    return await dig(i, ctx.deps)


async def events(ctx, stream):
    async for event in stream:
        if event.event_kind in ("function_tool_call", "function_tool_result"):
            note(event.event_kind)
            ctx.deps.hooks.append(event.event_kind)


model = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(base_url={url!r}, api_key="sk-secret"))
try:
    from pydantic_ai.capabilities import ProcessHistory
    more = {{"capabilities": [ProcessHistory(history)]}}
except ImportError:
    more = {{"history_processors": [history]}}
agent = Agent(model, deps_type=Basket, toolsets=[Counts(FunctionToolset([look]))], **more)
print(agent.run_sync("Dig.", deps=basket, event_stream_handler=events).output, basket)
"""

HOOKS = {
    name: BEGIN + code
    for name, code in (("langgraph", LANGCHAIN), ("openai-agents", OPENAI_AGENTS), ("pydantic-ai", PYDANTIC_AI))
}
"""Each by the name of its adapter, with places as in `framework_agents`."""
