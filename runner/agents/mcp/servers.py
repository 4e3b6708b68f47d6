"""Configuration of MCP servers and of the tools that may be used. Nothing here connects to one."""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field

from runner.core.errors import BadCrew

ToolFilter = Callable[..., bool]
"""Whether a tool may be used: a function of the tool as a dict, or of a `ToolFilterContext` and the tool."""


class ToolFilterContext(BaseModel):
    """For whom a filter chooses."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    agent: Any = None
    server_name: str = ""
    run_context: dict[str, Any] | None = None


def create_static_tool_filter(
    allowed_tool_names: Iterable[str] | None = None, blocked_tool_names: Iterable[str] | None = None
) -> ToolFilter:
    """A filter by name: what is blocked is out; with an allow list, so is what does not stand on it."""
    allowed, blocked = set(allowed_tool_names or ()), set(blocked_tool_names or ())

    def choose(tool: Mapping[str, Any]) -> bool:
        name = tool.get("name", "")
        return name not in blocked and (not allowed or name in allowed)

    return choose


def create_dynamic_tool_filter(
    filter_func: Callable[[ToolFilterContext, dict[str, Any]], bool],
) -> ToolFilter:
    """A filter that sees for whom it chooses."""
    return filter_func


class Server(BaseModel):
    """What all servers have. ``timeout`` is in seconds, for one call and for the connection."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    tool_filter: ToolFilter | None = Field(default=None, exclude=True, repr=False)
    cache_tools_list: bool = False
    """Whether this process asks for the list of tools once, not for each task."""
    timeout: float = Field(default=60.0, gt=0)
    only: str | None = None
    """The one tool that is wanted."""

    @property
    def name(self) -> str:
        """What it is called among others."""
        raise NotImplementedError

    @property
    def identity(self) -> str:
        """What it is known by in a task's journal: where it is, and nothing that is secret."""
        about = self.model_dump(mode="json", include={"command", "args", "url"})
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]

    def wants(self, tool: dict[str, Any], agent: Any) -> bool:
        """Whether the tool may be used by the agent."""
        if self.only is not None and tool["name"] != self.only:
            return False
        if self.tool_filter is None:
            return True
        try:
            inspect.signature(self.tool_filter).bind(tool)
        except TypeError:
            context = ToolFilterContext(agent=agent, server_name=self.name)
            return bool(self.tool_filter(context, tool))
        return bool(self.tool_filter(tool))


class MCPServerStdio(Server):
    """A server that is started as a process, and talks over its stdin and stdout.

    Of the worker's environment it gets PATH, HOME and the like only, and what stands in ``env``.
    """

    command: str
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] | None = Field(default=None, exclude=True, repr=False)

    @property
    def name(self) -> str:
        """The file that it runs, or else its command."""
        named = next((arg for arg in self.args if not arg.startswith("-")), self.command)
        return PurePath(named).stem


class MCPServerHTTP(Server):
    """A server at an address, by streamable HTTP; by server-sent events if it is not ``streamable``."""

    url: str
    headers: dict[str, str] | None = Field(default=None, exclude=True, repr=False)
    streamable: bool = True

    @property
    def name(self) -> str:
        """Its host."""
        return urlsplit(self.url).hostname or "mcp"

    @property
    def identity(self) -> str:
        """Its address, without what may be a key in it."""
        parts = urlsplit(self.url)
        plain = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        return hashlib.sha256(plain.encode()).hexdigest()[:16]


class MCPServerSSE(MCPServerHTTP):
    """A server at an address, by server-sent events, as older servers talk."""

    streamable: bool = False


def as_servers(given: Iterable[Any] | None) -> list[Server]:
    """Servers of what was given. Raises `BadCrew`."""
    return [as_server(one) for one in given or ()]


def as_server(given: Any) -> Server:
    """A server of what was given as one: ours, or an address; ``address#tool`` is one tool of it. Raises `BadCrew`."""
    if isinstance(given, Server):
        return given
    if isinstance(given, str) and urlsplit(given).scheme in ("http", "https"):
        url, _, only = given.partition("#")
        return MCPServerHTTP(url=url, only=only or None)
    raise BadCrew(
        f"{given!r:.60} is not an MCP server: give an address (https://...), or an MCPServerStdio, MCPServerHTTP or "
        "MCPServerSSE of runner.agents.mcp"
    )
