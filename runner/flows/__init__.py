"""Flows: methods that trigger each other. ``kickoff`` runs one here; ``runner submit`` runs the same on the fleet."""

from runner.flows.decorators import human_feedback, listen, router, start
from runner.flows.definition import and_, or_
from runner.flows.feedback import (
    HumanFeedbackPending,
    HumanFeedbackProvider,
    HumanFeedbackResult,
    PendingFeedbackContext,
)
from runner.flows.flow import Flow
from runner.flows.input_provider import FlowConfig, InputProvider, InputResponse, flow_config
from runner.flows.memory import Memory, MemoryMatch, MemoryRecord
from runner.flows.persistence import FlowPersistence, SQLiteFlowPersistence, persist
from runner.flows.schema import INITIAL_STATE_CLASS_MARKER
from runner.flows.state import FlowState

__all__ = [
    "INITIAL_STATE_CLASS_MARKER",
    "Flow",
    "FlowConfig",
    "FlowPersistence",
    "FlowState",
    "HumanFeedbackPending",
    "HumanFeedbackProvider",
    "HumanFeedbackResult",
    "InputProvider",
    "InputResponse",
    "Memory",
    "MemoryMatch",
    "MemoryRecord",
    "PendingFeedbackContext",
    "SQLiteFlowPersistence",
    "and_",
    "flow_config",
    "human_feedback",
    "listen",
    "or_",
    "persist",
    "router",
    "start",
]
