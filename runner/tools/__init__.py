"""Tools: what an agent's model may have done for it. The names are CrewAI's."""

from runner.tools.base import BaseTool, EnvVar, Tool, tool
from runner.tools.given import as_tool, as_tools, tool_name
from runner.tools.keys import idempotency_key
from runner.tools.schema import BadArguments, arguments_of, schema_of

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
