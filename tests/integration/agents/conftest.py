"""MCP servers of our own, as processes."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ...support.later import Later

mcp = Later("runner.agents.mcp")

SERVER = Path(__file__).parent / "server.py"


@dataclass
class Notes:
    """The server's own account."""

    log: Path

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def stdio(self, **about: Any) -> Any:
        return mcp.MCPServerStdio(command=sys.executable, args=[str(SERVER), str(self.log), "stdio"], **about)


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes.log")


@pytest.fixture
def listening(notes: Notes, eventually: Callable[..., Any]) -> Iterator[Callable[[str], Any]]:
    """A server at an address, by streamable HTTP or server-sent events."""
    processes = []

    def start(transport: str) -> Any:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen([sys.executable, str(SERVER), str(notes.log), transport, str(port)])
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
