"""Agents of the OpenAI Agents SDK."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import decide
from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output
from runner.journal.tool_uses import Use, record_uses


class OpenAIAgents(AgentFramework):
    """Its agents, asked the input ``prompt``; of agents that hand over to each other, the one at the beginning."""

    name = "openai-agents"
    module = "agents.run"
    runs = ("agents.run:Runner.run", "agents.run:Runner.run_sync", "agents.run:Runner.run_streamed")

    def is_agent(self, thing: object) -> bool:
        """An ``Agent``."""
        return isinstance(thing, import_module("agents").Agent)

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the agent on the prompt, and return the final output of ``Runner.run``."""
        run = import_module("agents").Runner.run
        result = await run(agent, inputs[PROMPT])
        while result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                decision = decide(item.name or "", item.arguments)
                if decision.approved:
                    state.approve(item)
                else:
                    state.reject(item, rejection_message=decision.reason or None)
            result = await run(agent, state)
        return as_output(result.final_output)

    def record_uses(self) -> None:
        """At the function by which a runner uses a tool, before what its errors are told as."""
        for module in ("agents.tool", "agents.run_internal.tool_execution"):
            record_uses(import_module(module), "_invoke_function_tool_with_metadata", _about)


def _about(*, function_tool: Any, arguments: str, context: Any, **_: object) -> Use:
    invoke = function_tool.on_invoke_tool
    calls = invoke._get_wrapped_callable() if hasattr(type(invoke), "_get_wrapped_callable") else None
    return Use(str(function_tool.name), arguments, (context.context,), calls)


FRAMEWORK = OpenAIAgents()
