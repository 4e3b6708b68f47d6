"""Finds functions and classes that create a crew, in a file without a crew object, by the names in their code."""

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from runner.bundles import frameworks, loader, script
from runner.bundles.after_kickoff import KICKOFFS
from runner.bundles.arguments import needed
from runner.core.annotations import own_annotations, signature_of

_KICKOFFS = KICKOFFS | {"kickoff_for_each", "kickoff_for_each_async", "akickoff_for_each"}
_CALLS = frozenset({"call", "acall"})

_ASKS = frozenset({"input", "argv", "parse_args"})  # what a script is told by who starts it, a run has as inputs


class Kinds(NamedTuple):
    """The classes of a framework: of its crews, of what is no maker of crews, and of its models."""

    crew: type
    others: tuple[type, ...]
    models: tuple[type, ...]


def factories(module: ModuleType, kinds: Kinds) -> list[str]:
    """Return the names of functions and classes of a module that make a crew when they are called, the likeliest first.

    Entry points of a project come first, unless the file does more as a script than to call one; then functions that
    only make a crew; then the script; then functions that kick one off. A script that asks for something comes last if
    a class needs arguments.
    """
    names = list(_makers(module, kinds))
    entries = [name for name, kicks_off in names if kicks_off and name in frameworks.entries()]
    classes, used = list(_with_arguments(module, kinds)), script.names_in(module)
    is_script = bool(used & (_KICKOFFS | (_CALLS if _has_model(module, kinds) else set())))
    if entries and (not is_script or used & _ASKS or script.is_call_of(module, entries[0])):
        return entries
    if not entries and (made := [name for name, kicks_off in names if not kicks_off]):
        return made
    if is_script and classes and used & _ASKS:  # what it asks for may be what they need
        return [*([name for name, _ in names] or classes), script.NAME]
    return [script.NAME] if is_script else [name for name, _ in names] or classes


def _makers(module: ModuleType, kinds: Kinds) -> Iterator[tuple[str, bool]]:
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if (kicks_off := _makes(value, kinds)) is not None:
            yield name, kicks_off
        elif inspect.isclass(value) and not issubclass(value, kinds.others) and _needs_nothing(value):
            for method, function in vars(value).items():
                known = None if method.startswith("_") else _makes(function, kinds, of_class=True)
                if known is not None:
                    yield f"{name}.{method}", known


def _with_arguments(module: ModuleType, kinds: Kinds) -> Iterator[str]:
    """Methods that make a crew, of classes that need arguments: the likeliest one of each."""
    for name, owner in vars(module).items():
        if not inspect.isclass(owner) or owner.__module__ != module.__name__ or name.startswith("_"):
            continue
        if issubclass(owner, kinds.others) or not needed(owner):
            continue
        for method in loader.METHODS:
            if _makes(vars(owner).get(method), kinds, of_class=True) is not None:
                yield f"{name}.{method}"
                break


def _makes(function: Any, kinds: Kinds, *, of_class: bool = False) -> bool | None:
    """Whether the function kicks off the crew that it makes; None if it makes none, or cannot be called just so."""
    plain = inspect.unwrap(function) if inspect.isfunction(function) else None
    if not inspect.isfunction(plain):
        return None
    parameters = list(signature_of(plain).parameters.values())[of_class:]
    if any(one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
        return None
    returned = own_annotations(plain).get("return")
    names = set(script.names_of(plain.__code__))
    if returned is kinds.crew or returned == "Crew" or ("Crew" in names and not names & _KICKOFFS):
        return False
    if plain.__name__ in frameworks.entries() and not of_class:
        names |= script.names_used(plain.__code__, plain.__globals__)
        names |= _KICKOFFS if names & _CALLS else set()
    return True if names & _KICKOFFS else None


def _has_model(module: ModuleType, kinds: Kinds) -> bool:
    """Whether the file names a class of the framework's models, or one of them."""
    return any(
        any(value is one for one in kinds.models) or isinstance(value, kinds.models) for value in vars(module).values()
    )


def _needs_nothing(owner: type) -> bool:
    try:
        signature_of(owner).bind()
    except (TypeError, ValueError):
        return False
    return True
