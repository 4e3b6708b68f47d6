"""Carries the state of objects whose methods are crew callbacks over to the next callback, also in another process.

That includes values that are JSON, and pydantic models of the crew's own code.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from runner.bundles.isolation import PREFIX
from runner.core.plain_text import of_class

Callback = Callable[..., Any]
State = dict[str, dict[str, Any]]

_MODEL = "model of pydantic"
_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})  #: types of values that hold no others, and never change


def is_closing(callback: Callback) -> bool:
    """Whether this is the callback with which each class of crews closes its MCP servers."""
    return getattr(_behind(callback), "__name__", "") == "close_mcp_server"


def owners(crew: Any) -> dict[str, Any]:
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
    return found


def snapshot(owners: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the current state of these objects, for `left_on` to compare with."""
    return {name: {key: _seen(value) for key, value in vars(owner).items()} for name, owner in owners.items()}


def left_on(owners: Mapping[str, Any], before: Mapping[str, Mapping[str, Any]]) -> tuple[State, list[str]]:
    """Return the attributes set on these objects since then, and a description of each that cannot be stored."""
    state: State = {}
    lost = []
    for name, owner in owners.items():
        for key, value in vars(owner).items():
            if key in before[name] and before[name][key] == _seen(value):
                continue
            try:
                state.setdefault(name, {})[key] = _as_json(value)
            except (PydanticSerializationError, TypeError, ValueError, RecursionError):
                lost.append(f"{name}.{key} is {of_class(value)}, which is not JSON: tasks do not see it")
    return {name: found for name, found in state.items() if found}, lost


def put_on(owners: Mapping[str, Any], state: Mapping[str, Mapping[str, Any]]) -> None:
    """Set the stored attributes on these objects."""
    for name, found in state.items():
        for key, value in found.items() if name in owners else ():
            setattr(owners[name], key, _from_json(value, owners[name]))


def keep(owners: Mapping[str, Any]) -> Callable[[], None]:
    """Remember the state of these objects, and the content of the lists, dicts, sets and data records in them.

    Returns a function that restores it in the same objects. Of other objects only the identity is restored.
    """
    lists: dict[int, tuple[list[Any], list[Any]]] = {}
    dicts: dict[int, tuple[dict[Any, Any], dict[Any, Any]]] = {}
    sets: dict[int, tuple[set[Any], set[Any]]] = {}
    slots: dict[int, tuple[Any, dict[str, Any]]] = {}
    left: list[Any] = [vars(owner) for owner in owners.values()]
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
    return type(value).__module__.startswith(PREFIX) and not isinstance(_seen(value), tuple)


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


def _seen(value: Any) -> Any:
    """Return a value that differs if the given one changed: its JSON, or its identity."""
    try:
        return _as_json(value)
    except Exception:  # whatever its own code says to being looked at
        return ("object", id(value))


def _as_json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {_MODEL: type(value).__name__, "fields": value.model_dump(mode="json")}
    if callable(value):
        raise TypeError("a function is not JSON")
    return to_jsonable_python(value, inf_nan_mode="null")


def _from_json(value: Any, owner: Any) -> Any:
    if not isinstance(value, dict) or _MODEL not in value:
        return value
    model = getattr(sys.modules.get(type(owner).__module__), str(value[_MODEL]), None)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return value["fields"]
    try:
        return model.model_validate(value["fields"])
    except ValidationError:
        return value["fields"]
