"""Classes of events that handlers may import but nothing here emits: training, memory, skills, A2A."""

import functools
from typing import Any, get_args

from pydantic import create_model

from runner.events.base import BaseEvent, ErrorText
from runner.events.types import CheckpointEventType

__all__ = ["named_event"]

_OTHERS = (
    *("context_window_summarization_started", "context_window_summarization_completed"),
    *("context_window_summarization_failed", "conversation_message_added", "conversation_route_selected"),
    *("conversation_turn_started", "conversation_turn_completed", "conversation_turn_failed", "flow_plot"),
    *("hook_dispatched", "plan_step_started", "plan_step_completed", "skill_used", "tool_failure_detected"),
)
"""Types that are not in the closed list of those that trigger a checkpoint."""

_GROUPS = {
    "A2AEventBase": "a2a_",
    "ContextWindowSummarizationEvent": "context_window_summarization_",
    "KnowledgeEventBase": "knowledge_",
    "MCPEvent": "mcp_",
    "MemoryBaseEvent": "memory_",
    "ObservationEvent": ("step_observation_", "plan_refinement", "plan_replan_triggered", "goal_achieved_early"),
    "PlanStepEvent": "plan_step_",
    "ReasoningEvent": "agent_reasoning_",
    "SkillEvent": "skill_",
}
"""What groups of these have in common, by name; each with how the types in it begin."""

_RENAMED = {"knowledgeretrieval": "knowledgesearchquery"}


@functools.cache
def named_event(name: str) -> type[BaseEvent] | None:
    """Return the class of that name, as ``MemoryQueryStartedEvent`` for ``memory_query_started``; None if unknown."""
    if name in _GROUPS:
        return _group(name)
    types = {kind.replace("_", ""): kind for kind in (*get_args(CheckpointEventType), *_OTHERS) if kind.islower()}
    said = name.removesuffix("Event").lower()
    for start, meant in _RENAMED.items():
        said = said.replace(start, meant)
    kind = types.get(said)
    if kind is None or not name.endswith("Event"):
        return None
    error: dict[str, Any] = {"error": (ErrorText, "")} if kind.endswith(("_failed", "_error")) else {}
    group = next((group for group, starts in _GROUPS.items() if kind.startswith(starts)), None)
    base = BaseEvent if group is None else _group(group)
    made: type[BaseEvent] = create_model(name, __base__=base, __module__=__name__, type=(str, kind), **error)
    made.__doc__ = f"An event of the type ``{kind}``."
    return made


@functools.cache
def _group(name: str) -> type[BaseEvent]:
    made: type[BaseEvent] = create_model(name, __base__=BaseEvent, __module__=__name__)
    made.__doc__ = "What a group of events has in common."
    return made
