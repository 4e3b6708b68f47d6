"""Accepts tools in any form: this package's, plain functions, and objects of other libraries."""

import inspect
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from runner.agents.tools.base import BaseTool, Tool, tool
from runner.core.errors import BadCrew

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def tool_name(name: str) -> str:
    """Return a tool's name as models see it: lower case letters, digits and underscores, at most 64."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    words = re.sub(r"[^a-z0-9]+", "_", _CAMEL.sub("_", plain).lower().replace("'", "")).strip("_")
    return words[:64].rstrip("_") or "tool"


def as_tool(thing: Any) -> BaseTool:
    """Convert an object to a tool. Raises `BadCrew`."""
    if isinstance(thing, BaseTool):
        return thing
    name, schema = getattr(thing, "name", None), getattr(thing, "args_schema", None)
    use = next((found for way in ("run", "invoke", "_run") if callable(found := getattr(thing, way, None))), None)
    if isinstance(name, str) and use is not None:
        invoked = use if getattr(use, "__name__", "") != "invoke" else lambda **given: use(given)
        given_schema = schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None
        return Tool(
            name=name,
            description=str(getattr(thing, "description", "") or name),
            func=invoked,
            args_schema=given_schema,
            result_as_answer=bool(getattr(thing, "result_as_answer", False)),
        )
    if inspect.isroutine(thing):
        try:
            return tool(thing)
        except ValueError as error:
            raise BadCrew(str(error)) from None
    raise BadCrew(
        f"{thing!r:.60} is not a tool: give a function with @tool, or a subclass of runner.agents.tools.BaseTool"
    )


def as_tools(things: Iterable[Any]) -> dict[str, BaseTool]:
    """Convert objects to tools, by the names that models see. Raises `BadCrew` if two have the same name."""
    found: dict[str, BaseTool] = {}
    for thing in things:
        one = as_tool(thing)
        name = tool_name(one.name)
        if name in found and found[name] is not one:
            raise BadCrew(f"two tools are called {name!r}: give each its own name")
        found[name] = one
    return found
