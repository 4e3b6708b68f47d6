"""Everything that stores; this folder installs as ``runner.providers``."""

from typing import TYPE_CHECKING

if __name__ != "runner.providers":
    raise ImportError(f"import runner.providers, not {__name__}: see CONTRIBUTING.md, Layout")

from runner.core.runtime import names_from

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

# Each when it is asked for: JSON files need neither Redis nor SQLite.
__getattr__ = names_from(
    __name__,
    {
        "runner.providers.base": "BaseProvider CheckpointInfo CheckpointNotFound CheckpointTorn",
        "runner.providers.detect": "detect_provider",
        "runner.providers.json": "JsonProvider",
        "runner.providers.redis.provider": "RedisProvider",
        "runner.providers.sqlite": "SqliteProvider",
    },
)
