"""Sinks get all events of one context and its copies, in the emitting thread, in order: see `runner.streaming`."""

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
    """In this context and its copies, ``sink`` receives each event."""
    return ContextValue(_sinks, (*_sinks.get(), sink))


def publish(event: BaseEvent, to: tuple[Sink, ...]) -> None:
    """Pass an event to sinks. Exceptions are logged."""
    for sink in to:
        try:
            sink(event)
        except Exception:
            logger.exception("a stream could not take a %s", event.type)


def republish(event: BaseEvent) -> None:
    """Pass this context's sinks an event that handlers received when it first happened."""
    if to := _sinks.get():
        event.emission_sequence = kickoff.current().issued
        publish(event, to)
