"""Events of flows."""

from typing import Literal

from runner.events.base import ErrorText, KnownEvent, Payload


class FlowEvent(KnownEvent):
    """Something of a flow."""

    flow_name: str = ""


class FlowCreatedEvent(FlowEvent):
    """A flow object is there."""

    type: Literal["flow_created"] = "flow_created"


class FlowStartedEvent(FlowEvent):
    """A flow begins."""

    type: Literal["flow_started"] = "flow_started"
    inputs: Payload = None


class FlowFinishedEvent(FlowEvent):
    """A flow is done."""

    type: Literal["flow_finished"] = "flow_finished"
    result: Payload = None
    state: Payload = None


class FlowFailedEvent(FlowEvent):
    """A flow failed."""

    type: Literal["flow_failed"] = "flow_failed"
    error: ErrorText = ""


class _MethodEvent(FlowEvent):
    method_name: str = ""


class _PausedEvent(_MethodEvent):
    flow_id: str = ""
    state: Payload = None
    message: Payload = None
    emit: list[str] | None = None


class FlowPausedEvent(_PausedEvent):
    """A flow waits for a person."""

    type: Literal["flow_paused"] = "flow_paused"


class MethodExecutionStartedEvent(_MethodEvent):
    """A method of a flow begins."""

    type: Literal["method_execution_started"] = "method_execution_started"
    state: Payload = None
    params: Payload = None


class MethodExecutionFinishedEvent(_MethodEvent):
    """A method of a flow is done."""

    type: Literal["method_execution_finished"] = "method_execution_finished"
    result: Payload = None
    state: Payload = None


class MethodExecutionFailedEvent(_MethodEvent):
    """A method of a flow failed."""

    type: Literal["method_execution_failed"] = "method_execution_failed"
    error: ErrorText = ""


class MethodExecutionPausedEvent(_PausedEvent):
    """A method of a flow waits for a person."""

    type: Literal["method_execution_paused"] = "method_execution_paused"


class FlowStateConflictEvent(_MethodEvent):
    """A method changed what ``others`` changed beside it; its value, the later one, stands. ``text`` says so."""

    type: Literal["flow_state_conflict"] = "flow_state_conflict"
    fields: list[str] = []
    others: list[str] = []
    text: str = ""


class HumanFeedbackRequestedEvent(_MethodEvent):
    """A person is asked what they think of an output."""

    type: Literal["human_feedback_requested"] = "human_feedback_requested"
    output: Payload = None
    message: Payload = None
    emit: list[str] | None = None
    request_id: str | None = None


class HumanFeedbackReceivedEvent(_MethodEvent):
    """A person said what they think."""

    type: Literal["human_feedback_received"] = "human_feedback_received"
    feedback: Payload = None
    outcome: str | None = None
    request_id: str | None = None


class FlowInputRequestedEvent(_MethodEvent):
    """A person is asked for something."""

    type: Literal["flow_input_requested"] = "flow_input_requested"
    message: Payload = None
    metadata: Payload = None


class FlowInputReceivedEvent(_MethodEvent):
    """A person gave something."""

    type: Literal["flow_input_received"] = "flow_input_received"
    message: Payload = None
    response: Payload = None
    metadata: Payload = None
    response_metadata: Payload = None
