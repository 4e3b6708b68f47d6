"""Sinks receive the events of one context and its copies, in the emitting thread and in order: see `runner.streaming`.

One is no handler: it is not asked for by type, and receives nothing that happens beside its context.
"""

import logging
from collections.abc import Callable
from contextvars import ContextVar

from runner.core.context_value import ContextValue
from runner.events import kickoff
from runner.events.base import BaseEvent

logger = logging.getLogger("runner.events")

Sink = Callable[[BaseEvent], object]

_sinks: ContextVar[tuple[Sink, ...]] = ContextVar("runner_sinks", default=())
sinks = _sinks.get  #: those of this context, the outermost first


def receiving(sink: Sink) -> ContextValue[tuple[Sink, ...]]:
    """In this context, and in copies that are made of it, ``sink`` receives each event."""
    return ContextValue(_sinks, (*_sinks.get(), sink))


def publish(event: BaseEvent, to: tuple[Sink, ...]) -> None:
    """Give an event to sinks. What one raises is logged."""
    for sink in to:
        try:
            sink(event)
        except Exception:
            logger.exception("a stream could not take a %s", event.type)


def republish(event: BaseEvent) -> None:
    """Give the sinks of this context an event that handlers received before, when it first happened."""
    if to := _sinks.get():
        event.emission_sequence = kickoff.current().issued
        publish(event, to)
