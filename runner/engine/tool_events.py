"""Events for tools that a task's own code uses."""

from collections.abc import Callable
from typing import Any

from runner.events.bus import event_bus
from runner.events.call_events import ToolUsageErrorEvent, ToolUsageFinishedEvent, ToolUsageStartedEvent


class ToolObserver:
    """A durable step is a use of a tool, for those who watch."""

    def __init__(self, task: Any, name: str, function: Callable[..., Any]) -> None:
        kind = type(function).__qualname__
        self._about: dict[str, Any] = {"from_task": task, "tool_name": name, "tool_class": kind}
        self._source = function

    def began(self) -> None:
        """It begins."""
        event_bus.emit(self._source, ToolUsageStartedEvent(**self._about))

    def ended(self, value: Any) -> None:
        """It is done, and recorded."""
        event_bus.emit(self._source, ToolUsageFinishedEvent(output=value, **self._about))

    def failed(self, error: BaseException) -> None:
        """It raised."""
        event_bus.emit(self._source, ToolUsageErrorEvent(error=error, **self._about))
