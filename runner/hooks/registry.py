"""The registry of hooks, by interception point.

Hooks that a crew's code registers are called only for that crew's tasks, and are removed when its code is unloaded.
Hooks that are methods of a crew class are called for the crews of their object, for as long as the object exists.
"""

import contextlib
import functools
import inspect
import re
import sys
import weakref
from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from typing import Any, TypeVar

from runner.bundles.isolation import PREFIX
from runner.core.annotations import signature_of
from runner.events.bus import is_in_audience, module_of

__all__ = [
    "HookAborted",
    "InterceptionPoint",
    "LLMCallBlockedError",
    "after_llm_call",
    "after_tool_call",
    "before_llm_call",
    "before_tool_call",
    "clear_after_llm_call_hooks",
    "clear_after_tool_call_hooks",
    "clear_all_global_hooks",
    "clear_all_hooks",
    "clear_all_llm_call_hooks",
    "clear_all_tool_call_hooks",
    "clear_before_llm_call_hooks",
    "clear_before_tool_call_hooks",
    "clear_hooks",
    "get_after_llm_call_hooks",
    "get_after_tool_call_hooks",
    "get_before_llm_call_hooks",
    "get_before_tool_call_hooks",
    "get_hooks",
    "on",
    "register_after_llm_call_hook",
    "register_after_tool_call_hook",
    "register_before_llm_call_hook",
    "register_before_tool_call_hook",
    "register_hook",
    "unregister_after_llm_call_hook",
    "unregister_after_tool_call_hook",
    "unregister_before_llm_call_hook",
    "unregister_before_tool_call_hook",
    "unregister_hook",
]

Hook = Callable[[Any], Any]
F = TypeVar("F", bound=Callable[..., Any])


class InterceptionPoint(StrEnum):
    """The points at which hooks are called."""

    PRE_MODEL_CALL = "pre_model_call"
    POST_MODEL_CALL = "post_model_call"
    PRE_TOOL_CALL = "pre_tool_call"
    POST_TOOL_CALL = "post_tool_call"


class HookAborted(Exception):
    """Raised by a hook to prevent the call."""

    def __init__(self, reason: str, source: Any = None) -> None:
        super().__init__(reason)
        self.reason, self.source = reason, source


class LLMCallBlockedError(HookAborted, ValueError):
    """A ``before_llm_call`` hook returned False: the model is not called."""


registered: dict[InterceptionPoint, list[Hook]] = {point: [] for point in InterceptionPoint}
"""The hooks at each point, in order."""

before_llm_call_hooks = registered[InterceptionPoint.PRE_MODEL_CALL]
after_llm_call_hooks = registered[InterceptionPoint.POST_MODEL_CALL]
before_tool_call_hooks = registered[InterceptionPoint.PRE_TOOL_CALL]
after_tool_call_hooks = registered[InterceptionPoint.POST_TOOL_CALL]


def register_hook(point: InterceptionPoint, hook: Hook) -> None:
    """Add a hook at a point, after the existing ones."""
    registered[point].append(_as_of_caller(hook))


def unregister_hook(point: InterceptionPoint, hook: Hook) -> bool:
    """Remove a hook and return whether it was registered. A hook with filters is also found by its function."""
    found = next((one for one in _seen(point) if hook in _layers(one)), None)
    if found is not None:
        registered[point].remove(found)
    return found is not None


def get_hooks(point: InterceptionPoint) -> list[Hook]:
    """Return the hooks at a point, in order."""
    return [one.__wrapped__ if isinstance(one, _OfBundle) else one for one in _seen(point)]


def clear_hooks(point: InterceptionPoint) -> int:
    """Remove all hooks at a point and return how many there were."""
    gone = _seen(point)
    registered[point][:] = [one for one in registered[point] if not any(one is other for other in gone)]
    return len(gone)


def clear_all_hooks() -> None:
    """Remove all hooks."""
    for point in registered:
        clear_hooks(point)


def any_here() -> bool:
    """Whether any hook, at any point, may be called in this context."""
    return any(is_in_audience(module_of(hook)) for hooks in registered.values() for hook in hooks)


def active(point: InterceptionPoint, crew: Any) -> list[Hook]:
    """Return the hooks at a point for the calls of a crew's agent."""
    return [hook for hook in registered[point] if is_in_audience(module_of(hook)) and _is_for(hook, crew)]


def drop(module: str) -> None:
    """Remove the hooks that are defined in a module, or in a module of that package."""
    for hooks in registered.values():
        hooks[:] = [hook for hook in hooks if not f"{module_of(hook)}.".startswith(f"{module}.")]


class _OfBundle:
    """A library's hook that a crew's code registered, treated as if that code defined it."""

    def __init__(self, hook: Hook, bundle: str) -> None:
        self.__wrapped__, self.__module__ = hook, bundle

    def __call__(self, context: Any) -> Any:
        return self.__wrapped__(context)


def _as_of_caller(hook: Hook) -> Hook:
    bundle = _calling_bundle()
    return _OfBundle(hook, bundle) if bundle and not module_of(hook).startswith(PREFIX) else hook


def _calling_bundle() -> str:
    """The package of the crew's code that calls this, directly or through a library; "" without one."""
    frame = sys._getframe(1)
    while (found := frame.f_back) is not None:
        frame = found
        if (package := str(frame.f_globals.get("__name__")).partition(".")[0]).startswith(PREFIX):
            return package
    return ""


def _seen(point: InterceptionPoint) -> list[Hook]:
    """The hooks at a point that the calling code may see: a crew's code sees its own."""
    bundle = _calling_bundle()
    return [hook for hook in registered[point] if not bundle or f"{module_of(hook)}.".startswith(f"{bundle}.")]


def _layers(hook: Hook) -> Iterator[Hook]:
    """The hook and the functions that it wraps: with filters, or as a crew registered it."""
    one: Hook | None = hook
    while one is not None:
        yield one
        one = getattr(one, "__wrapped__", None)


def on(
    point: InterceptionPoint, *, agents: Collection[str] | None = None, tools: Collection[str] | None = None
) -> Callable[[F], F]:
    """Decorator: register the function at a point, only for agents with these roles and tools with these names.

    In a class with ``@CrewBase`` it decorates methods; each object of the class then has the hook.
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
    """Register a decorated method for the crews of its object, for as long as the object exists."""
    function = inspect.unwrap(method).__func__
    point, agents, tools = function.__dict__[_ASKED]
    reference = weakref.ref(owner)

    @functools.wraps(function)
    def called(context: Any) -> Any:
        there = reference()
        return None if there is None else function(there, context)

    hook = _filtered(called, agents, tools)
    hook.__dict__[_OWNER] = reference
    hook = _as_of_caller(hook)
    registered[point].append(hook)
    weakref.finalize(owner, _remove, point, hook).atexit = False


def _remove(point: InterceptionPoint, hook: Hook) -> None:
    """Remove the hook when its object is collected. It may be gone already."""
    with contextlib.suppress(ValueError):
        registered[point].remove(hook)


_ASKED, _OWNER = "_hook_asked_for", "_hook_of"
_NAMES = {
    InterceptionPoint.PRE_MODEL_CALL: "before_llm_call",
    InterceptionPoint.POST_MODEL_CALL: "after_llm_call",
    InterceptionPoint.PRE_TOOL_CALL: "before_tool_call",
    InterceptionPoint.POST_TOOL_CALL: "after_tool_call",
}


def _is_method(function: Callable[..., Any]) -> bool:
    names = list(signature_of(function).parameters)
    return len(names) > 1 and names[0] == "self"


def _is_for(hook: Hook, crew: Any) -> bool:
    owner = next((found for one in _layers(hook) if (found := getattr(one, _OWNER, None)) is not None), None)
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
    """Normalize a tool's name, as models see it or as its author writes it."""
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
    """Remove the hooks of model calls and return how many there were before and after calls."""
    return clear_before_llm_call_hooks(), clear_after_llm_call_hooks()


def clear_all_tool_call_hooks() -> tuple[int, int]:
    """Remove the hooks of tool calls and return how many there were before and after calls."""
    return clear_before_tool_call_hooks(), clear_after_tool_call_hooks()


def clear_all_global_hooks() -> dict[str, tuple[int, int]]:
    """Remove all of these hooks and return how many there were."""
    models, tools = clear_all_llm_call_hooks(), clear_all_tool_call_hooks()
    return {"llm_hooks": models, "tool_hooks": tools, "total": (models[0] + tools[0], models[1] + tools[1])}
