"""The tools of MCP servers, as tools of an agent."""

import threading
from collections.abc import Iterable
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from runner.agents.mcp.connection import connections
from runner.agents.mcp.servers import Server, as_server
from runner.agents.tools import BaseTool, tool_name
from runner.core.errors import BadCrew, TaskError
from runner.journal.journal import Journal

_lists: dict[str, list[dict[str, Any]]] = {}
_listing = threading.Lock()


class Arguments(BaseModel):
    """The arguments of an MCP tool: described by the server's schema, and validated by the server."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    parameters: ClassVar[dict[str, Any]] = {}

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the server's schema."""
        return cls.parameters

    @model_validator(mode="before")
    @classmethod
    def _fits(cls, given: Any) -> Any:
        from jsonschema import Draft202012Validator, SchemaError  # what mcp itself uses

        try:
            error = next(iter(Draft202012Validator(cls.parameters).iter_errors(given)), None)
        except SchemaError:  # the server's own mistake: it may still know what to make of it
            return given
        if error is not None:
            raise ValueError(f"{'.'.join(map(str, error.path)) or 'the whole'}: {error.message}")
        return given


class MCPTool(BaseTool):
    """One tool of an MCP server. It uses the connection of the enclosing task; outside a task, its own."""

    server: Any = Field(exclude=True, repr=False)
    original: str

    def _run(self, **arguments: Any) -> Any:
        with connections() as open_:
            result = open_.to(self.server).call(self.original, arguments)
        text = "\n".join(filter(None, map(_text, result.content)))
        if result.is_error:
            raise TaskError(text or f"the tool {self.original!r} failed and gave no reason")
        return text if text or result.structured_content is None else result.structured_content


def mcp_tools(*servers: Any, agent: Any = None) -> list[MCPTool]:
    """Return the tools of these servers (URLs, or `MCPServerStdio` and so on) as a list for ``tools=``.

    The servers are asked now, and again wherever the crew file is loaded; ``Agent(mcps=[...])`` asks once in a task.
    Raises `TaskError` if a server does not answer.
    """
    return tools_for(servers, agent=agent)


def tools_for(servers: Iterable[Any], *, agent: Any = None, journal: Journal | None = None) -> list[MCPTool]:
    """Return the tools of these servers, recorded in the task's ``journal``: a resumed task does not ask again."""
    found: list[MCPTool] = []
    taken = set[str]()
    for server in map(as_server, servers):
        with connections() as open_:
            listed = _listed(server, open_, journal)
        for one in listed:
            if not server.wants(dict(one), agent):
                continue
            made = _made(server, one, taken)
            taken.add(tool_name(made.name))
            found.append(made)
        if server.only is not None and not any(one["name"] == server.only for one in listed):
            there = ", ".join(one["name"] for one in listed) or "none"
            raise BadCrew(f"the MCP server {server.name!r} has no tool {server.only!r}; there are: {there}")
    return found


def _listed(server: Server, open_: Any, journal: Journal | None) -> list[dict[str, Any]]:
    name = f"mcp {server.identity}"
    known: list[dict[str, Any]] | None = journal.get_marker(name) if journal is not None else None
    if known is not None:
        return known
    with _listing:
        known = _lists.get(server.identity) if server.cache_tools_list else None
    if known is None:
        known = open_.to(server).list_tools()
        if server.cache_tools_list:
            with _listing:
                _lists[server.identity] = known
    if journal is not None:
        journal.set_marker(name, known)
    return known


def _made(server: Server, listed: dict[str, Any], taken: set[str]) -> MCPTool:
    name = listed["name"]
    if tool_name(name) in taken:
        name = f"{server.name}_{name}"
    schema = type("Arguments", (Arguments,), {"parameters": listed["parameters"], "__annotations__": {}})
    return MCPTool(
        name=name, description=listed["description"], args_schema=schema, server=server, original=listed["name"]
    )


def _text(part: Any) -> str:
    """Convert a part of a result to text; a part that is not text is described."""
    if (text := getattr(part, "text", None)) is not None:
        return str(text)
    resource = getattr(part, "resource", None)
    if (text := getattr(resource, "text", None)) is not None:
        return str(text)
    kind = getattr(part, "mime_type", None) or getattr(resource, "mime_type", None) or ""
    where = getattr(part, "uri", None) or getattr(resource, "uri", None) or ""
    return f"[{' '.join(filter(None, (str(part.type), str(kind), str(where))))}]"
