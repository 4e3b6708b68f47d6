"""The base class of persistence for flows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from runner.flows.feedback import PendingFeedbackContext


class FlowPersistence(BaseModel, ABC):
    """Saves states of flows; the newest of each id can be loaded."""

    @abstractmethod
    def save_state(self, flow_uuid: str, method_name: str, state_data: Mapping[str, Any] | BaseModel) -> None:
        """Save a state after a method."""

    @abstractmethod
    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the newest state of this id; None if there is none."""

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: Mapping[str, Any] | BaseModel
    ) -> None:
        """Save a waiting flow in place of its earlier states. By default only its state is saved."""
        self.save_state(flow_uuid, context.method_name, state_data)

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state and the question of a waiting flow; None if no flow of this id waits."""

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """The question was answered."""
