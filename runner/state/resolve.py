"""Which checkpoint settings an event falls under."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

from runner.config import CheckpointConfig
from runner.events.bus import event_bus


class _OptedOut:
    def __repr__(self) -> str:
        return "OPTED_OUT"


OPTED_OUT: Final = _OptedOut()
"""What ``checkpoint=False`` means: no checkpoints, whatever is set further out."""

_inside: ContextVar[Any] = ContextVar("runner_checkpoint_source", default=None)


def resolve_checkpoint(value: CheckpointConfig | bool | None) -> CheckpointConfig | _OptedOut | None:
    """The config that a ``checkpoint=`` means; None to look further out, `OPTED_OUT` to stop looking."""
    if isinstance(value, CheckpointConfig):
        event_bus.enable_recording()
        return value
    if value:
        event_bus.enable_recording()
        return CheckpointConfig()
    return OPTED_OUT if value is False else None


@contextlib.contextmanager
def inside(source: Any) -> Iterator[None]:
    """What models, tools and guardrails do in this context belongs to ``source``: a task, an agent or a flow."""
    token = _inside.set(source)
    try:
        yield
    finally:
        _inside.reset(token)


def find_checkpoint(source: Any) -> CheckpointConfig | None:
    """The settings for an event of ``source``.

    A crew's and a flow's are their own; an agent's are its own, else its crew's; a task's are its agent's, else its
    crew's. Anything else belongs to the task, agent or flow that it happens in.
    """
    seen = 0
    while source is not None and seen < 4:  # task, agent, crew: there is no longer chain
        kind = getattr(source, "entity_type", None)
        if kind in ("crew", "flow", "agent"):
            found = resolve_checkpoint(source.checkpoint)
            if isinstance(found, CheckpointConfig):
                return found
            if found is OPTED_OUT or kind != "agent":
                return None
            source = source.crew
        elif kind == "task":
            source = source.agent or source.crew
        else:
            source = _inside.get() if seen == 0 else None
        seen += 1
    return None
