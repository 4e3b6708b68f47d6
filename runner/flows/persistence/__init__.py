"""``@persist``: flows that save their state by its id."""

from runner.flows.persistence.base import FlowPersistence
from runner.flows.persistence.decorators import PersistenceFailed, keep, persist, persistence_of, take_up
from runner.flows.persistence.sqlite import SQLiteFlowPersistence

__all__ = [
    "FlowPersistence",
    "PersistenceFailed",
    "SQLiteFlowPersistence",
    "keep",
    "persist",
    "persistence_of",
    "take_up",
]
