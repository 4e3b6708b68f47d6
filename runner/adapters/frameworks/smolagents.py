"""Agents of smolagents."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output, keepers
from runner.core.errors import TaskError
from runner.journal.tool_uses import Use, record_uses

_REFUSED = "Error in generating final LLM output"


class Smolagents(AgentFramework):
    """Its agents, given ``prompt`` as their task. A ``CodeAgent``'s code runs again on a restart, but for its tools."""

    name = "smolagents"
    module = "smolagents.agents"
    kinds = (("smolagents.agents", "MultiStepAgent"),)
    runs = ("smolagents.agents:MultiStepAgent.run",)

    def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the agent on the prompt, and return its final answer.

        Raises `TaskError` if a model refused the call for it: after the last step, smolagents tells that as the answer.
        """
        answer = agent.run(inputs[PROMPT])
        match answer:
            case [{"text": str(text)}] if text.startswith(_REFUSED):
                raise TaskError(text)
        return as_output(answer)

    def record_uses(self) -> None:
        """Record tools where they are called."""
        record_uses(import_module("smolagents.tools").Tool, "__call__", _about)


def _about(tool: Any, *args: Any, sanitize_inputs_outputs: bool = False, **kwargs: Any) -> Use:  # noqa: ARG001 - smolagents' own names
    return Use(str(tool.name), [args, kwargs], keepers(tool), tool.forward)


FRAMEWORK = Smolagents()
