"""Events of crews, tasks and agents."""

from typing import Any, Literal

from runner.events.base import ErrorText, KnownEvent, Payload

# -- tasks


class _TaskEvent(KnownEvent):
    task: Payload = None


class TaskStartedEvent(_TaskEvent):
    """A task begins."""

    type: Literal["task_started"] = "task_started"
    context: Payload = None


class TaskCompletedEvent(_TaskEvent):
    """A task is done; its output is stored before this is emitted."""

    type: Literal["task_completed"] = "task_completed"
    output: Payload = None


class TaskFailedEvent(_TaskEvent):
    """A task failed for good."""

    type: Literal["task_failed"] = "task_failed"
    error: ErrorText = ""


# -- crews


class CrewBaseEvent(KnownEvent):
    """What a crew's events have in common."""

    crew_name: str | None = None
    crew: Payload = None


class CrewKickoffStartedEvent(CrewBaseEvent):
    """A crew begins."""

    type: Literal["crew_kickoff_started"] = "crew_kickoff_started"
    inputs: Payload = None


class CrewKickoffCompletedEvent(CrewBaseEvent):
    """A crew is done."""

    type: Literal["crew_kickoff_completed"] = "crew_kickoff_completed"
    output: Payload = None
    total_tokens: int = 0


class CrewKickoffFailedEvent(CrewBaseEvent):
    """A crew failed."""

    type: Literal["crew_kickoff_failed"] = "crew_kickoff_failed"
    error: ErrorText = ""


# -- agents


class _AgentEvent(KnownEvent):
    agent: Payload = None
    task: Payload = None


class AgentExecutionStartedEvent(_AgentEvent):
    """An agent begins to work on a task."""

    type: Literal["agent_execution_started"] = "agent_execution_started"
    tools: Payload = None
    task_prompt: Payload = None


class AgentExecutionCompletedEvent(_AgentEvent):
    """An agent is done with a task."""

    type: Literal["agent_execution_completed"] = "agent_execution_completed"
    output: Payload = None


class AgentExecutionErrorEvent(_AgentEvent):
    """An agent failed at a task."""

    type: Literal["agent_execution_error"] = "agent_execution_error"
    error: ErrorText = ""


class _LiteAgentEvent(KnownEvent):
    agent_info: Payload = None


class LiteAgentExecutionStartedEvent(_LiteAgentEvent):
    """``agent.kickoff()`` begins."""

    type: Literal["lite_agent_execution_started"] = "lite_agent_execution_started"
    tools: Payload = None
    messages: Payload = None


class LiteAgentExecutionCompletedEvent(_LiteAgentEvent):
    """``agent.kickoff()`` is done."""

    type: Literal["lite_agent_execution_completed"] = "lite_agent_execution_completed"
    output: Payload = None
    usage: dict[str, Any] | None = None


class LiteAgentExecutionErrorEvent(_LiteAgentEvent):
    """``agent.kickoff()`` failed."""

    type: Literal["lite_agent_execution_error"] = "lite_agent_execution_error"
    error: ErrorText = ""
