"""Agents and agent workflows of LlamaIndex."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import ask_text
from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output, keepers
from runner.journal.tool_uses import Use, record_uses

_AGENTS = "llama_index.core.agent.workflow"


class LlamaIndex(AgentFramework):
    """Its agents, asked the input ``prompt``. A tool that takes the workflow's context runs again: it may change it."""

    name = "llama-index"
    module = "llama_index.core.agent.workflow"
    runs = tuple(f"{_AGENTS}:{kind}.run" for kind in ("BaseWorkflowAgent", "AgentWorkflow"))

    def is_agent(self, thing: object) -> bool:
        """An agent, or a workflow of several."""
        return isinstance(thing, tuple(self.loaded(_AGENTS, kind) for kind in ("BaseWorkflowAgent", "AgentWorkflow")))

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Its answer, as a model where it is asked for one."""
        handler = agent.run(user_msg=inputs[PROMPT])
        events = import_module("llama_index.core.workflow")
        try:
            async for event in handler.stream_events():
                if isinstance(event, events.InputRequiredEvent):
                    about = {name: one for name, one in event.items() if name != "prefix"}
                    prefix = str(event.get("prefix", ""))
                    answer = ask_text({"prefix": prefix, **about} if about else prefix)
                    handler.ctx.send_event(events.HumanResponseEvent(response=answer, **about))
            answer = await handler
        finally:
            handler.cancel()
        found = getattr(answer, "structured_response", None)
        return as_output(found if found is not None else str(answer))

    def record_uses(self) -> None:
        """Where a tool calls its function."""
        tool = import_module("llama_index.core.tools").FunctionTool
        for method in ("call", "acall"):
            record_uses(tool, method, _about)


def _about(tool: Any, *args: Any, **kwargs: Any) -> Use | None:
    if getattr(tool, "requires_context", False):
        return None
    return Use(str(tool.metadata.get_name()), [args, kwargs], keepers(getattr(tool, "_real_fn", None)))


FRAMEWORK = LlamaIndex()
