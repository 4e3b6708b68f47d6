"""The base class of persistence for flows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from runner.flows.feedback import PendingFeedbackContext


class FlowPersistence(BaseModel, ABC):
    """Where states of flows are kept, the newest of each id."""

    @abstractmethod
    def save_state(self, flow_uuid: str, method_name: str, state_data: Mapping[str, Any] | BaseModel) -> None:
        """Keep a state, as it is after a method."""

    @abstractmethod
    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """The newest state of that id; None if there is none."""

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: Mapping[str, Any] | BaseModel
    ) -> None:
        """Keep a flow that waits for a person, in place of what was kept of it. By default its state alone is kept."""
        self.save_state(flow_uuid, context.method_name, state_data)

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """The state and the question of a flow that waits; None if none of that id does."""

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """It was answered."""
