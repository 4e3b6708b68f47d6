"""Loads stored events."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from runner.events.base import BaseEvent, classes

__all__ = ["event_class", "load_event"]


def load_event(data: BaseEvent | Mapping[str, Any]) -> BaseEvent:
    """Return a stored event as its own class; as a `BaseEvent` if the class is unknown or does not fit."""
    if isinstance(data, BaseEvent):
        return data
    known = event_class(str(data.get("type", "")))
    if known is not None:
        try:
            return known.model_validate(data)
        except ValidationError:
            pass  # of another version: the fields that all events have are enough
    return BaseEvent.model_validate(data)


def event_class(kind: str) -> type[BaseEvent] | None:
    """Return the class of a type; None if there is none."""
    if kind not in classes:
        # The classes are filed when they are imported.
        from runner.events import call_events, flow_events, system_events, work_events  # noqa: F401 - each files its classes
    return classes.get(kind)
