"""Records hooks as steps, so a hook is not called again when its task restarts.

A hook that was interrupted by a kill is called again, like a callback. So is a hook that refused a model call, because
the refusal fails the task, and a resumed task calls the model again. A hook that raises is logged, and changes nothing.
"""

import copy
import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from pydantic_core import to_jsonable_python

from runner.core.context_value import ContextValue
from runner.core.errors import Stop
from runner.hooks.contexts import LLMCallHookContext, ToolCallHookContext
from runner.hooks.registry import HookAborted, InterceptionPoint, LLMCallBlockedError, active, any_here
from runner.journal.current_journal import current_journal
from runner.journal.journal import Journal

logger = logging.getLogger("runner.hooks")

_BLOCKED = "Tool execution blocked by hook. Tool: "


_called_for: ContextVar[bool] = ContextVar("runner_hooks_called", default=False)
"""Whether a call of a model that is made here is one for which an agent has called the hooks."""

Place = tuple[Any, ...]
"""By what a step is known: whose call it is, and which one, as JSON."""


def before_model_call(context: LLMCallHookContext, journal: Journal | None, place: Place) -> bool:
    """Call the hooks; return whether they changed the messages. Raises `LLMCallBlockedError`, or `HookAborted`."""
    hooks = active(InterceptionPoint.PRE_MODEL_CALL, context.crew)
    if not hooks:
        return False

    def call() -> Any:
        before = copy.deepcopy(context.messages)
        for hook in hooks:
            if _called(hook, context) is False:
                raise LLMCallBlockedError("LLM call blocked by before_llm_call hook", hook)
        return _changed(before, context.messages)

    return _apply(_once("before_llm_call", call, journal, place), context)


def after_model_call(context: LLMCallHookContext, journal: Journal | None, place: Place) -> bool:
    """Call the hooks, which may replace ``response``; return whether messages changed. Raises `HookAborted`."""
    hooks = active(InterceptionPoint.POST_MODEL_CALL, context.crew)
    if not hooks:
        return False

    def call() -> Any:
        before = copy.deepcopy(context.messages)
        for hook in hooks:
            if isinstance(found := _called(hook, context), str):
                context.response = found
        return {"response": context.response, "messages": _changed(before, context.messages)}

    said = _once("after_llm_call", call, journal, place)
    context.response = said["response"]
    return _apply(said["messages"], context)


def before_tool_call(context: ToolCallHookContext, journal: Journal, place: Place) -> str | None:
    """Call the hooks, which may change the arguments. Returns the text for the model if one refused the call."""
    hooks = active(InterceptionPoint.PRE_TOOL_CALL, context.crew)
    if not hooks:
        return None

    def call() -> Any:
        try:
            blocked = any(_called(hook, context) is False for hook in hooks)
        except HookAborted as error:
            return {"blocked": f"{_BLOCKED}{context.tool_name}. {error.reason}"}
        return {"blocked": f"{_BLOCKED}{context.tool_name}"} if blocked else {"input": _json(context.tool_input)}

    said = _once("before_tool_call", call, journal, place)
    if "blocked" in said:
        return str(said["blocked"])
    context.tool_input.update(said["input"])
    for name in context.tool_input.keys() - said["input"].keys():
        del context.tool_input[name]
    return None


def after_tool_call(context: ToolCallHookContext, journal: Journal, place: Place) -> str:
    """Call the hooks with the tool's result. Returns the new result. Raises `HookAborted`."""
    hooks = active(InterceptionPoint.POST_TOOL_CALL, context.crew)
    if not hooks:
        return context.tool_result or ""

    def call() -> Any:
        for hook in hooks:
            if isinstance(found := _called(hook, context), str):
                context.tool_result = found
        return context.tool_result or ""

    return str(_once("after_tool_call", call, journal, place))


def _once(name: str, call: Callable[[], Any], journal: Journal | None, place: Place) -> Any:
    """Call the hooks as a step that no ledger counts; outside a task, just call them."""
    return call() if journal is None else journal.step(name, lambda *_: call(), place, {}, counted=False)


def _called(hook: Any, context: Any) -> Any:
    try:
        return hook(context)
    except (HookAborted, Stop):
        raise
    except Exception:
        logger.exception("the hook %s failed", getattr(hook, "__name__", hook))
        return None


def _changed(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> Any:
    """Return how many messages at the beginning are unchanged, and those after them; None if there is no change."""
    if list(before) == list(now):
        return None
    same = next((i for i, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), None)
    same = min(len(before), len(now)) if same is None else same
    return {"same": same, "then": _json(list(now[same:]))}


def _apply(change: Any, context: LLMCallHookContext) -> bool:
    if change is None:
        return False
    context.messages[change["same"] :] = change["then"]
    return True


def _json(value: Any) -> Any:
    return copy.deepcopy(to_jsonable_python(value, fallback=repr, bytes_mode="base64"))


def called_for() -> ContextValue[bool]:
    """Mark in this context that the hooks of the current model call have been called."""
    return ContextValue(_called_for, True)


class HookedCall:
    """A model call by the author's code, not by an agent at work, with the same hooks."""

    def __init__(self, llm: Any, messages: str | Sequence[dict[str, Any]], task: Any, agent: Any) -> None:
        self._told = messages
        self._context: LLMCallHookContext | None = None
        if any_here() and not _called_for.get():
            said = [{"role": "user", "content": messages}] if isinstance(messages, str) else copy.deepcopy(messages)
            crew = getattr(task, "crew", None) or getattr(agent, "crew", None)
            self._context = LLMCallHookContext(messages=list(said), llm=llm, agent=agent, task=task, crew=crew)
            self._place = (_json(said),)
            found = current_journal()
            self._journal = found[0] if found is not None else None

    def before(self) -> Any:
        """Return the messages as the hooks leave them. Raises `LLMCallBlockedError`, or `HookAborted`."""
        if self._context is None or not before_model_call(self._context, self._journal, self._place):
            return self._told
        return self._context.messages

    def after(self, response: Any) -> Any:
        """Return the answer as the hooks leave it; they are only called with text. Raises `HookAborted`."""
        if self._context is None or not isinstance(response, str):
            return response
        self._context.response = response
        after_model_call(self._context, self._journal, self._place)
        return self._context.response
