"""The store on Redis or Valkey (7.0 command set): keys, one script per operation, and their typed callers."""

from contextlib import AbstractContextManager
from typing import Any


def crewai_provider(url: str | None = None) -> Any:
    """`RedisProvider` as a provider of the real CrewAI: see `runner.adapters.crewai.redis_provider`."""
    from runner.adapters.crewai import redis_provider

    return redis_provider.make_provider(url)


def crewai_checkpoint_file(location: str, url: str | None = None) -> AbstractContextManager[str]:
    """A file from which the real CrewAI restores a checkpoint that is in Redis, while the block lasts."""
    from runner.adapters.crewai import redis_provider

    return redis_provider.checkpoint_file(location, url)
