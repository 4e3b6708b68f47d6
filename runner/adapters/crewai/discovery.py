"""What makes a crew where a file has none at hand: functions and classes of ``main.py``, and crews written as data.

A file that is being read kicks nothing off and asks no model: it is stopped there. The crew that was to be kicked off
is the one that it means, with the inputs that it was to get; where it does more than that, all it does is one task.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from crewai import LLM, Agent, BaseLLM, Crew
from crewai.flow import Flow
from crewai.hooks import InterceptionPoint, get_hooks, register_hook
from crewai.project import load_crew
from pydantic import BaseModel

from runner.bundles import frameworks, loader, script
from runner.bundles.isolation import KickedOff, being_read

_STOPPED = ("kickoff", "kickoff_async", "akickoff")
_KICKOFFS = frozenset({*_STOPPED, "kickoff_for_each", "kickoff_for_each_async", "akickoff_for_each"})
_CALLS = frozenset({"call", "acall"})

_ASKS = frozenset({"input", "argv", "parse_args"})  # what a script is told by who starts it, a run has as inputs
_METHODS = ("run", "kickoff", "crew")

_inputs: dict[int, tuple[object, dict[str, Any]]] = {}
"""What crews are kicked off with where they are made, by the crew's id."""


def watch() -> None:
    """From here on, nothing is kicked off while a file is read, and no model is asked."""
    if _stop_call in get_hooks(InterceptionPoint.PRE_MODEL_CALL):
        return
    register_hook(InterceptionPoint.PRE_MODEL_CALL, _stop_call)
    for owner in (Crew, Flow, Agent):
        for name in _STOPPED:
            setattr(owner, name, _unless_read(getattr(owner, name)))


def inputs_of(crew: object) -> dict[str, Any]:
    """What a crew is kicked off with by default, as its file has it."""
    return dict(_inputs.get(id(crew), (crew, {}))[1])


def from_json(file: str) -> Crew:
    """The crew of a ``crew.jsonc``."""
    crew, inputs = load_crew(file)
    return _given(crew, inputs)


def factories(module: ModuleType) -> list[str]:
    """Functions and classes of a module that make a crew when they are called, by the names that they can be named by.

    The entry points of a project count first, unless the file does more than to call one as a script; then those that
    only make one; then what it does as a script; then other functions that kick one off.
    """
    names = list(_makers(module))
    entries = [name for name, kicks_off in names if kicks_off and name in frameworks.entries()]
    classes, used = list(_with_arguments(module)), script.names_in(module)
    is_script = bool(used & (_KICKOFFS | (_CALLS if _has_model(module) else set())))
    if entries and (not is_script or used & _ASKS or script.is_call_of(module, entries[0])):
        return entries
    if not entries and (made := [name for name, kicks_off in names if not kicks_off]):
        return made
    return [script.NAME] if is_script and not (classes and used & _ASKS) else [name for name, _ in names] or classes


def _unless_read(method: Callable[..., Any]) -> Callable[..., Any]:
    def stop(thing: Any, args: Any, kwargs: Any) -> None:
        if being_read() is None:
            return
        if isinstance(thing, Agent):
            raise KickedOff(None)
        raise KickedOff(_given(thing, kwargs.get("inputs", args[0] if args else None)))

    @functools.wraps(method)
    def kickoff(self: Any, *args: Any, **kwargs: Any) -> Any:
        stop(self, args, kwargs)
        return method(self, *args, **kwargs)

    @functools.wraps(method)
    async def akickoff(self: Any, *args: Any, **kwargs: Any) -> Any:
        stop(self, args, kwargs)
        return await method(self, *args, **kwargs)

    return akickoff if inspect.iscoroutinefunction(method) else kickoff


def _stop_call(context: Any) -> None:  # noqa: ARG001 - a hook's argument
    if being_read() is not None:
        raise KickedOff(None)


def _given(crew: Any, inputs: Mapping[str, Any] | None) -> Any:
    if inputs:
        _inputs[id(crew)] = (crew, dict(inputs))
    return crew


def _makers(module: ModuleType) -> Iterator[tuple[str, bool]]:
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) and (kicks_off := _makes(value)) is not None:
            yield name, kicks_off
        elif inspect.isclass(value) and not issubclass(value, BaseModel | Flow) and _needs_nothing(value):
            for method, function in vars(value).items():
                known = _makes(function, of_class=True) if inspect.isfunction(function) else None
                if known is not None and not method.startswith("_"):
                    yield f"{name}.{method}", known


def _with_arguments(module: ModuleType) -> Iterator[str]:
    """Methods that make a crew, of classes that need arguments: the likeliest one of each."""
    for name, owner in vars(module).items():
        if not inspect.isclass(owner) or owner.__module__ != module.__name__ or name.startswith("_"):
            continue
        if issubclass(owner, BaseModel | Flow) or not loader.needed(owner):
            continue
        for method in _METHODS:
            function = vars(owner).get(method)
            if inspect.isfunction(function) and _makes(function, of_class=True) is not None:
                yield f"{name}.{method}"
                break


def _makes(function: Any, *, of_class: bool = False) -> bool | None:
    """Whether the function kicks off the crew that it makes; None if it makes none, or cannot be called just so."""
    parameters = list(inspect.signature(function).parameters.values())[of_class:]
    if any(one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
        return None
    returned = function.__annotations__.get("return")
    names = set(script.names_of(function.__code__))
    if returned is Crew or returned == "Crew" or ("Crew" in names and not names & _KICKOFFS):
        return False
    if function.__name__ in frameworks.entries() and not of_class:
        names |= script.names_used(function.__code__, function.__globals__)
        names |= _KICKOFFS if names & _CALLS else set()
    return True if names & _KICKOFFS else None


def _has_model(module: ModuleType) -> bool:
    """Whether the file names the class of CrewAI's models, or one of them."""
    return any(value is LLM or isinstance(value, BaseLLM) for value in vars(module).values())


def _needs_nothing(owner: type) -> bool:
    try:
        inspect.signature(owner).bind()
    except (TypeError, ValueError):
        return False
    return True
