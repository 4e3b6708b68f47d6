"""A real MCP server, started by the tests as a process: ``server.py LOG [stdio | streamable-http PORT | sse PORT]``."""

import logging
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

log, transport, *port = sys.argv[1:]
server = MCPServer("notes", log_level="CRITICAL")


def trace(line: str) -> None:
    with Path(log).open("a") as out:
        out.write(f"{line}\n")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    trace(f"add {a} {b}")
    return a + b


@server.tool()
def refuse(why: str) -> str:
    """Always refuses."""
    raise ToolError(f"no: {why}")


@server.tool()
def environment(name: str) -> str:
    """A variable of this process."""
    return os.environ.get(name, "not set")


@server.tool()
def die() -> str:
    """Ends the server in the middle of a call."""
    trace("die")
    os._exit(1)


trace(f"begun {transport}")
logging.disable(logging.CRITICAL)
try:
    if port:
        server.run(transport, host="127.0.0.1", port=int(port[0]))
    else:
        server.run(transport)
finally:
    trace("ended")
