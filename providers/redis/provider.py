"""Checkpoints in Redis or Valkey."""

from typing import Literal

from runner.providers.base import BaseProvider


class RedisProvider(BaseProvider):
    """Keeps checkpoints in Redis. A location is ``redis://host:port/db?prefix=NAME``, one is named ``LOCATION#ID``."""

    provider_type: Literal["redis"] = "redis"

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Store a state."""
        raise NotImplementedError

    def prune(self, location: str, max_keep: int, *, branch: str = "main", head: str | None = None) -> int:
        """Remove the oldest checkpoints of a branch, or of the line of ``head``."""
        raise NotImplementedError

    def extract_id(self, location: str) -> str:
        """What is after the last ``#``."""
        return location.rpartition("#")[2]

    def from_checkpoint(self, location: str) -> str:
        """Read a state."""
        raise NotImplementedError
