"""Frames: the events of a flow's kickoff, as data."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic_core import PydanticSerializationError, to_jsonable_python

from runner.events.base import BaseEvent

StreamChannel = Literal["llm", "flow", "tools", "messages", "lifecycle", "custom"]
"""What a frame is about: models, the flow and its methods, tools, what is said in a conversation; of the others what
failed, and the rest."""

_CHANNELS: tuple[tuple[tuple[str, ...], StreamChannel], ...] = (
    (("llm_call_", "llm_stream_", "llm_thinking_"), "llm"),
    (("conversation_message_",), "messages"),
    (("flow_", "method_execution_", "human_feedback_"), "flow"),
    (("tool_",), "tools"),
)
_NAMES = ("flow_name", "method_name", "session_id", "call_id", "tool_name", "agent_role", "task_name")
_OWN = frozenset(("timestamp", "type", "event_id", "parent_event_id", "previous_event_id", "emission_sequence"))
_LIVE = frozenset(("task", "agent", "crew", "from_task", "from_agent", "callbacks", "available_functions"))
"""Fields of objects that are no data."""


class StreamFrame(BaseModel):
    """An event as data: its ``type``, its position in the stream (``seq``), its source and its fields (``data``)."""

    id: str
    seq: int | None = None
    type: str
    channel: StreamChannel
    namespace: list[str] = Field(default_factory=list)
    timestamp: datetime
    parent_id: str | None = None
    previous_id: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)

    @property
    def content(self) -> str:
        """The text, if it is a piece of a model's answer; else empty."""
        chunk = self.data.get("chunk")
        return chunk if isinstance(chunk, str) else ""

    @property
    def event(self) -> dict[str, Any]:
        """The same as ``data``."""
        return self.data


def frame_of(event: BaseEvent) -> StreamFrame:
    """Convert an event to a frame."""
    channel = _channel_of(event.type)
    named = (getattr(event, name, None) for name in _NAMES)
    return StreamFrame(
        id=event.event_id,
        seq=event.emission_sequence,
        type=event.type,
        channel=channel,
        namespace=[channel, *(str(one) for one in named if one is not None)],
        timestamp=event.timestamp,
        parent_id=event.parent_event_id,
        previous_id=event.previous_event_id,
        data={**event.to_json(set(_OWN)), **_payload(event)},
    )


def _channel_of(kind: str) -> StreamChannel:
    for starts, channel in _CHANNELS:
        if kind.startswith(starts):
            return channel
    return "lifecycle" if "error" in kind or "failed" in kind else "custom"


def _payload(event: BaseEvent) -> dict[str, Any]:
    """The JSON of the payload, which handlers see and no record keeps: outputs, prompts, pieces of answers."""
    found = {}
    for name in event._payload - _LIVE:
        value = getattr(event, name, None)
        if value is not None:
            try:
                found[name] = to_jsonable_python(value, fallback=lambda one: f"<{type(one).__qualname__}>")
            except (PydanticSerializationError, ValueError, RecursionError):
                found[name] = f"<{type(value).__qualname__}>"
    return found
