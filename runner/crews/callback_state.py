"""Objects whose methods are callbacks of a crew: their state is passed to the next one, also in another process."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from runner.bundles.isolation import PREFIX
from runner.core.plain_text import of_class
from runner.journal.object_state import Handle, ObjectState, State, stored

Callback = Callable[..., Any]

_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})  #: types of values that hold no others, and never change


def is_closing(callback: Callback) -> bool:
    """Whether this is the callback with which each class of crews closes its MCP servers."""
    return getattr(_behind(callback), "__name__", "") == "close_mcp_server"


def owners(crew: Any) -> ObjectState:
    """Return the objects whose methods are callbacks of the crew, by a name that is the same in each process."""
    found: dict[str, Any] = {}
    for callback in (*crew.before_kickoff_callbacks, *crew.after_kickoff_callbacks):
        owner = _owner(callback) if callback is not None else None
        if owner is None or any(owner is other for other in found.values()):
            continue
        name, again = type(owner).__name__, 1
        while name in found:
            again += 1
            name = f"{type(owner).__name__}_{again}"
        found[name] = owner
    return ObjectState(found)


def left_on(owners: ObjectState, before: Mapping[str, Mapping[str, Any]]) -> tuple[State, list[str]]:
    """Return the attributes set on these objects since then, and a description of each that cannot be stored."""
    state, lost = owners.changed(before)
    values = [(name, key, vars(owners.objects[name])[key]) for name, key in lost]
    return state, [
        f"{name}.{key} is {of_class(value)}, which is not JSON: tasks do not see it" for name, key, value in values
    ]


def keep(owners: ObjectState) -> Callable[[], None]:
    """Remember the state of these objects, and the content of the lists, dicts, sets and data records in them.

    Returns a function that restores it in the same objects. Of other objects only the identity is restored.
    """
    lists: dict[int, tuple[list[Any], list[Any]]] = {}
    dicts: dict[int, tuple[dict[Any, Any], dict[Any, Any]]] = {}
    sets: dict[int, tuple[set[Any], set[Any]]] = {}
    slots: dict[int, tuple[Any, dict[str, Any]]] = {}
    left: list[Any] = [vars(owner) for owner in owners.objects.values()]
    while left:
        one = left.pop()
        if type(one) in _ATOMS:
            continue
        if isinstance(one, list) and id(one) not in lists:
            lists[id(one)] = one, list(one)
            left.extend(one)
        elif isinstance(one, dict) and id(one) not in dicts:
            dicts[id(one)] = one, dict(one)
            left.extend(one.values())
        elif isinstance(one, set) and id(one) not in sets:
            sets[id(one)] = one, set(one)
        elif isinstance(one, tuple):
            left.extend(one)
        elif id(one) not in slots and _is_data(one):
            fields = getattr(one, "__dict__", {})
            slots[id(one)] = one, _slots_of(one)
            left += [fields, *slots[id(one)][1].values()]

    def restore() -> None:
        for one, before in lists.values():
            one[:] = before
        for fields, stood in dicts.values():
            _put_back(fields, stood)
        for members, were in sets.values():
            members.intersection_update(were)
            members.update(were)
        for record, held in slots.values():
            for name, value in held.items():
                object.__setattr__(record, name, value)  # a frozen one refuses any other way

    return restore


def _put_back(fields: dict[Any, Any], stood: Mapping[Any, Any]) -> None:
    """Restore the content and order of a dict. Key by key: a Counter's `update` adds."""
    for key in fields.keys() - stood.keys():
        del fields[key]
    for key, value in stood.items():
        if key not in fields or fields[key] is not value:
            fields[key] = value
    if list(fields) != list(stood):
        for key in stood:
            fields[key] = fields.pop(key)


def _slots_of(record: Any) -> dict[str, Any]:
    """Return the values in a data record's slots."""
    if not dataclasses.is_dataclass(record):
        return {}
    names = [field.name for field in dataclasses.fields(record) if field.name not in getattr(record, "__dict__", {})]
    return {name: getattr(record, name) for name in names if hasattr(record, name)}


def _is_data(value: Any) -> bool:
    """Whether the value is a record that contains only JSON, of a class in the crew's own code."""
    if not (isinstance(value, BaseModel) or dataclasses.is_dataclass(value)) or isinstance(value, type):
        return False
    return type(value).__module__.startswith(PREFIX) and not isinstance(stored(value), Handle)


def _owner(callback: Callback) -> Any:
    inner = _behind(callback)
    owner = getattr(inner, "__self__", None)
    if owner is None and inner is not callback:
        owner = _closed_over(callback)["instance"]
    return owner if hasattr(owner, "__dict__") and not isinstance(owner, type) and not inspect.ismodule(owner) else None


def _behind(callback: Callback) -> Callback:
    """Return the method that a class of crews bound to its instance."""
    found = _closed_over(callback)
    return found["hook"] if "hook" in found and "instance" in found else callback


def _closed_over(callback: Callback) -> dict[str, Any]:
    function = inspect.unwrap(callback)
    return dict(inspect.getclosurevars(function).nonlocals) if inspect.isfunction(function) else {}
