"""Event listeners written as a class."""

from abc import ABC, abstractmethod
from typing import Any

from runner.events.bus import EventBus, event_bus

__all__ = ["BaseEventListener"]


class BaseEventListener(ABC):
    """A class of event handlers: creating an instance calls ``setup_listeners``, which registers them."""

    verbose: bool = False

    def __init__(self) -> None:
        self.setup_listeners(event_bus)
        event_bus.validate_dependencies()

    @abstractmethod
    def setup_listeners(self, bus: EventBus, /) -> Any:
        """Register the handlers: ``@bus.on(TaskCompletedEvent)``."""
