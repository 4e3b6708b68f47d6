"""Tools: functions that an agent's model may request to be called."""

from runner.agents.tools.base import BaseTool, EnvVar, Tool, tool
from runner.agents.tools.conversion import as_tool, as_tools, tool_name
from runner.agents.tools.schema import BadArguments, arguments_of, schema_of
from runner.core.idempotency import idempotency_key

__all__ = [
    "BadArguments",
    "BaseTool",
    "EnvVar",
    "Tool",
    "arguments_of",
    "as_tool",
    "as_tools",
    "idempotency_key",
    "schema_of",
    "tool",
    "tool_name",
]
