"""Run crews of AI agents on a fleet of Celery workers, so that nothing that was paid for is ever lost."""

from typing import TYPE_CHECKING, Any

from runner.agent import Agent
from runner.config import CheckpointConfig
from runner.context import TaskContext
from runner.crew import Crew, CrewOutput, Process
from runner.output import TaskOutput
from runner.task import Task

if TYPE_CHECKING:
    from runner.client import Client, RunHandle
    from runner.providers import BaseProvider, JsonProvider, RedisProvider, SqliteProvider

__all__ = [
    "Agent",
    "BaseProvider",
    "CheckpointConfig",
    "Client",
    "Crew",
    "CrewOutput",
    "JsonProvider",
    "Process",
    "RedisProvider",
    "RunHandle",
    "SqliteProvider",
    "Task",
    "TaskContext",
    "TaskOutput",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # A crew file needs no Redis: the client comes when it is asked for.
    if name in ("Client", "RunHandle"):
        from runner import client

        return getattr(client, name)
    if name.endswith("Provider"):
        from runner import providers

        if name in __all__:
            return getattr(providers, name)
    raise AttributeError(f"module 'runner' has no attribute {name!r}")
