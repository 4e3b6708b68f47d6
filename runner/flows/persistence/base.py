"""Where states of flows are kept."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


class FlowPersistence(BaseModel, ABC):
    """Where states of flows are kept, the newest of each id."""

    @abstractmethod
    def save_state(self, flow_uuid: str, method_name: str, state_data: Mapping[str, Any] | BaseModel) -> None:
        """Keep a state, as it is after a method."""

    @abstractmethod
    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """The newest state of that id; None if there is none."""
