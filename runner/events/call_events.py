"""Events of the calls that a task makes: models, guardrails, tools, reasoning."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, Field

from runner.events.base import ErrorText, KnownEvent, Payload


class _CallEvent(KnownEvent):
    from_task: Payload = None
    from_agent: Payload = None


# -- models


class LLMEventBase(_CallEvent):
    """What the events of a call of a model have in common."""

    model: str | None = None
    call_id: str | None = None


class LLMCallType(StrEnum):
    """What a model answers: that tools are to be used, or a text."""

    TOOL_CALL = "tool_call"
    LLM_CALL = "llm_call"

    @classmethod
    def of(cls, uses: object) -> "LLMCallType":
        """That of an answer with these uses of tools, if any."""
        return cls.TOOL_CALL if uses else cls.LLM_CALL


class LLMCallStartedEvent(LLMEventBase):
    """A model is about to be asked."""

    type: Literal["llm_call_started"] = "llm_call_started"
    messages: Payload = None
    tools: Payload = None
    callbacks: Payload = None
    available_functions: Payload = None


class LLMCallCompletedEvent(LLMEventBase):
    """A model answered."""

    type: Literal["llm_call_completed"] = "llm_call_completed"
    messages: Payload = None
    response: Payload = None
    call_type: LLMCallType | None = None
    usage: dict[str, Any] | None = None
    replayed: bool = False


class LLMCallFailedEvent(LLMEventBase):
    """A model did not answer."""

    type: Literal["llm_call_failed"] = "llm_call_failed"
    # What a model's service says may repeat the key or the prompt.
    error: ErrorText = Field(default="", exclude=True)


class CallDivergedEvent(LLMEventBase):
    """A model is asked something else than was recorded at this place: call n of the task, or of the step around it."""

    type: Literal["call_diverged"] = "call_diverged"
    call: int = 0
    step: str | None = None


class FunctionCall(BaseModel):
    """Which tool a model wants used, and with what: JSON, as far as it came."""

    arguments: str = ""
    name: str | None = None


class ToolCall(BaseModel):
    """A use of a tool that a model is about to ask for; ``index`` is its place in the answer."""

    id: str | None = None
    function: FunctionCall
    type: str | None = "function"
    index: int = 0


class LLMStreamChunkEvent(LLMEventBase):
    """A piece of an answer came: of its text, or of a ``tool_call`` (`ToolCall`), which has all of it so far."""

    type: Literal["llm_stream_chunk"] = "llm_stream_chunk"
    chunk: Payload = None
    tool_call: Payload = None
    call_type: LLMCallType | None = None
    response_id: str | None = None


class LLMGuardrailBaseEvent(_CallEvent):
    """What the events of a guardrail have in common."""

    retry_count: int = 0


class LLMGuardrailStartedEvent(LLMGuardrailBaseEvent):
    """An output is about to be checked."""

    type: Literal["llm_guardrail_started"] = "llm_guardrail_started"
    guardrail: Payload = None


class LLMGuardrailCompletedEvent(LLMGuardrailBaseEvent):
    """An output was checked."""

    type: Literal["llm_guardrail_completed"] = "llm_guardrail_completed"
    success: bool = False
    result: Payload = None
    error: Payload = None


class LLMGuardrailFailedEvent(LLMGuardrailBaseEvent):
    """An output could not be checked."""

    type: Literal["llm_guardrail_failed"] = "llm_guardrail_failed"
    error: ErrorText = ""


# -- tools


class ToolUsageEvent(_CallEvent):
    """Something of a tool."""

    type: str = "tool_usage"
    agent: Payload = None
    agent_key: str | None = None
    tool_name: str = ""
    tool_args: Payload = None
    tool_class: str | None = None
    run_attempts: int | None = None
    delegations: int | None = None


class ToolUsageStartedEvent(ToolUsageEvent):
    """A tool is about to be called."""

    type: Literal["tool_usage_started"] = "tool_usage_started"


class ToolUsageFinishedEvent(ToolUsageEvent):
    """A tool returned."""

    type: Literal["tool_usage_finished"] = "tool_usage_finished"
    started_at: datetime | None = None
    finished_at: datetime | None = None
    from_cache: bool = False
    output: Payload = None


class ToolUsageErrorEvent(ToolUsageEvent):
    """A tool raised."""

    type: Literal["tool_usage_error"] = "tool_usage_error"
    error: Payload = None


class ToolValidateInputErrorEvent(ToolUsageEvent):
    """What a model gave for a tool does not fit."""

    type: Literal["tool_validate_input_error"] = "tool_validate_input_error"
    error: Payload = None


class ToolSelectionErrorEvent(ToolUsageEvent):
    """A model asked for a tool that is not there."""

    type: Literal["tool_selection_error"] = "tool_selection_error"
    error: Payload = None
