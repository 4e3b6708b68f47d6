"""Resolves the checkpoint setting that applies to an event."""

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
    """Return the config that a ``checkpoint=`` means; None to inherit, `OPTED_OUT` for no checkpoints."""
    if isinstance(value, CheckpointConfig):
        event_bus.arm_recording()
        return value
    if is_setting(value):  # it may have been assigned
        event_bus.arm_recording()
        return CheckpointConfig()
    return OPTED_OUT if value is False else None


def inside(source: Any) -> ContextValue[Any]:
    """In this context, events of models, tools and guardrails belong to ``source``: a task, an agent or a flow."""
    return ContextValue(_inside, source)


def kicked_off(crew: Any) -> ContextValue[Any]:
    """In this context, the crew's tasks and agents belong to this crew, even if others have them too."""
    members = frozenset(map(id, (*crew.all_tasks, *crew.staff)))
    return ContextValue(_crew, (crew, members))


def find_checkpoint(source: Any) -> CheckpointConfig | None:
    """Return the config for an event of ``source``; None if it triggers no checkpoints.

    Crews and flows have their own. For an agent it is its own, else its crew's; for a task its agent's, else its
    crew's. Other events belong to the task, agent or flow in which they happen.
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
