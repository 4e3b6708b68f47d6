"""Agents and agent workflows of LlamaIndex."""

import functools
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import ask_text
from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output, declared_kinds, is_of, keepers
from runner.journal.tool_uses import Use, record_uses

_AGENTS, _WORKFLOWS = "llama_index.core.agent.workflow", "llama_index.core.workflow"
_KINDS = ((_AGENTS, "BaseWorkflowAgent"), (_AGENTS, "AgentWorkflow"), (_WORKFLOWS, "Workflow"))


class LlamaIndex(AgentFramework):
    """Its agents, asked the input ``prompt``, and other workflows, which take the run's inputs. A tool that takes the
    workflow's context runs again: it may change it."""

    name = "llama-index"
    module = "llama_index.core.workflow"
    runs = tuple(f"{module}:{kind}.run" for module, kind in _KINDS)

    def is_agent(self, thing: object) -> bool:
        """An agent, or a workflow."""
        return isinstance(thing, tuple(self.loaded(module, kind) for module, kind in _KINDS))

    def inputs(self, agent: Any) -> list[str]:
        """``prompt`` of agents; of another workflow what the author's class of its first event needs."""
        if self._is_asked(agent):
            return [PROMPT]
        fields = getattr(getattr(agent, "start_event_class", None), "model_fields", {})
        return [name for name, field in fields.items() if field.is_required() and field.validation_alias is None]

    def input_kinds(self, agent: Any) -> dict[str, str]:
        """As the author's class of a workflow's first event declares its fields."""
        return {} if self._is_asked(agent) else declared_kinds(getattr(agent, "start_event_class", None))

    def _is_asked(self, agent: Any) -> bool:
        return isinstance(agent, tuple(self.loaded(module, kind) for module, kind in _KINDS[:2]))

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Its answer, as a model where it is asked for one; what another workflow ends with."""
        handler = agent.run(user_msg=inputs[PROMPT]) if self._is_asked(agent) else agent.run(**inputs)
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
        if not self._is_asked(agent):
            return as_output(answer)
        found = getattr(answer, "structured_response", None)
        return as_output(found if found is not None else str(answer))

    def record_uses(self) -> None:
        """Where a tool calls its function."""
        tool = import_module("llama_index.core.tools").FunctionTool
        for method in _CALLS:
            record_uses(tool, method, functools.partial(_about, _CALLS[method]))


_CALLS = {"call": "_fn", "acall": "_async_fn"}


def _about(calls: str, tool: Any, *args: Any, **kwargs: Any) -> Use | None:
    if getattr(tool, "requires_context", False):
        return None
    function, real = getattr(tool, calls, None), getattr(tool, "_real_fn", None)
    if is_of("llama_index", function):  # which makes one of the other kind
        function = real
    return Use(str(tool.metadata.get_name()), [args, kwargs], keepers(real), function)


FRAMEWORK = LlamaIndex()
