"""What makes a crew where a file has none at hand: functions and classes of ``main.py``, and crews written as data.

A file that is being read kicks nothing off: a hook of CrewAI's stops it there, and the crew that was to be kicked off
is the one that it means, with the inputs that it was to get.
"""

import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from crewai import Crew
from crewai.flow import Flow
from crewai.hooks import InterceptionPoint, get_hooks, register_hook
from crewai.project import load_crew
from pydantic import BaseModel

from runner.source import loader, script
from runner.source.isolation import KickedOff, loading

_KICKOFFS = frozenset({"kickoff", "kickoff_async", "akickoff", "kickoff_for_each"})

_ASKS = frozenset({"input", "argv", "parse_args"})  # what a script is told by who starts it, a run has as inputs
_METHODS = ("run", "kickoff", "crew")

_inputs: dict[int, tuple[object, dict[str, Any]]] = {}
"""What crews are kicked off with where they are made, by the crew's id."""


def watch() -> None:
    """From here on, nothing is kicked off while a file is read."""
    if _stop not in get_hooks(InterceptionPoint.EXECUTION_START):
        register_hook(InterceptionPoint.EXECUTION_START, _stop)


def inputs_of(crew: object) -> dict[str, Any]:
    """What a crew is kicked off with unless somebody says otherwise, as its file has it."""
    return dict(_inputs.get(id(crew), (crew, {}))[1])


def from_json(file: str) -> Crew:
    """The crew of a ``crew.jsonc``."""
    crew, inputs = load_crew(file)
    return _given(crew, inputs)


def makers(module: ModuleType) -> list[str]:
    """Functions and classes of a module that make a crew when they are called, by the names that they can be named by.

    Those that only make one count before those that kick it off, and what the file does as a script comes last.
    """
    names = list(_makers(module))
    made = [name for name, kicks_off in names if not kicks_off]
    if names:
        return made or [name for name, _ in names]
    classes, used = list(_with_arguments(module)), script.names_in(module)
    return [script.NAME] if used & _KICKOFFS and not (classes and used & _ASKS) else classes


def _stop(context: Any) -> None:
    if not loading.get():
        return
    for name in ("crew", "flow"):
        thing = getattr(context, name, None)
        if thing is not None:
            raise KickedOff(_given(thing, getattr(context, "inputs", None)))


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
    return True if names & _KICKOFFS else None


def _needs_nothing(owner: type) -> bool:
    try:
        inspect.signature(owner).bind()
    except (TypeError, ValueError):
        return False
    return True
