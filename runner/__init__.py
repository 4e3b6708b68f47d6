"""Run crews of AI agents on a fleet of Celery workers, so that nothing that was paid for is ever lost."""

from typing import TYPE_CHECKING

from runner.adapters.crewai import import_paths
from runner.core import runtime

if TYPE_CHECKING:
    from runner.agents import Agent
    from runner.agents.tools import BaseTool, tool
    from runner.client import Client, RunHandle
    from runner.core.idempotency import idempotency_key
    from runner.core.output import LiteAgentOutput, TaskOutput
    from runner.crews.context import ConditionalTask, Task, TaskContext
    from runner.crews.crew import Crew, CrewOutput, Process
    from runner.events import BaseEvent, CheckpointEventType, EventBus, EventRecord, event_bus, resume_task_scope
    from runner.flows import Flow, and_, human_feedback, listen, or_, router, start
    from runner.journal.tool_uses import durable
    from runner.llm.llm import LLM, BaseLLM
    from runner.providers import BaseProvider, JsonProvider, RedisProvider, SqliteProvider
    from runner.providers.config import CheckpointConfig
    from runner.snapshots import RuntimeState

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
    "durable",
    "event_bus",
    "human_feedback",
    "idempotency_key",
    "listen",
    "or_",
    "resume_task_scope",
    "router",
    "start",
    "tool",
]

__version__ = "0.1.0"

import_paths.install()
runtime.wire(
    crews="runner.crews.kickoff",
    flows="runner.flows.engine",
    flow_snapshots="runner.flows.entity",
    streams="runner.streaming.kickoffs",
)

# Each comes when it is asked for: a crew file needs no Redis, and `runner worker` no crew.
__getattr__ = runtime.names_from(
    __name__,
    {
        "runner.agents": "Agent",
        "runner.agents.tools": "BaseTool tool",
        "runner.client": "Client RunHandle",
        "runner.core.idempotency": "idempotency_key",
        "runner.core.output": "LiteAgentOutput TaskOutput",
        "runner.crews.context": "ConditionalTask Task TaskContext",
        "runner.crews.crew": "Crew CrewOutput Process",
        "runner.events": "BaseEvent CheckpointEventType EventBus EventRecord event_bus resume_task_scope",
        "runner.flows": "Flow and_ human_feedback listen or_ router start",
        "runner.journal.tool_uses": "durable",
        "runner.llm.llm": "LLM BaseLLM",
        "runner.providers": "BaseProvider JsonProvider RedisProvider SqliteProvider",
        "runner.providers.config": "CheckpointConfig",
        "runner.snapshots": "RuntimeState",
    },
)
