"""Events for steps of a task's own code, which count as tool calls."""

from typing import Any

from runner.events.bus import event_bus
from runner.events.call_events import ToolUsageErrorEvent, ToolUsageFinishedEvent, ToolUsageStartedEvent


class ToolObserver:
    """Emits the events of a tool call for a durable step."""

    def __init__(self, task: Any, name: str, function: Any) -> None:
        kind = type(function).__qualname__
        self._about: dict[str, Any] = {"from_task": task, "tool_name": name, "tool_class": kind}
        self._source = function

    def began(self) -> None:
        """The step begins."""
        event_bus.emit(self._source, ToolUsageStartedEvent(**self._about))

    def ended(self, value: Any) -> None:
        """The step is recorded."""
        event_bus.emit(self._source, ToolUsageFinishedEvent(output=value, **self._about))

    def failed(self, error: BaseException | str) -> None:
        """The step raised."""
        event_bus.emit(self._source, ToolUsageErrorEvent(error=error, **self._about))
