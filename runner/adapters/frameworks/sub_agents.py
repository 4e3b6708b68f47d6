"""Finds the agents that work for an agent: as handoffs, as tools, or called by its tools."""

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from runner.bundles import script
from runner.bundles.isolation import PREFIX

MOST = 5000  #: objects that are looked at
_UPWARD = ("parent", "root", "team")
"""How attributes begin that name what an agent belongs to."""


def parts_of(agent: object, is_agent: Callable[[object], bool]) -> list[object]:
    """The agents in what an agent is made of, and in the functions there: their closures, the globals they name."""
    found: list[object] = []
    seen = {id(agent)}
    left = list(_inside(agent))
    while left and len(seen) < MOST:
        one = left.pop()
        if id(one) in seen or isinstance(one, str | bytes | int | float | type | ModuleType | None):
            continue
        seen.add(id(one))
        if is_agent(one):
            found.append(one)
        else:
            left += _inside(one)
    return found


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, FunctionType):
        yield from _named(value)
    elif inspect.ismethod(value):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    else:
        fields = getattr(value, "__dict__", {})
        yield from [one for name, one in list(fields.items()) if not name.lstrip("_").startswith(_UPWARD)]
        for of in type(value).__mro__:
            slots = vars(of).get("__slots__", ())
            names = (slots,) if isinstance(slots, str) else tuple(slots)
            yield from [getattr(value, name, None) for name in names if not name.startswith("__")]


def _named(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is not set yet
            continue
    if "__wrapped__" in vars(function):
        yield vars(function)["__wrapped__"]
    known = function.__globals__
    if str(known.get("__name__")).startswith(PREFIX):
        yield from [known[name] for name in script.names_used(function.__code__, known) if name in known]
