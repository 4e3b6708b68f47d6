"""Run crews of AI agents on a fleet of Celery workers, so that nothing that was paid for is ever lost."""

from typing import TYPE_CHECKING, Any

from runner import crewai_paths

if TYPE_CHECKING:
    from runner.agent import Agent
    from runner.client import Client, RunHandle
    from runner.config import CheckpointConfig
    from runner.context import TaskContext
    from runner.crew import Crew, CrewOutput, Process
    from runner.events import BaseEvent, CheckpointEventType, EventBus, EventRecord, event_bus, resume_task_scope
    from runner.flow import Flow, and_, human_feedback, listen, or_, router, start
    from runner.llm import LLM, BaseLLM
    from runner.output import LiteAgentOutput, TaskOutput
    from runner.providers import BaseProvider, JsonProvider, RedisProvider, SqliteProvider
    from runner.state import RuntimeState
    from runner.task import ConditionalTask, Task
    from runner.tools import BaseTool, tool

__all__ = [
    "LLM",
    "Agent",
    "BaseEvent",
    "BaseLLM",
    "BaseProvider",
    "BaseTool",
    "CheckpointConfig",
    "CheckpointEventType",
    "Client",
    "ConditionalTask",
    "Crew",
    "CrewOutput",
    "EventBus",
    "EventRecord",
    "Flow",
    "JsonProvider",
    "LiteAgentOutput",
    "Process",
    "RedisProvider",
    "RunHandle",
    "RuntimeState",
    "SqliteProvider",
    "Task",
    "TaskContext",
    "TaskOutput",
    "and_",
    "event_bus",
    "human_feedback",
    "listen",
    "or_",
    "resume_task_scope",
    "router",
    "start",
    "tool",
]

__version__ = "0.1.0"

crewai_paths.install()

# Each comes when it is asked for: a crew file needs no Redis, and `runner worker` no crew.
_LATER = {
    "Agent": "runner.agent",
    "CheckpointConfig": "runner.config",
    "TaskContext": "runner.context",
    **dict.fromkeys(("Crew", "CrewOutput", "Process"), "runner.crew"),
    **dict.fromkeys(("LLM", "BaseLLM"), "runner.llm"),
    **dict.fromkeys(("LiteAgentOutput", "TaskOutput"), "runner.output"),
    **dict.fromkeys(("ConditionalTask", "Task"), "runner.task"),
    **dict.fromkeys(("BaseTool", "tool"), "runner.tools"),
    **dict.fromkeys(("Client", "RunHandle"), "runner.client"),
    **dict.fromkeys(("BaseProvider", "JsonProvider", "RedisProvider", "SqliteProvider"), "runner.providers"),
    **dict.fromkeys(
        ("BaseEvent", "CheckpointEventType", "EventBus", "EventRecord", "event_bus", "resume_task_scope"),
        "runner.events",
    ),
    **dict.fromkeys(("Flow", "and_", "human_feedback", "listen", "or_", "router", "start"), "runner.flow"),
    "RuntimeState": "runner.state",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'runner' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)
