"""Configuration of MCP servers and of the tools that may be used. Opens no connections."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field

from runner.core.annotations import signature_of
from runner.core.errors import BadCrew

ToolFilter = Callable[..., bool]
"""Whether a tool may be used: a function of the tool as a dict, or of a `ToolFilterContext` and the tool."""


class ToolFilterContext(BaseModel):
    """The agent for which a filter decides."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    agent: Any = None
    server_name: str = ""
    run_context: dict[str, Any] | None = None


def create_static_tool_filter(
    allowed_tool_names: Iterable[str] | None = None, blocked_tool_names: Iterable[str] | None = None
) -> ToolFilter:
    """Return a filter by name: only allowed tools, if there is an allow list, and no blocked ones."""
    allowed, blocked = set(allowed_tool_names or ()), set(blocked_tool_names or ())

    def choose(tool: Mapping[str, Any]) -> bool:
        name = tool.get("name", "")
        return name not in blocked and (not allowed or name in allowed)

    return choose


def create_dynamic_tool_filter(
    filter_func: Callable[[ToolFilterContext, dict[str, Any]], bool],
) -> ToolFilter:
    """Return a filter that receives a `ToolFilterContext`."""
    return filter_func


class Server(BaseModel):
    """The options of all servers. ``timeout``, in seconds, is for the connection and for each call."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    tool_filter: ToolFilter | None = Field(default=None, exclude=True, repr=False)
    cache_tools_list: bool = False
    """Whether this process asks for the list of tools once, not for each task."""
    timeout: float = Field(default=60.0, gt=0)
    only: str | None = None
    """The one tool that is wanted."""

    @property
    def name(self) -> str:
        """The server's name."""
        raise NotImplementedError

    @property
    def identity(self) -> str:
        """The server's identity in a task's journal: its location, without secrets."""
        about = self.model_dump(mode="json", include={"command", "args", "url"})
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]

    def wants(self, tool: dict[str, Any], agent: Any) -> bool:
        """Whether the agent may use the tool."""
        if self.only is not None and tool["name"] != self.only:
            return False
        if self.tool_filter is None:
            return True
        try:
            signature_of(self.tool_filter).bind(tool)
        except TypeError:
            context = ToolFilterContext(agent=agent, server_name=self.name)
            return bool(self.tool_filter(context, tool))
        return bool(self.tool_filter(tool))


class MCPServerStdio(Server):
    """A server that is started as a process, and speaks over stdin and stdout.

    It gets only PATH, HOME and the like of the worker's environment, and the variables in ``env``.
    """

    command: str
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] | None = Field(default=None, exclude=True, repr=False)

    @property
    def name(self) -> str:
        """The name of the file that it runs, else its command."""
        named = next((arg for arg in self.args if not arg.startswith("-")), self.command)
        return PurePath(named).stem


class MCPServerHTTP(Server):
    """A server at a URL, by streamable HTTP; by server-sent events if it is not ``streamable``."""

    url: str
    headers: dict[str, str] | None = Field(default=None, exclude=True, repr=False)
    streamable: bool = True

    @property
    def name(self) -> str:
        """The server's host."""
        return urlsplit(self.url).hostname or "mcp"

    @property
    def identity(self) -> str:
        """The URL, without parts that may be a key."""
        parts = urlsplit(self.url)
        plain = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        return hashlib.sha256(plain.encode()).hexdigest()[:16]


class MCPServerSSE(MCPServerHTTP):
    """A server at a URL, by server-sent events, as older servers speak."""

    streamable: bool = False


def as_servers(given: Iterable[Any] | None) -> list[Server]:
    """Convert the ``mcps`` of an agent to servers. Raises `BadCrew`."""
    return [as_server(one) for one in given or ()]


def as_server(given: Any) -> Server:
    """Convert one entry: a server, or a URL; ``URL#tool`` is one tool of it. Raises `BadCrew`."""
    if isinstance(given, Server):
        return given
    if isinstance(given, str) and urlsplit(given).scheme in ("http", "https"):
        url, _, only = given.partition("#")
        return MCPServerHTTP(url=url, only=only or None)
    raise BadCrew(
        f"{given!r:.60} is not an MCP server: give an address (https://...), or an MCPServerStdio, MCPServerHTTP or "
        "MCPServerSSE of runner.agents.mcp"
    )
