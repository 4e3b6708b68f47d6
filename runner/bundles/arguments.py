"""Passes a run's inputs to classes and functions of a crew file, by the names of their arguments."""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, get_type_hints

from runner.bundles.program import CALL, Program
from runner.core.annotations import signature_of
from runner.core.errors import BadCrew
from runner.core.inputs import kind_of


class Given(dict[str, object]):
    """The inputs of a run; ``used`` are those that a class was made with."""

    used: frozenset[str] = frozenset()


given: ContextVar[Given | None] = ContextVar("runner_given", default=None)
"""The inputs of the run: classes that cannot be created without arguments are made with those of their names."""


class NotGiven(BadCrew):
    """A class or function needs arguments, and the run has no inputs of their names."""


def needed(owner: Callable[..., object]) -> list[str]:
    """Return the required arguments of a class or a function, if all of them can be given by name."""
    try:
        found = list(signature_of(owner).parameters.values())
    except (TypeError, ValueError):
        return []
    found = [one for one in found if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return [] if any(one.kind is one.POSITIONAL_ONLY for one in found) else [one.name for one in found]


def arguments(owner: Callable[..., object], label: str) -> dict[str, object]:
    """Return the arguments for a class or a function that needs some: the run's inputs of those names."""
    names, inputs = needed(owner), given.get()
    if not names:
        return {}
    inputs = Given() if inputs is None else inputs
    if lacking := [name for name in names if name not in inputs]:
        listed, options = ", ".join(names), " ".join(f"--input {name}=..." for name in lacking)
        raise NotGiven(f"{label} {'is made with' if inspect.isclass(owner) else 'takes'} {listed}: give {options}")
    found = {name: inputs[name] for name in signature_of(owner).parameters if name in inputs}
    inputs.used = frozenset({*inputs.used, *found})
    return found


def optional(function: Callable[..., object]) -> dict[str, object]:
    """Return the run's inputs that a function accepts by name."""
    try:
        names = [one.name for one in signature_of(function).parameters.values() if one.kind in _BY_NAME]
    except (TypeError, ValueError):
        return {}
    inputs = given.get() or Given()
    return {name: inputs[name] for name in names if name in inputs}


def called(attr: str, value: Any) -> Program:
    """The program that a function is, under that name in its file, with the arguments that it has."""
    name = attr.removesuffix(CALL)
    if inspect.isgeneratorfunction(plain := inspect.unwrap(value)) or inspect.isasyncgenfunction(plain):
        raise BadCrew(f"{name} yields, and a run has one result: name a function that returns it")
    try:
        found = [] if inspect.isclass(value) else list(signature_of(value).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not tell
        return Program(name)
    if fixed := [one.name for one in found if one.kind is one.POSITIONAL_ONLY and one.default is one.empty]:
        raise BadCrew(f"{name} takes {', '.join(fixed)} by position only, which no input can be: take the / out of it")
    try:
        hints = get_type_hints(inspect.unwrap(getattr(value, "__func__", value))) if found else {}
    except (TypeError, NameError, AttributeError):  # it names what is there for type checkers alone
        hints = {}
    kinds = {one.name: kind for one in found if (kind := kind_of(hints.get(one.name)))}
    by_name = tuple(one.name for one in found if one.kind in _BY_NAME)
    takes = None if any(one.kind is one.VAR_KEYWORD for one in found) else by_name
    return Program(name, needs=tuple(needed(value)) if found else (), takes=takes, kinds=kinds)


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
