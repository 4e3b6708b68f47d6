"""MCP servers as tools, by the official ``mcp`` package (the extra ``[mcp]``)."""

from runner.agents.mcp.connection import connections
from runner.agents.mcp.servers import (
    MCPServerHTTP,
    MCPServerSSE,
    MCPServerStdio,
    ToolFilterContext,
    create_dynamic_tool_filter,
    create_static_tool_filter,
)
from runner.agents.mcp.tools import MCPTool, mcp_tools, tools_for

__all__ = [
    "MCPServerHTTP",
    "MCPServerSSE",
    "MCPServerStdio",
    "MCPTool",
    "ToolFilterContext",
    "connections",
    "create_dynamic_tool_filter",
    "create_static_tool_filter",
    "mcp_tools",
    "tools_for",
]
