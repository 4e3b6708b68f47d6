"""Agents of pydantic-ai."""

import dataclasses
import functools
import sys
from collections.abc import Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from runner.adapters.frameworks.approvals import ask, decide, elsewhere
from runner.adapters.frameworks.framework import (
    PROMPT,
    AgentFramework,
    as_output,
    keepers,
    record_own_uses,
    replace_once,
    run_again_beside,
)
from runner.bundles.arguments import given, needed
from runner.core.errors import BadCrew, BadInput
from runner.core.field_errors import format_field_errors
from runner.core.inputs import kind_of, typed
from runner.core.plain_text import with_article
from runner.journal.code_beside import runs_again
from runner.journal.tool_uses import Use, record_uses, recorded

_TAKE_CONTEXT = (
    *("_output_validators", "_system_prompt_functions", "_dynamic_toolsets", "_cap_toolsets", "_cap_instructions"),
    *("_event_stream_handler", "_user_toolsets"),
)
"""Where an agent keeps what may be given its context, besides tools and instructions."""
_COUNTS = "pydantic_ai._usage_attribution"  #: the module that counts requests and uses of tools, from 2.62 on
DEPS = "deps"  #: the input that the agent's dependencies are made of


class PydanticAI(AgentFramework):
    """Its agents, asked the input ``prompt``. Uses of tools are steps in every toolset that it has loaded."""

    name = "pydantic-ai"
    module = "pydantic_ai.agent"
    kinds = (("pydantic_ai.agent", "AbstractAgent"),)
    runs = (
        "pydantic_ai.agent.abstract:AbstractAgent.run",
        "pydantic_ai.agent.abstract:AbstractAgent.run_sync",
        "pydantic_ai.agent.abstract:AbstractAgent.run_stream",
        "pydantic_ai.agent:Agent.iter",
    )

    def inputs(self, agent: Any) -> list[str]:
        """``prompt``, and ``deps`` of an agent that declares some, and may use them.

        Raises `BadCrew` where no input can be those, and `BadInput` where that of the run cannot.
        """
        kind = _deps_type(agent)
        if kind is None:
            return [PROMPT]
        inputs = typed(given.get() or {}, self.input_kinds(agent))
        if DEPS not in inputs and not _uses_deps(agent):
            return [PROMPT]
        can_be_none = _fits(kind, None)
        _deps(agent, inputs)
        return [PROMPT, *([] if can_be_none else [DEPS])]

    def input_kinds(self, agent: Any) -> dict[str, str]:
        """Return the JSON type of the input ``deps``."""
        kind = _deps_type(agent)
        is_made = dataclasses.is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, BaseModel))
        found = "object" if is_made else kind_of(kind)
        return {DEPS: found} if found else {}

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the agent on the prompt, and return its output."""
        deps = _deps(agent, inputs)
        result = await agent.run(inputs[PROMPT], deps=deps)
        requests = self.loaded("pydantic_ai.tools", "DeferredToolRequests")
        while isinstance(result.output, requests):
            result = await agent.run(
                message_history=result.all_messages(), deferred_tool_results=_decided(result.output), deps=deps
            )
        return as_output(result.output)

    def record_uses(self) -> None:
        """At the method by which a toolset uses one of its tools, and where a function makes the output."""
        exceptions = import_module("pydantic_ai.exceptions")
        passing = tuple(
            getattr(exceptions, name) for name in ("CallDeferred", "ApprovalRequired") if hasattr(exceptions, name)
        )
        toolsets = import_module("pydantic_ai.toolsets")
        record_uses(toolsets.FunctionToolset, "call_tool", _about, passing=passing)
        record = functools.partial(record_uses, name="call_tool", about=_about, passing=passing)
        made_of_others = (toolsets.WrapperToolset, toolsets.CombinedToolset)
        record_own_uses(toolsets.AbstractToolset, "call_tool", record, without=made_of_others)
        for kind in made_of_others:
            run_again_beside(kind, "call_tool")
        replace_once(import_module("pydantic_ai._output"), "execute_output_function", _recording_outputs)
        replace_once(import_module("pydantic_ai.agent").AbstractAgent, "run", _running_handler_again)
        counts = sys.modules.get(_COUNTS)
        for name in ("record_request", "record_tool_call", "record_usage") if counts is not None else ():
            setattr(counts, name, runs_again(getattr(counts, name)))


def _running_handler_again(begin: Any) -> Any:
    """What a handler of events changes in ``deps`` is not recorded with the tool uses beside it."""

    async def run(self: Any, *args: Any, event_stream_handler: Any = None, **kwargs: Any) -> Any:
        found = event_stream_handler or self.event_stream_handler
        handler = None if found is None else runs_again(found)
        return await begin(self, *args, event_stream_handler=handler, **kwargs)

    return run


def _recording_outputs(execute: Any) -> Any:
    """Record the functions of an ``output_type``: below what their errors are told as."""

    async def call(schema: Any, args: dict[str, Any], ctx: Any) -> Any:
        return await schema.call(args, ctx)

    call = recorded(call, _about_output, passing=())

    async def execute_output_function(schema: Any, *args: Any, **kwargs: Any) -> Any:
        return await execute(SimpleNamespace(call=functools.partial(call, schema)), *args, **kwargs)

    return execute_output_function


def _deps_type(agent: Any) -> Any:
    """Return the type of ``deps`` that the author declares; None if there is none."""
    kind = getattr(agent, "deps_type", None)
    return None if kind in (None, object, type(None)) else kind


def _uses_deps(agent: Any) -> bool:
    """Whether a function of the agent's may take the context, in which ``deps`` are; True where that is not known."""
    parts = [vars(agent).get(name) for name in _TAKE_CONTEXT]
    if any(parts) or not hasattr(agent, "_instructions"):
        return True
    said = [getattr(one, "instruction", one) for one in agent._instructions]
    tools = [tool for one in agent.toolsets for tool in getattr(one, "tools", {"": None}).values()]
    return (
        any(callable(one) and needed(one) for one in said)
        or not isinstance(agent.output_type, type)
        or any(getattr(tool, "takes_ctx", True) or getattr(tool, "prepare", True) for tool in tools)
    )


def _fits(kind: Any, value: object) -> bool:
    try:
        _adapter(kind).validate_python(value)
    except ValidationError:
        return False
    except (PydanticUserError, NameError):  # it holds what no JSON is: a client, a connection
        called = with_article(getattr(kind, "__name__", str(kind)))
        raise BadCrew(
            f"the agent's deps are {called}, which no input can be: name the function that runs it with them, as in "
            "agent.py:main()"
        ) from None
    return True


def _adapter(kind: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind)
    except PydanticUserError as error:
        if error.code != "typed-dict-version":  # those of older Pythons do not say enough of their fields
            raise
        return TypeAdapter(dict[str, Any])


def _deps(agent: Any, inputs: Mapping[str, Any]) -> Any:
    """Build the agent's ``deps`` from the input of that name. Raises `BadInput`."""
    kind = _deps_type(agent)
    if kind is None or DEPS not in inputs:
        return None
    try:
        return _adapter(kind).validate_python(inputs[DEPS])
    except ValidationError as error:
        raise BadInput(f"the input {DEPS!r}: {' '.join(format_field_errors(error).split())}") from None


def _decided(requests: Any) -> Any:
    """Ask a person about each tool that needs approval, and about the results of tools that run elsewhere."""
    tools = import_module("pydantic_ai.tools")
    results = tools.DeferredToolResults()
    for call in requests.approvals:
        decision = decide(call.tool_name, call.args_as_dict())
        denied = tools.ToolDenied(decision.reason) if decision.reason else tools.ToolDenied()
        results.approvals[call.tool_call_id] = True if decision.approved else denied
    for call in requests.calls:
        results.calls[call.tool_call_id] = ask(elsewhere(call.tool_name, call.args_as_dict()))
    return results


def _about(toolset: Any, name: str, tool_args: dict[str, Any], ctx: Any, *_: object, **__: object) -> Use:
    tool = getattr(toolset, "tools", {}).get(name)
    calls = getattr(getattr(tool, "function_schema", None), "function", None)
    keeper = toolset if tool is None else getattr(tool, "function", None)
    return Use(name, tool_args, (*_lent(ctx), *keepers(keeper)), calls)


def _about_output(schema: Any, args: dict[str, Any], ctx: Any) -> Use | None:
    if ctx.partial_output:  # it is called again with the whole
        return None
    return Use(schema.name, args, (*_lent(ctx), *keepers(schema.function)), schema.function)


def _lent(ctx: Any) -> tuple[Any, ...]:
    """What a tool may change: ``deps``, and the usage, to which it adds that of an agent that it runs.

    The run itself counts there, too, while tools work.
    """
    return (ctx.deps, ctx.usage) if _COUNTS in sys.modules else (ctx.deps,)


FRAMEWORK = PydanticAI()
