"""Agents of Strands."""

import functools
import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output
from runner.journal.tool_uses import durable


class Strands(AgentFramework):
    """Its agents, asked the input ``prompt``."""

    name = "strands"
    module = "strands.agent"
    runs = tuple(f"strands.agent.agent:Agent.{run}" for run in ("__call__", "invoke_async", "stream_async"))

    def is_agent(self, thing: object) -> bool:
        """An ``Agent``."""
        return isinstance(thing, import_module("strands").Agent)

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Its answer, as a model where it is asked for one."""
        answer = await agent.invoke_async(inputs[PROMPT])
        found = getattr(answer, "structured_output", None)
        return as_output(found if found is not None else str(answer).rstrip("\n"))

    def record_uses(self) -> None:
        """In the functions that are decorated as tools from here on."""
        decorated = import_module("strands.tools.decorator").DecoratedFunctionTool
        if not hasattr(decorated.__init__, "records_uses"):
            decorated.__init__ = _with_durable(decorated.__init__)


def _with_durable(init: Any) -> Any:
    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(init).bind(self, *args, **kwargs)
        given.arguments["tool_func"] = durable(given.arguments["tool_func"])
        init(*given.args, **given.kwargs)

    __init__.records_uses = True  # type: ignore[attr-defined]
    return __init__


FRAMEWORK = Strands()
