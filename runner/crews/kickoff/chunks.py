"""Chunks of a streamed crew inside a task, recorded with each of its tasks: a restart replays the same stream."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from runner.crews.crew import Crew
from runner.events.base import BaseEvent
from runner.events.call_events import FunctionCall, LLMStreamChunkEvent, ToolCall
from runner.events.sinks import receiving, republish, sinks
from runner.journal.nested import ChildJournal

_UNDER = "~"


class Chunks:
    """The streamed chunks of one kickoff, by task. None are kept without a ``journal``, or if nothing streams."""

    def __init__(self, journal: ChildJournal | None) -> None:
        self._journal = journal
        self._came: dict[str, list[Any]] = {}

    @contextlib.contextmanager
    def of(self, key: str) -> Iterator[None]:
        """Collect the chunks that are emitted in this context, as those of the task with this key."""
        if self._journal is None or not sinks():
            yield
            return
        came = self._came[key] = []
        with receiving(lambda event: _add(event, came)):
            yield

    def record(self, key: str) -> None:
        """Record the task's chunks, just before its output."""
        if self._journal is not None and (came := self._came.pop(key, None)):
            text = json.dumps(came, ensure_ascii=False, separators=(",", ":"))
            self._journal.record_step(f"{_UNDER}{key}", text, entry=None)

    def republish(self, crew: Crew, done: Mapping[str, Any]) -> None:
        """Stream the recorded chunks of the tasks that were finished before."""
        if self._journal is None or not sinks():
            return
        recorded = self._journal.recorded(_UNDER)
        for key, task in crew.by_key.items():
            if key in done and key in recorded:
                for event in _events(json.loads(recorded[key])):
                    republish(event.model_copy(update={"task_id": str(task.id), "task_name": key, "from_task": task}))


def _add(event: BaseEvent, came: list[Any]) -> None:
    """Add a chunk's text and agent; of a tool use also its id, name, index, and whether its arguments begin here."""
    if isinstance(event, LLMStreamChunkEvent):
        use = event.tool_call
        more = () if use is None else (use.id, use.function.name, use.index, use.function.arguments == event.chunk)
        came.append([event.chunk, event.agent_role, event.agent_id, *more])


def _events(came: list[Any]) -> Iterator[LLMStreamChunkEvent]:
    arguments: dict[int, str] = {}
    for text, role, agent, *more in came:
        use = None
        if more:
            ident, name, index, begins = more
            arguments[index] = text if begins else arguments.get(index, "") + text
            use = ToolCall(id=ident, function=FunctionCall(name=name, arguments=arguments[index]), index=index)
        yield LLMStreamChunkEvent(chunk=text, tool_call=use, agent_role=role, agent_id=agent)
