"""Flows that keep their state by its id: ``@persist``."""

from runner.flow.persistence.base import FlowPersistence
from runner.flow.persistence.decorators import PersistenceFailed, keep, persist, persistence_of, take_up
from runner.flow.persistence.sqlite import SQLiteFlowPersistence

__all__ = [
    "FlowPersistence",
    "PersistenceFailed",
    "SQLiteFlowPersistence",
    "keep",
    "persist",
    "persistence_of",
    "take_up",
]
