"""Runs in the memory of one process: a store without a server, and the reference that Redis' scripts are held to."""

from runner.providers.memory.broker import MemoryBroker
from runner.providers.memory.store import MemoryStore

__all__ = ["MemoryBroker", "MemoryStore"]
