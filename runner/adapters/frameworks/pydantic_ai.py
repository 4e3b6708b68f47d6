"""Agents of pydantic-ai."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import ask, decide, elsewhere
from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output, keepers
from runner.journal.tool_uses import Use, record_uses


class PydanticAI(AgentFramework):
    """Its agents, asked the input ``prompt``. Uses of tools are steps in every toolset that it has loaded."""

    name = "pydantic-ai"
    module = "pydantic_ai.agent"
    runs = (
        "pydantic_ai.agent.abstract:AbstractAgent.run",
        "pydantic_ai.agent.abstract:AbstractAgent.run_sync",
        "pydantic_ai.agent.abstract:AbstractAgent.run_stream",
        "pydantic_ai.agent:Agent.iter",
    )

    def is_agent(self, thing: object) -> bool:
        """An ``Agent``, or one that wraps it."""
        return isinstance(thing, import_module("pydantic_ai.agent").AbstractAgent)

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """What its ``run`` gives as output."""
        result = await agent.run(inputs[PROMPT])
        requests = self.loaded("pydantic_ai.tools", "DeferredToolRequests")
        while isinstance(result.output, requests):
            result = await agent.run(
                message_history=result.all_messages(), deferred_tool_results=_decided(result.output)
            )
        return as_output(result.output)

    def record_uses(self) -> None:
        """At the method by which a toolset uses one of its tools."""
        exceptions = import_module("pydantic_ai.exceptions")
        passing = tuple(
            getattr(exceptions, name) for name in ("CallDeferred", "ApprovalRequired") if hasattr(exceptions, name)
        )
        record_uses(
            import_module("pydantic_ai.toolsets.function").FunctionToolset, "call_tool", _about, passing=passing
        )


def _decided(requests: Any) -> Any:
    """What a person said of each tool that needs approval, and what those gave that are run elsewhere."""
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
    tool = toolset.tools.get(name)
    calls = getattr(getattr(tool, "function_schema", None), "function", None)
    return Use(name, tool_args, (ctx.deps, *keepers(getattr(tool, "function", None))), calls)


FRAMEWORK = PydanticAI()
