"""A streamed model call: its start, the pieces of its answer and its end are frames."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from runner.core.context_value import ContextValue
from runner.core.ledger import caller
from runner.events.base import BaseEvent
from runner.events.bus import event_bus
from runner.events.call_events import (
    LLMCallCompletedEvent,
    LLMCallFailedEvent,
    LLMCallStartedEvent,
    LLMCallType,
    LLMStreamChunkEvent,
    ToolCall,
)
from runner.events.sinks import republish
from runner.journal.current_journal import current_journal

if TYPE_CHECKING:
    from runner.llm.clients import Completion, Piece


def complete(
    source: Any, ask: Callable[..., "Completion"], given: Mapping[str, Any], *, model: str, journaled_by_transport: bool
) -> "Completion":
    """Call ``ask(on_chunk=...)``, emit the events of the call with the fields ``given``, and return its result.

    In a task, a call that is answered from the journal is delivered only to the stream's reader, not to handlers again.
    """
    return _Call(source, given, model, journaled_by_transport).made(ask)


class _Call:
    def __init__(self, source: Any, given: Mapping[str, Any], model: str, journaled_by_transport: bool) -> None:
        journal, guessed = current_journal() or (None, False)
        # Where no transport reports that it leaves, each call counts as a real one.
        self._made = journal is None or guessed or not journaled_by_transport
        self._watched = journal is None or journal.watched
        asked: dict[str, Any] = {
            name: given.get(name) for name in ("messages", "tools", "callbacks", "available_functions")
        }
        where: dict[str, Any] = {name: given.get(name) for name in ("from_task", "from_agent")}
        self._about: dict[str, Any] = {"model": model, "call_id": str(uuid4()), **where}
        self._source = source
        self._start: BaseEvent | None = LLMCallStartedEvent(**asked, **self._about)

    def made(self, ask: Callable[..., "Completion"]) -> "Completion":
        here = replace(caller.get(), announced=self._watched, leaving=self._leaves)
        try:
            if self._made:
                self._begin()
            with ContextValue(caller, here):
                completion = ask(on_chunk=self._piece)
        except BaseException as error:
            self._emit(LLMCallFailedEvent(error=str(error), **self._about))
            raise
        uses, usage = completion.tool_calls, dict(completion.usage)
        said, kind = uses or completion.text, LLMCallType.of(uses)
        self._emit(LLMCallCompletedEvent(response=said, call_type=kind, usage=usage, **self._about))
        return completion

    def _leaves(self) -> None:
        self._made = True
        self._begin()

    def _piece(self, piece: "Piece") -> None:
        use = None if piece.tool_call is None else ToolCall.model_validate(piece.tool_call)
        kind = LLMCallType.of(use)
        self._emit(LLMStreamChunkEvent(chunk=piece.text, tool_call=use, call_type=kind, **self._about))

    def _emit(self, event: BaseEvent) -> None:
        self._begin()
        self._deliver(event)

    def _begin(self) -> None:
        start, self._start = self._start, None
        if start is not None:
            self._deliver(start)

    def _deliver(self, event: BaseEvent) -> None:
        if self._made and self._watched:
            event_bus.emit(self._source, event)
        else:
            republish(event)
