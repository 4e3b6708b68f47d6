"""One call of an agent's model: fitted into its context window, journaled, reported to observers.

Calls of `LLM` are journaled where they leave the process. Those of other models are steps of the task.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from runner.agents import text_tool_protocol
from runner.agents.agent_state import AgentState
from runner.agents.concurrently import run_concurrently
from runner.agents.context_window import SHARE, fit, tokens
from runner.core import waiting
from runner.core.annotations import signature_of
from runner.core.errors import ContextTooLong
from runner.events.bus import event_bus
from runner.events.call_events import (
    LLMCallCompletedEvent,
    LLMCallFailedEvent,
    LLMCallStartedEvent,
    LLMCallType,
    LLMStreamChunkEvent,
    ToolCall,
)
from runner.events.sinks import republish, sinks
from runner.llm.clients import Completion, Piece, ToolCalls
from runner.llm.clients.completion import tool_call
from runner.llm.llm import LLM, BaseLLM
from runner.llm.recording import CallResult
from runner.llm.recording.conversation_hash import hashed, offering, replayed

Message = dict[str, Any]

SMALLER = 3
"""How often a conversation is made smaller for a model that says it takes less."""


def ask(state: AgentState, messages: Sequence[Message], tools: Sequence[Message], watch: "StepObserver") -> Message:
    """Return the model's answer to the messages. ``watch`` is notified of real calls. Raises the model's error."""
    limit = _limit(state)
    chain, completion = _recorded(state, messages, tools, limit, watch)
    if completion is not None:
        watch.ended(completion)
        return completion.message()
    fitted = fit(messages, limit, tools) if limit else list(messages)
    for left in range(SMALLER, -1, -1):
        try:
            return _ask(state, fitted, tools, watch, chain if left == SMALLER else None)
        except ContextTooLong:
            smaller = fit(messages, tokens(fitted, tools) // 2, tools)
            if not left or not state.agent.respect_context_window or smaller == fitted:
                raise
            fitted = smaller
    raise AssertionError("unreachable")


def _recorded(
    state: AgentState, messages: Sequence[Message], tools: Sequence[Message], limit: int, watch: "StepObserver"
) -> tuple[str | None, Completion | None]:
    """Return the call's hash chain, made of messages that are not fitted yet, and the recorded answer, or None."""
    model = state.model
    if not isinstance(model, LLM) or not state.journal.code:
        return None, None
    conversation = state.chain.at(messages)
    if conversation is None:
        return None, None
    settings = model.settings(tools, None if tools else state.response_model, state.streams)
    chain = None if settings is None else hashed(conversation, limit, *settings)
    on_chunk = watch.chunk if sinks() else None
    completion = None if chain is None else replayed(chain, lambda body: model.recorded(body, state.streams, on_chunk))
    return chain, None if completion is None else model.counted(completion)


def _ask(
    state: AgentState, messages: Sequence[Message], tools: Sequence[Message], watch: "StepObserver", chain: str | None
) -> Message:
    model = state.model
    if is_ours(model):
        if (waiter := waiting.here()) is not None:
            return _ask_ours(state, model, messages, tools, watch, chain, waiter)
        return run_concurrently([lambda: _ask_ours(state, model, messages, tools, watch, chain, None)])[0]
    native = model.supports_function_calling()
    said = list(messages) if native else text_tool_protocol.format_messages(messages, tools)
    offered: dict[str, Any] = {
        "from_task": state.task,
        "from_agent": state.agent,
        "response_model": state.response_model,
    }
    if native and tools:
        offered["tools"] = list(tools)
    extra = accepted(model.call, offered)
    number = sum(len(message.get("tool_calls") or ()) for message in messages)

    def call(messages: list[Message]) -> Any:
        return _as_json(model.call(copy.deepcopy(messages), **extra), number)

    def read(answer: Any) -> Message:
        if isinstance(answer, dict):
            return {"role": "assistant", **answer}
        plain: Message = {"role": "assistant", "content": str(answer)}
        return plain if native or not tools else text_tool_protocol.read(str(answer), number)

    watch.read = read
    about: dict[str, Any] = {"kind": "model", "model": str(model.model), "before": state.journal.wait_for_turn}
    return read(state.journal.step("model", call, (said,), {}, watch, **about))


def _ask_ours(
    state: AgentState,
    model: LLM,
    messages: Sequence[Message],
    tools: Sequence[Message],
    watch: "StepObserver",
    chain: str | None,
    waiter: waiting.Waiter | None,
) -> Message:
    """Call an `LLM`, whose transport journals the call: a replayed answer comes back as if it were new."""
    streams = model.stream or state.streams
    asked = list(messages), tools, None if tools else state.response_model, watch.chunk if streams else None, streams
    try:
        with offering(chain):
            completion = model.complete(*asked) if waiter is None else waiter.awaited(model.acomplete(*asked))
    except BaseException as error:
        watch.failed(error)
        raise
    watch.ended(completion)
    return completion.message()


class StepObserver:
    """Observes one model call: records its answer before its end is reported, and reports only a real one."""

    def __init__(self, state: AgentState, take: Callable[[Message], None], tools: Sequence[Message] = ()) -> None:
        self._state, self._take, self._tools = state, take, tools
        self._about = {"model": str(state.model.model), **state.about}
        self._source = state.model
        self._begun = False
        self.reports = state.journal.watched
        self.taken = False
        self.read: Callable[[Any], Message] = lambda value: {"role": "assistant", "content": str(value)}

    def began(self) -> None:
        """A call is about to be made; the client may make it several times."""
        if self._begun:
            return
        self._begun = True
        messages = [dict(message) for message in self._state.conversation.messages]  # a handler's own
        self._emit(LLMCallStartedEvent(messages=messages, tools=list(self._tools) or None, **self._about))

    def on_result(self, call: CallResult) -> None:
        """The call ended, in this attempt or an earlier one."""
        for name in ("prompt_tokens", "completion_tokens"):
            self._state.usage[name] = self._state.usage.get(name, 0) + getattr(call.usage, name)

    def chunk(self, piece: Piece) -> None:
        """A piece of the answer arrived. If it is replayed, only the readers of this kickoff's stream get it."""
        if not self._begun and not sinks():
            return
        use = None if piece.tool_call is None else ToolCall.model_validate(piece.tool_call)
        event = LLMStreamChunkEvent(chunk=piece.text, tool_call=use, call_type=LLMCallType.of(use), **self._about)
        if self._begun:
            event_bus.emit(self._source, event)
        else:
            republish(event)

    def ended(self, value: Any) -> None:
        """The model answered."""
        completion = value if isinstance(value, Completion) else None
        message = completion.message() if completion is not None else self.read(value)
        usage = dict(completion.usage) if completion is not None else None
        with self._state.journal.cancel_scope.write:
            self._take(message)
            self.taken = True
            uses = message.get("tool_calls")
            said, kind = uses or message["content"], LLMCallType.of(uses)
            self._emit(LLMCallCompletedEvent(response=said, call_type=kind, usage=usage, **self._about))

    def failed(self, error: BaseException) -> None:
        """The call failed."""
        self._emit(LLMCallFailedEvent(error=str(error), **self._about))
        self._begun = False  # the next one may be shorter

    def _emit(self, event: LLMCallStartedEvent | LLMCallCompletedEvent | LLMCallFailedEvent) -> None:
        if self._begun and self.reports:
            event_bus.emit(self._source, event)


def is_ours(model: BaseLLM) -> TypeGuard[LLM]:
    """Whether it is an `LLM` with unmodified methods, whose calls are journaled by the transport."""
    return isinstance(model, LLM) and type(model).call is LLM.call and model.journaled_by_transport


def accepted(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in ``offered`` that a function accepts by name."""
    try:
        parameters = signature_of(function).parameters
    except (TypeError, ValueError):
        return {}
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return dict(offered)
    return {name: value for name, value in offered.items() if name in parameters}


def _limit(state: AgentState) -> int:
    """The maximum number of tokens to send; 0 if unknown."""
    if not state.agent.respect_context_window:
        return 0
    model = state.model
    if not isinstance(model, LLM) and type(model).get_context_window_size is BaseLLM.get_context_window_size:
        return 0
    return int(model.get_context_window_size() * SHARE)


def _as_json(answer: Any, number: int) -> Any:
    """The answer of a custom model as JSON: text, or the part of a message with tool calls."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list) and answer and all(_get(one, "function") for one in answer):
        calls = [_call(one, number + i) for i, one in enumerate(answer)]
        return {"content": answer.content if isinstance(answer, ToolCalls) else "", "tool_calls": calls}
    if isinstance(answer, BaseModel):
        return answer.model_dump_json()
    return "" if answer is None else json.dumps(to_jsonable_python(answer), ensure_ascii=False)


def _call(one: Any, number: int) -> Message:
    """Convert a tool call, a dict or an object of the client, to OpenAI's form."""
    function = _get(one, "function")
    arguments = _get(function, "arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return tool_call(number, str(_get(one, "id") or ""), str(_get(function, "name") or ""), text)


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
