"""Flows: methods that trigger each other. ``kickoff`` runs one here; ``runner submit`` runs the same on the fleet."""

from runner.flow.conditions import and_, or_
from runner.flow.decorators import human_feedback, listen, router, start
from runner.flow.feedback import (
    HumanFeedbackPending,
    HumanFeedbackProvider,
    HumanFeedbackResult,
    PendingFeedbackContext,
)
from runner.flow.flow import Flow
from runner.flow.persistence import FlowPersistence, SQLiteFlowPersistence, persist
from runner.flow.schema import INITIAL_STATE_CLASS_MARKER
from runner.flow.state import FlowState

__all__ = [
    "INITIAL_STATE_CLASS_MARKER",
    "Flow",
    "FlowPersistence",
    "FlowState",
    "HumanFeedbackPending",
    "HumanFeedbackProvider",
    "HumanFeedbackResult",
    "PendingFeedbackContext",
    "SQLiteFlowPersistence",
    "and_",
    "human_feedback",
    "listen",
    "or_",
    "persist",
    "router",
    "start",
]
