"""Which checkpoint settings an event falls under."""

from contextvars import ContextVar
from typing import Any, Final

from runner.core.context_value import ContextValue
from runner.events.bus import event_bus
from runner.providers.config import CheckpointConfig, is_setting


class _OptedOut:
    def __repr__(self) -> str:
        return "OPTED_OUT"


OPTED_OUT: Final = _OptedOut()
"""What ``checkpoint=False`` means: no checkpoints, whatever is set further out."""

_inside: ContextVar[Any] = ContextVar("runner_checkpoint_source", default=None)
_crew: ContextVar[tuple[Any, frozenset[int]] | None] = ContextVar("runner_kicked_off_crew", default=None)


def resolve_checkpoint(value: CheckpointConfig | bool | None) -> CheckpointConfig | _OptedOut | None:
    """The config that a ``checkpoint=`` means; None to look further out, `OPTED_OUT` to stop looking."""
    if isinstance(value, CheckpointConfig):
        event_bus.arm_recording()
        return value
    if is_setting(value):  # it may have been assigned
        event_bus.arm_recording()
        return CheckpointConfig()
    return OPTED_OUT if value is False else None


def inside(source: Any) -> ContextValue[Any]:
    """What models, tools and guardrails do in this context belongs to ``source``: a task, an agent or a flow."""
    return ContextValue(_inside, source)


def kicked_off(crew: Any) -> ContextValue[Any]:
    """In this context the crew's tasks and agents are this crew's, also where they are others' too."""
    members = frozenset(map(id, (*crew.all_tasks, *crew.staff)))
    return ContextValue(_crew, (crew, members))


def find_checkpoint(source: Any) -> CheckpointConfig | None:
    """The settings for an event of ``source``.

    A crew's and a flow's are their own; an agent's are its own, else its crew's; a task's are its agent's, else its
    crew's. Anything else belongs to the task, agent or flow that it happens in.
    """
    if getattr(source, "entity_type", None) not in ("crew", "flow", "agent", "task"):
        source = _inside.get()
    kind = getattr(source, "entity_type", None)
    crew = _crew_of(source) if kind in ("agent", "task") else None
    agent = source if kind == "agent" else source.agent if kind == "task" else None
    for one in (agent, crew) if kind in ("agent", "task") else (source,):
        found = resolve_checkpoint(one.checkpoint) if one is not None else None
        if found is not None:
            return found if isinstance(found, CheckpointConfig) else None
    return None


def _crew_of(source: Any) -> Any:
    running = _crew.get()
    if running is not None and id(source) in running[1]:
        return running[0]
    agent = getattr(source, "agent", None)
    return source.crew or (agent.crew if agent is not None else None)
