"""Observes the model calls that a crew's own code makes, through a vendor's client.

The run's events have it from its record. On the event bus it is emitted if there are handlers, unless the caller emits
of it itself.
"""

from typing import Any

from runner.core.ledger import CallContext, Usage
from runner.events.bus import event_bus
from runner.events.call_events import (
    CallDivergedEvent,
    LLMCallCompletedEvent,
    LLMCallFailedEvent,
    LLMCallStartedEvent,
)
from runner.llm.recording.call import Call


class CallObserver:
    """Observes one call that is really made. This one reports nothing but that another request is recorded."""

    reports = False  #: whether it reports that the call was answered

    def __init__(self, call: Call) -> None:
        self._call = call

    def began(self) -> None:
        """The call is about to be made."""

    def ended(self, usage: Usage) -> None:
        """The call was answered, and the answer is recorded."""

    def failed(self, why: str) -> None:
        """The call was not answered, or its outcome is unknown."""

    def diverged(self) -> None:
        """Another request is recorded where this one was made."""
        event_bus.emit(self._call, CallDivergedEvent(call=self._call.number, step=self._call.step or None))


def observer_of(call: Call, caller: CallContext, model: str) -> CallObserver:
    """Return the observer of a call that is watched, or whose caller reports it."""
    return _AnnouncedCallObserver(call, caller) if caller.announced else _RelayedCallObserver(call, caller.agent, model)


class _AnnouncedCallObserver(CallObserver):
    """The caller reports it."""

    reports = True

    def __init__(self, call: Call, caller: CallContext) -> None:
        super().__init__(call)
        self._caller = caller

    def began(self) -> None:
        if self._caller.leaving is not None:
            self._caller.leaving()


class _RelayedCallObserver(CallObserver):
    reports = True

    def __init__(self, call: Call, agent: str, model: str) -> None:
        super().__init__(call)
        self._about: dict[str, Any] = {"model": model, "from_agent": agent or None}

    def began(self) -> None:
        event_bus.emit(self._call, LLMCallStartedEvent(**self._about))

    def ended(self, usage: Usage) -> None:
        event_bus.emit(self._call, LLMCallCompletedEvent(usage=usage.by_name(), **self._about))

    def failed(self, why: str) -> None:
        event_bus.emit(self._call, LLMCallFailedEvent(error=why, **self._about))
