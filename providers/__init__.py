"""Everything that stores; this folder installs as ``runner.providers``."""

from typing import TYPE_CHECKING, Any

if __name__ != "runner.providers":
    raise ImportError(f"import runner.providers, not {__name__}: see CONTRIBUTING.md, Layout")

if TYPE_CHECKING:
    from runner.providers.base import BaseProvider, CheckpointInfo, CheckpointNotFound, CheckpointTorn
    from runner.providers.detect import detect_provider
    from runner.providers.json import JsonProvider
    from runner.providers.redis.provider import RedisProvider
    from runner.providers.sqlite import SqliteProvider

__all__ = [
    "BaseProvider",
    "CheckpointInfo",
    "CheckpointNotFound",
    "CheckpointTorn",
    "JsonProvider",
    "RedisProvider",
    "SqliteProvider",
    "detect_provider",
]

_HOMES = {
    "BaseProvider": "base",
    "CheckpointInfo": "base",
    "CheckpointNotFound": "base",
    "CheckpointTorn": "base",
    "JsonProvider": "json",
    "RedisProvider": "redis.provider",
    "SqliteProvider": "sqlite",
    "detect_provider": "detect",
}


def __getattr__(name: str) -> Any:
    # Each when it is asked for: JSON files need neither Redis nor SQLite.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"runner.providers.{_HOMES[name]}"), name)
