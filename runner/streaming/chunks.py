"""Chunks: the pieces of the models' answers in a crew's kickoff."""

from enum import Enum
from typing import Any

from pydantic import BaseModel

from runner.events.base import BaseEvent
from runner.events.call_events import LLMStreamChunkEvent, ToolCall


class StreamChunkType(Enum):
    """What a chunk is a piece of."""

    TEXT = "text"
    TOOL_CALL = "tool_call"


class ToolCallChunk(BaseModel):
    """A tool call that a model is about to request; ``arguments`` is its JSON so far."""

    tool_id: str | None = None
    tool_name: str | None = None
    arguments: str = ""
    index: int = 0


class StreamChunk(BaseModel):
    """A piece of a model's answer, with its agent and task (``task_index`` counts from 0)."""

    content: str
    chunk_type: StreamChunkType = StreamChunkType.TEXT
    task_index: int = 0
    task_name: str = ""
    task_id: str = ""
    agent_role: str = ""
    agent_id: str = ""
    tool_call: ToolCallChunk | None = None

    def __str__(self) -> str:
        return self.content


def chunk_of(event: BaseEvent) -> StreamChunk | None:
    """Return the chunk of an event; None if it has none."""
    if not isinstance(event, LLMStreamChunkEvent):
        return None
    use = event.tool_call
    found = None
    if isinstance(use, ToolCall):
        asked = use.function
        found = ToolCallChunk(tool_id=use.id, tool_name=asked.name, arguments=asked.arguments, index=use.index)
    return StreamChunk(
        content=str(event.chunk or ""),
        chunk_type=StreamChunkType.TEXT if found is None else StreamChunkType.TOOL_CALL,
        task_index=_index_of(event.from_task),
        task_name=event.task_name or "",
        task_id=event.task_id or "",
        agent_role=event.agent_role or "",
        agent_id=event.agent_id or "",
        tool_call=found,
    )


def _index_of(task: Any) -> int:
    """The index of a task in its crew; 0 without one."""
    tasks = getattr(getattr(task, "crew", None), "tasks", None) or ()
    return next((i for i, one in enumerate(tasks) if one is task), 0)
