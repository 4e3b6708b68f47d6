"""MCP servers of our own, as processes, which are forked of one that has imported what they need."""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ...support.fork_server import IMPORTED, NOTHING, ForkServer
from ...support.later import Later

mcp = Later("runner.agents.mcp")

SERVER = Path(__file__).parent / "server.py"
FORKED = Path(__file__).parents[2] / "support/forked.py"
OF_SERVERS = ",".join((NOTHING, "mcp.server.mcpserver", "mcp.server.stdio", "uvicorn", "sse_starlette"))


@dataclass
class Notes:
    """The server's own account."""

    log: Path
    forks: Path

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def words(self) -> list[str]:
        """What starts the server, after the interpreter."""
        return ["-IS", *map(str, (FORKED, self.forks, SERVER, self.log, "stdio"))]

    def stdio(self, **about: Any) -> Any:
        return mcp.MCPServerStdio(command=sys.executable, args=self.words, **about)


@pytest.fixture
def notes(tmp_path: Path, processes_are_forked: ForkServer) -> Notes:
    environment = {**os.environ, IMPORTED: OF_SERVERS}
    return Notes(tmp_path / "notes.log", processes_are_forked.path(sys.executable, environment))


@pytest.fixture
def listening(
    notes: Notes, processes_are_forked: ForkServer, eventually: Callable[..., Any]
) -> Iterator[Callable[[str], Any]]:
    """A server at an address, by streamable HTTP or server-sent events."""
    processes = []

    def start(transport: str) -> Any:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = processes_are_forked.popen(
            [sys.executable, str(SERVER), str(notes.log), transport, str(port)],
            env={**os.environ, IMPORTED: OF_SERVERS},
        )
        processes.append(process)

        def answers() -> bool:
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) == 0

        eventually(answers, why="the MCP server listens")
        if transport == "sse":
            return mcp.MCPServerSSE(url=f"http://127.0.0.1:{port}/sse")
        return mcp.MCPServerHTTP(url=f"http://127.0.0.1:{port}/mcp", headers={"X-Key": "secret"})

    yield start
    for process in processes:
        process.kill()
        process.wait()
