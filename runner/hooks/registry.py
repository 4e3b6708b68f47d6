"""Which hooks there are, by the point at which they are called.

Those of a crew file are called for its own tasks alone, and go when its code is unloaded; those that are methods of a
class of crews, for the crews of their object, for as long as that is there.
"""

import functools
import inspect
import re
import weakref
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, TypeVar

from runner.events.bus import is_in_audience, module_of

Hook = Callable[[Any], Any]
F = TypeVar("F", bound=Callable[..., Any])


class InterceptionPoint(StrEnum):
    """Where hooks are called."""

    PRE_MODEL_CALL = "pre_model_call"
    POST_MODEL_CALL = "post_model_call"
    PRE_TOOL_CALL = "pre_tool_call"
    POST_TOOL_CALL = "post_tool_call"


class HookAborted(Exception):
    """A hook raised it: what it was called before is not to be done."""

    def __init__(self, reason: str, source: Any = None) -> None:
        super().__init__(reason)
        self.reason, self.source = reason, source


class LLMCallBlockedError(HookAborted, ValueError):
    """A ``before_llm_call`` hook returned False: the model is not asked."""


registered: dict[InterceptionPoint, list[Hook]] = {point: [] for point in InterceptionPoint}
"""The hooks at each point, in order."""

before_llm_call_hooks = registered[InterceptionPoint.PRE_MODEL_CALL]
after_llm_call_hooks = registered[InterceptionPoint.POST_MODEL_CALL]
before_tool_call_hooks = registered[InterceptionPoint.PRE_TOOL_CALL]
after_tool_call_hooks = registered[InterceptionPoint.POST_TOOL_CALL]


def register_hook(point: InterceptionPoint, hook: Hook) -> None:
    """Have a hook called at a point, after those that are there."""
    registered[point].append(hook)


def unregister_hook(point: InterceptionPoint, hook: Hook) -> bool:
    """Have it called no more; whether it was there. A hook with filters is known by its function, too."""
    found = next((one for one in registered[point] if hook in (one, getattr(one, "__wrapped__", None))), None)
    if found is not None:
        registered[point].remove(found)
    return found is not None


def get_hooks(point: InterceptionPoint) -> list[Hook]:
    """The hooks at a point, in order."""
    return list(registered[point])


def clear_hooks(point: InterceptionPoint) -> int:
    """Remove all hooks at a point, and return how many there were."""
    many = len(registered[point])
    registered[point].clear()
    return many


def clear_all_hooks() -> None:
    """Remove all hooks."""
    for hooks in registered.values():
        hooks.clear()


def any_registered() -> bool:
    """Whether there is a hook at any point."""
    return any(registered.values())


def active(point: InterceptionPoint, crew: Any) -> list[Hook]:
    """The hooks at a point that are to be called here, for what an agent of a crew does."""
    return [hook for hook in registered[point] if is_in_audience(module_of(hook)) and _is_for(hook, crew)]


def drop(module: str) -> None:
    """Remove the hooks that are defined in a module, or in a module of that package."""
    for hooks in registered.values():
        hooks[:] = [hook for hook in hooks if not f"{module_of(hook)}.".startswith(f"{module}.")]


def on(
    point: InterceptionPoint, *, agents: Collection[str] | None = None, tools: Collection[str] | None = None
) -> Callable[[F], F]:
    """A decorator: have the function called at a point, for agents of these roles and tools of these names alone.

    In a class with ``@CrewBase`` it is put on methods; each object of that class then has the hook.
    """

    def decorate(function: F) -> F:
        function.__dict__[_ASKED] = (point, agents, tools)
        if _is_method(function):
            function.__dict__["is_hook"] = True
        else:
            register_hook(point, _filtered(function, agents, tools))
        function.__dict__[f"is_{_NAMES[point]}_hook"] = True
        return function

    return decorate


def register_method(owner: Any, method: Hook) -> None:
    """Have a method that was decorated as a hook called for the crews of its object, as long as that is there."""
    function = inspect.unwrap(method).__func__
    point, agents, tools = function.__dict__[_ASKED]
    reference = weakref.ref(owner)

    @functools.wraps(function)
    def called(context: Any) -> Any:
        there = reference()
        return None if there is None else function(there, context)

    hook = _filtered(called, agents, tools)
    hook.__dict__[_OWNER] = reference
    register_hook(point, hook)
    weakref.finalize(owner, unregister_hook, point, hook).atexit = False


_ASKED, _OWNER = "_hook_asked_for", "_hook_of"
_NAMES = {
    InterceptionPoint.PRE_MODEL_CALL: "before_llm_call",
    InterceptionPoint.POST_MODEL_CALL: "after_llm_call",
    InterceptionPoint.PRE_TOOL_CALL: "before_tool_call",
    InterceptionPoint.POST_TOOL_CALL: "after_tool_call",
}


def _is_method(function: Callable[..., Any]) -> bool:
    names = list(inspect.signature(function).parameters)
    return len(names) > 1 and names[0] == "self"


def _is_for(hook: Hook, crew: Any) -> bool:
    owner = getattr(hook, _OWNER, None)
    return owner is None or (crew is not None and owner() is getattr(crew, "made_by", None))


def _filtered(function: Hook, agents: Collection[str] | None, tools: Collection[str] | None) -> Hook:
    if agents is None and tools is None:
        return function

    @functools.wraps(function)
    def filtered(context: Any) -> Any:
        if agents is not None and getattr(context.agent, "role", None) not in {one.strip() for one in agents}:
            return None
        if tools is not None and _plain(getattr(context, "tool_name", "")) not in {_plain(one) for one in tools}:
            return None
        return function(context)

    return filtered


def _plain(name: str) -> str:
    """A tool's name as models are told it, or as its author writes it."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


# -- each point by the names that its users know


def _decorator(point: InterceptionPoint) -> Callable[..., Any]:
    def decorator(
        function: Any = None, *, agents: Collection[str] | None = None, tools: Collection[str] | None = None
    ) -> Any:
        decorate = on(point, agents=agents, tools=tools)
        return decorate if function is None else decorate(function)

    decorator.__name__ = decorator.__qualname__ = _NAMES[point]
    decorator.__doc__ = f"Have the function called at `InterceptionPoint.{point.name}`; see `on`."
    return decorator


before_llm_call = _decorator(InterceptionPoint.PRE_MODEL_CALL)
after_llm_call = _decorator(InterceptionPoint.POST_MODEL_CALL)
before_tool_call = _decorator(InterceptionPoint.PRE_TOOL_CALL)
after_tool_call = _decorator(InterceptionPoint.POST_TOOL_CALL)

register_before_llm_call_hook = functools.partial(register_hook, InterceptionPoint.PRE_MODEL_CALL)
register_after_llm_call_hook = functools.partial(register_hook, InterceptionPoint.POST_MODEL_CALL)
register_before_tool_call_hook = functools.partial(register_hook, InterceptionPoint.PRE_TOOL_CALL)
register_after_tool_call_hook = functools.partial(register_hook, InterceptionPoint.POST_TOOL_CALL)

unregister_before_llm_call_hook = functools.partial(unregister_hook, InterceptionPoint.PRE_MODEL_CALL)
unregister_after_llm_call_hook = functools.partial(unregister_hook, InterceptionPoint.POST_MODEL_CALL)
unregister_before_tool_call_hook = functools.partial(unregister_hook, InterceptionPoint.PRE_TOOL_CALL)
unregister_after_tool_call_hook = functools.partial(unregister_hook, InterceptionPoint.POST_TOOL_CALL)

get_before_llm_call_hooks = functools.partial(get_hooks, InterceptionPoint.PRE_MODEL_CALL)
get_after_llm_call_hooks = functools.partial(get_hooks, InterceptionPoint.POST_MODEL_CALL)
get_before_tool_call_hooks = functools.partial(get_hooks, InterceptionPoint.PRE_TOOL_CALL)
get_after_tool_call_hooks = functools.partial(get_hooks, InterceptionPoint.POST_TOOL_CALL)

clear_before_llm_call_hooks = functools.partial(clear_hooks, InterceptionPoint.PRE_MODEL_CALL)
clear_after_llm_call_hooks = functools.partial(clear_hooks, InterceptionPoint.POST_MODEL_CALL)
clear_before_tool_call_hooks = functools.partial(clear_hooks, InterceptionPoint.PRE_TOOL_CALL)
clear_after_tool_call_hooks = functools.partial(clear_hooks, InterceptionPoint.POST_TOOL_CALL)


def clear_all_llm_call_hooks() -> tuple[int, int]:
    """Remove the hooks of calls of models, and return how many there were before and after them."""
    return clear_before_llm_call_hooks(), clear_after_llm_call_hooks()


def clear_all_tool_call_hooks() -> tuple[int, int]:
    """Remove the hooks of uses of tools, and return how many there were before and after them."""
    return clear_before_tool_call_hooks(), clear_after_tool_call_hooks()


def clear_all_global_hooks() -> dict[str, tuple[int, int]]:
    """Remove all of these, and return how many there were."""
    models, tools = clear_all_llm_call_hooks(), clear_all_tool_call_hooks()
    return {"llm_hooks": models, "tool_hooks": tools, "total": (models[0] + tools[0], models[1] + tools[1])}
