"""Events of crews, tasks and agents."""

from typing import Any, Literal

from pydantic import ConfigDict

from runner.events.base import BaseEvent, ErrorText, Payload

__all__ = [
    "AgentEvaluationCompletedEvent",
    "AgentEvaluationFailedEvent",
    "AgentEvaluationStartedEvent",
    "AgentExecutionCompletedEvent",
    "AgentExecutionErrorEvent",
    "AgentExecutionStartedEvent",
    "CrewKickoffCompletedEvent",
    "CrewKickoffFailedEvent",
    "CrewKickoffStartedEvent",
    "CrewTestCompletedEvent",
    "CrewTestFailedEvent",
    "CrewTestResultEvent",
    "CrewTestStartedEvent",
    "CrewTrainCompletedEvent",
    "CrewTrainFailedEvent",
    "CrewTrainStartedEvent",
    "LiteAgentExecutionCompletedEvent",
    "LiteAgentExecutionErrorEvent",
    "LiteAgentExecutionStartedEvent",
    "TaskCompletedEvent",
    "TaskEvaluationEvent",
    "TaskFailedEvent",
    "TaskStartedEvent",
]


class _Event(BaseEvent):
    model_config = ConfigDict(extra="ignore")


# -- tasks


class _TaskEvent(_Event):
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


class TaskEvaluationEvent(_TaskEvent):
    """A task's output is judged."""

    type: Literal["task_evaluation"] = "task_evaluation"
    evaluation_type: str | None = None


# -- crews


class _CrewEvent(_Event):
    crew_name: str | None = None
    crew: Payload = None


class CrewKickoffStartedEvent(_CrewEvent):
    """A crew begins."""

    type: Literal["crew_kickoff_started"] = "crew_kickoff_started"
    inputs: Payload = None


class CrewKickoffCompletedEvent(_CrewEvent):
    """A crew is done."""

    type: Literal["crew_kickoff_completed"] = "crew_kickoff_completed"
    output: Payload = None
    total_tokens: int = 0


class CrewKickoffFailedEvent(_CrewEvent):
    """A crew failed."""

    type: Literal["crew_kickoff_failed"] = "crew_kickoff_failed"
    error: ErrorText = ""


class CrewTrainStartedEvent(_CrewEvent):
    """Training begins."""

    type: Literal["crew_train_started"] = "crew_train_started"
    n_iterations: int = 0
    filename: str = ""
    inputs: Payload = None


class CrewTrainCompletedEvent(_CrewEvent):
    """Training is done."""

    type: Literal["crew_train_completed"] = "crew_train_completed"
    n_iterations: int = 0
    filename: str = ""


class CrewTrainFailedEvent(_CrewEvent):
    """Training failed."""

    type: Literal["crew_train_failed"] = "crew_train_failed"
    error: ErrorText = ""


class CrewTestStartedEvent(_CrewEvent):
    """A test of the crew begins."""

    type: Literal["crew_test_started"] = "crew_test_started"
    n_iterations: int = 0
    eval_llm: Payload = None
    inputs: Payload = None


class CrewTestCompletedEvent(_CrewEvent):
    """A test of the crew is done."""

    type: Literal["crew_test_completed"] = "crew_test_completed"


class CrewTestFailedEvent(_CrewEvent):
    """A test of the crew failed."""

    type: Literal["crew_test_failed"] = "crew_test_failed"
    error: ErrorText = ""


class CrewTestResultEvent(_CrewEvent):
    """What a test of the crew found."""

    type: Literal["crew_test_result"] = "crew_test_result"
    quality: float = 0.0
    execution_duration: float = 0.0
    model: str = ""


# -- agents


class _AgentEvent(_Event):
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


class _LiteAgentEvent(_Event):
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


class _AgentEvaluationEvent(_Event):
    iteration: int = 0


class AgentEvaluationStartedEvent(_AgentEvaluationEvent):
    """An agent is about to be judged."""

    type: Literal["agent_evaluation_started"] = "agent_evaluation_started"


class AgentEvaluationCompletedEvent(_AgentEvaluationEvent):
    """An agent was judged."""

    type: Literal["agent_evaluation_completed"] = "agent_evaluation_completed"
    metric_category: Any = None
    score: Any = None


class AgentEvaluationFailedEvent(_AgentEvaluationEvent):
    """An agent could not be judged."""

    type: Literal["agent_evaluation_failed"] = "agent_evaluation_failed"
    error: ErrorText = ""
