"""Observes the model calls that a crew's own code makes, through a vendor's client.

The run's events have it from its record. On the event bus it is emitted if there are handlers, unless the caller emits
of it itself.
"""

from typing import Any, Protocol

from runner.core.ledger import CallContext, Usage
from runner.events.bus import event_bus
from runner.events.call_events import (
    CallDivergedEvent,
    LLMCallCompletedEvent,
    LLMCallFailedEvent,
    LLMCallStartedEvent,
)
from runner.llm.recording.call import Call


class CallObserver(Protocol):
    """Reports one call that is really made."""

    reports: bool  #: whether it reports that the call was answered

    def began(self) -> None:
        """The call is about to be made."""

    def ended(self, usage: Usage) -> None:
        """The call was answered, and the answer is recorded."""

    def failed(self, why: str) -> None:
        """The call was not answered, or its outcome is unknown."""

    def diverged(self) -> None:
        """Another request is recorded where this one was made."""


def observer_of(call: Call, caller: CallContext, model: str, *, unattributed: bool) -> CallObserver:
    """Return the observer that reports this call."""
    if unattributed:  # it is no part of any event's scope
        return _NullCallObserver(call, announced=False)
    if caller.announced:
        return _AnnouncedCallObserver(call, caller)
    return _RelayedCallObserver(call, caller.agent, model) if call.watched else _NullCallObserver(call, announced=False)


class _NullCallObserver:
    def __init__(self, call: Call, *, announced: bool) -> None:
        self._call = call
        self.reports = announced

    def began(self) -> None: ...

    def ended(self, usage: Usage) -> None: ...

    def failed(self, why: str) -> None: ...

    def diverged(self) -> None:
        event_bus.emit(self._call, CallDivergedEvent(call=self._call.number, step=self._call.step or None))


class _AnnouncedCallObserver(_NullCallObserver):
    """The caller reports it."""

    def __init__(self, call: Call, caller: CallContext) -> None:
        super().__init__(call, announced=True)
        self._caller = caller

    def began(self) -> None:
        if self._caller.leaving is not None:
            self._caller.leaving()


class _RelayedCallObserver(_NullCallObserver):
    def __init__(self, call: Call, agent: str, model: str) -> None:
        super().__init__(call, announced=True)
        self._about: dict[str, Any] = {"model": model, "from_agent": agent or None}

    def began(self) -> None:
        event_bus.emit(self._call, LLMCallStartedEvent(**self._about))

    def ended(self, usage: Usage) -> None:
        event_bus.emit(self._call, LLMCallCompletedEvent(usage=usage.by_name(), **self._about))

    def failed(self, why: str) -> None:
        event_bus.emit(self._call, LLMCallFailedEvent(error=why, **self._about))
