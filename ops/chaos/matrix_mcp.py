"""Programs whose agents look at five things with the tool of an MCP server, which each starts of its own file."""

from matrix_agents import ADK, ADK_MAIN, ADK_MODELS
from matrix_program import DIG, LOOK, Row

_SERVES = (
    DIG.replace("import asyncio, os, signal", "import asyncio, os, signal, sys").replace("getpid", "getppid")
    + LOOK.lstrip("\n")
    + """

if sys.argv[1:] == ["serve"]:
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        from mcp.server.fastmcp import FastMCP as MCPServer

    server = MCPServer("digging", log_level="CRITICAL")
    server.tool()(look)
    server.run()
    sys.exit()

SERVER = {"command": sys.executable, "args": [__file__, "serve"]}
"""
)
_MCP: dict[str, tuple[str, str, str]] = {
    "pydantic-ai": (
        "main",
        "pydantic-ai-slim",
        """
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(base_url="@URL@", api_key="sk-secret"))


async def main():
    agent = Agent(model, toolsets=[MCPToolset(StdioTransport(**SERVER), init_timeout=60)])
    async with agent:
        print((await agent.run("Dig.")).output)
""",
    ),
    "OpenAI Agents": (
        "main",
        "openai-agents",
        """
from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI

set_tracing_disabled(True)
model = OpenAIResponsesModel("gpt-4o-mini", AsyncOpenAI(base_url="@URL@", api_key="sk-secret"))


async def main():
    async with MCPServerStdio(SERVER, client_session_timeout_seconds=60) as server:
        agent = Agent(name="digger", instructions="You dig.", mcp_servers=[server], model=model)
        print((await Runner.run(agent, "Dig.")).final_output)
""",
    ),
    "LangChain": (
        "mcp1",
        "langchain",
        """
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="gpt-4o-mini", base_url="@URL@", api_key="sk-secret")


async def main():
    client = MultiServerMCPClient({"digging": {"transport": "stdio", **SERVER}})
    agent = create_agent(model, await client.get_tools())
    said = {"messages": [{"role": "user", "content": "Dig."}]}
    print((await agent.ainvoke(said))["messages"][-1].text)
""",
    ),
    "Google ADK": (
        "google-adk",
        "google-adk",
        ADK.replace("tools=[look]", "tools=[McpToolset(connection_params=where)]")
        .replace("@LOOK@", "")
        .replace(
            "@MODEL@",
            """
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from mcp import StdioServerParameters
where = StdioConnectionParams(server_params=StdioServerParameters(**SERVER), timeout=60)
"""
            + ADK_MODELS[""].strip(),
        )
        + ADK_MAIN.replace("@MORE@", "").replace("asyncio.run(main())\n", ""),
    ),
    "smolagents": (
        "smolagents",
        "smolagents",
        """
from mcp import StdioServerParameters
from smolagents import MCPClient, OpenAIServerModel, ToolCallingAgent

model = OpenAIServerModel("gpt-4o-mini", api_base="@URL@", api_key="sk-secret")


def main():
    with MCPClient(StdioServerParameters(**SERVER)) as tools:
        print(ToolCallingAgent(tools, model, verbosity_level=0).run("Dig."))
""",
    ),
    "Agno": (
        "agno",
        "agno",
        """
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools.mcp import MCPTools
from mcp import StdioServerParameters

model = OpenAIChat("gpt-4o-mini", base_url="@URL@", api_key="sk-secret")


async def main():
    async with MCPTools(server_params=StdioServerParameters(**SERVER), timeout_seconds=60) as tools:
        print((await Agent(model=model, tools=[tools], telemetry=False).arun("Dig.")).content)
""",
    ),
    "LlamaIndex": (
        "llama-index",
        "llama-index-core",
        """
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

model = OpenAILike("gpt-4o-mini", api_base="@URL@", api_key="sk-secret", is_chat_model=True,
    is_function_calling_model=True)


async def main():
    tools = await McpToolSpec(BasicMCPClient(SERVER["command"], SERVER["args"])).to_tool_list_async()
    print(await FunctionAgent(name="digger", tools=tools, llm=model, streaming=False).run("Dig."))
""",
    ),
    "Strands": (
        "strands",
        "strands-agents",
        """
from mcp import StdioServerParameters, stdio_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient

model = OpenAIModel(client_args={"base_url": "@URL@", "api_key": "sk-secret"}, model_id="gpt-4o-mini")


def main():
    with MCPClient(lambda: stdio_client(StdioServerParameters(**SERVER)), startup_timeout=60) as client:
        print(Agent(model=model, tools=client.list_tools_sync(), callback_handler=None)("Dig."))
""",
    ),
    "AutoGen": (
        "mcp1",
        "autogen-agentchat",
        """
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

model = OpenAIChatCompletionClient(model="gpt-4o-mini", base_url="@URL@", api_key="sk-secret")


async def main():
    async with McpWorkbench(StdioServerParams(**SERVER, read_timeout_seconds=60)) as tools:
        agent = AssistantAgent("digger", model, workbench=tools, max_tool_iterations=10)
        print((await agent.run(task="Dig.")).messages[-1].content)
""",
    ),
}
SERVED: dict[str, Row] = {}
for _name, (_place, _package, _code) in _MCP.items():
    _main = "asyncio.run(main())" if "async def main" in _code else "main()"
    SERVED[f"MCP {_name}"] = Row(
        _place,
        _package,
        f'{_SERVES}{_code}\n\nif __name__ == "__main__":\n    {_main}\n',
        "final_answer" if _name == "smolagents" else "",
    )
