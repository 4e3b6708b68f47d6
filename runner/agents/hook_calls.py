"""Calls the hooks around an agent's model calls and tool uses: see `runner.hooks`."""

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from runner.agents import Agent
from runner.agents.agent_state import AgentState
from runner.agents.tools import BaseTool
from runner.hooks import recorded, registry
from runner.hooks.contexts import LLMCallHookContext, ToolCallHookContext

Message = dict[str, Any]


def before_model_call(state: AgentState) -> bool:
    """Call the hooks; return whether they changed the messages. Raises `LLMCallBlockedError` or `HookAborted`."""
    if not registry.any_here():
        return False
    context, place = _of_model(state)
    return _take(state, context, recorded.before_model_call(context, state.journal, place))


def asking() -> AbstractContextManager[Any]:
    """The context of the call itself: a custom model that calls another model does not call the hooks again."""
    return recorded.called_for() if registry.any_here() else nullcontext()


def after_model_call(state: AgentState) -> bool:
    """Call the hooks with the latest answer, if any; return whether they changed anything. Raises `HookAborted`."""
    messages = state.conversation.messages
    if not registry.any_here() or not messages or messages[-1]["role"] != "assistant":
        return False
    context, place = _of_model(state)
    answer = str(messages[-1].get("content") or "")
    context.messages, context.response = context.messages[:-1], answer
    changed = recorded.after_model_call(context, state.journal, place)
    last = dict(messages[-1])
    if context.response != answer:
        last["content"], changed = context.response, True
    context.messages.append(last)
    return _take(state, context, changed)


class HookedUse:
    """A tool call with its hooks. ``number`` is its index among the conversation's tool calls."""

    def __init__(self, state: AgentState, tool: BaseTool, name: str, number: int) -> None:
        self._state, self._tool, self._name = state, tool, name
        self._place = (state.role, name, number)

    def before(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        """Return the arguments as the hooks leave them, and the text for the model if a hook refuses the call."""
        context = self._context(copy.deepcopy(arguments))
        refused = recorded.before_tool_call(context, self._state.journal, self._place)
        return context.tool_input, refused

    def after(self, arguments: Mapping[str, Any], result: str) -> str:
        """Return the result as the hooks leave it. Raises `HookAborted`."""
        context = self._context(dict(arguments))
        context.tool_result = context.raw_tool_result = result
        return recorded.after_tool_call(context, self._state.journal, self._place)

    def _context(self, arguments: dict[str, Any]) -> ToolCallHookContext:
        state = self._state
        return ToolCallHookContext(self._name, arguments, self._tool, _agent_of(state), state.task, state.crew)


def _agent_of(state: AgentState) -> Agent:
    """Return the agent with the inputs filled into its role, as its model sees it."""
    return state.agent if state.role == state.agent.role else state.agent.model_copy(update={"role": state.role})


def _of_model(state: AgentState) -> tuple[LLMCallHookContext, recorded.Place]:
    """The hooks get a copy of the conversation; their changes are applied once they are recorded."""
    messages = copy.deepcopy(state.conversation.messages)
    asked = sum(message["role"] == "assistant" for message in messages)
    about: dict[str, Any] = {"agent": _agent_of(state), "task": state.task, "crew": state.crew}
    return LLMCallHookContext(messages=messages, llm=state.model, iterations=asked, **about), (state.role, asked)


def _take(state: AgentState, context: LLMCallHookContext, changed: bool) -> bool:
    if changed:
        before, state.conversation.messages[:] = list(state.conversation.messages), context.messages
        state.from_hooks.extend(one for one in context.messages if one not in before)
        state.chain.reset()
    return changed
