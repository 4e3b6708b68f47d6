"""Converts models in outputs and state to JSON and back, by the names that the crew's code gives them.

What is stored says a name; which classes there are, and what each makes of the data, the code at hand says.
"""

import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from runner.flows import state as states

KEY = "~models"
"""Where a dumped state says which of its values are models."""

PLAIN: dict[str, type] = {
    f"~{one.__name__}": one
    for one in (
        set, frozenset, tuple, bytes, datetime.datetime, datetime.date, datetime.time, datetime.timedelta,
        decimal.Decimal, uuid.UUID,
    )
}  # fmt: skip
"""What a state may hold besides, as it is in one process: JSON has no such types."""

_SETS = (set, frozenset)

Entry = list[Any]
"""Where a model is, its name, and its data."""


@dataclass
class Models:
    """The classes that are known, by name."""

    classes: dict[str, type] = field(default_factory=dict)
    made: dict[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    """By the names of those that are not made of their own data alone."""

    def within(self, value: Any) -> list[Entry]:
        """The models in a value, the outer ones first."""
        names = {one: name for name, one in self.classes.items()}
        return list(_within(value, [], names)) if names else []

    def put_back(self, value: Any, entries: Any) -> Any:
        """The value, made of JSON, with its models in it again. What does not fit any more stays what it is."""
        if not isinstance(entries, list) or not entries:
            return value
        value = states.copied(value)  # what was stored stays what it was
        taken: set[str] = set()
        for entry in states.copied(entries):
            try:
                path, name, data = entry
                place, is_there = _place(value, path, data, taken)
                made = self._make(name, data) if is_there else self._merged(name, data, _at(value, place))
                value = _put(value, place, made)
                taken.add(_text(place))
            except Exception:  # a class that is gone or changed, a place that is not there
                continue
        return value

    def with_plain(self) -> "Models":
        """These, and `PLAIN`."""
        return Models({**PLAIN, **self.classes}, self.made)

    def _make(self, name: str, data: Any) -> Any:
        owner: Any = self.classes[name]
        if name in PLAIN:
            return TypeAdapter(owner).validate_python(_hashable(data) if owner in _SETS else data)
        return self.made[name](data) if name in self.made else owner.model_validate(data)

    def _merged(self, name: str, data: Any, current: Any) -> Any:
        """Of what methods that ran side by side left there together; else of what it was."""
        found = to_jsonable_python(current)
        if name in PLAIN:
            return self._make(name, found)
        before = self._make(name, data)
        try:
            made = self._make(name, found)
        except Exception:  # it is told in another way where it is
            return before
        return made if _tells(made, _text(found)) else before


def dump(state: states.State, refuse: Callable[[str, Any], None], models: Models) -> dict[str, Any]:
    """`states.dump`, and which models are in it where the state's own type does not say so."""
    for name, value in states.fields(state).items():
        if isinstance(state, BaseModel) and name in type(state).__private_attributes__:
            continue  # it is not used
        try:
            is_left = not any(isinstance(one, Iterator) for one in _inside(value))  # to look at it would use it up
        except RecursionError:  # it holds itself
            is_left = False
        if not is_left:
            refuse(name, value)
    models = models.with_plain()
    found = states.dump(state, refuse)
    held: dict[str, list[Entry]] = {}
    for name, value in states.fields(state).items():
        entries = models.within(value) if name in found else []
        if entries and not states.same(states.fields(states.revised(state, {name: found[name]}))[name], value):
            held[name] = entries
            found[name] = _ordered(found[name], entries)
    return {**found, KEY: held} if held else found


def load(state: states.State, data: Mapping[str, Any], models: Models) -> None:
    """`states.load`, with its models in it."""
    states.load(state, {name: value for name, value in data.items() if name != KEY})
    models = models.with_plain()
    held = data.get(KEY)
    there = states.fields(state)
    for name, entries in held.items() if isinstance(held, dict) else ():
        if name in there:
            states.put(state, states.Patch({name: models.put_back(there[name], entries)}))


def _within(value: Any, path: list[Any], names: Mapping[type, str]) -> Iterator[Entry]:
    name = names.get(type(value))
    if name is not None:
        data = to_jsonable_python(value)
        yield [path, name, sorted(data, key=repr) if isinstance(value, set | frozenset) else data]
    if isinstance(value, dict):
        inner: Any = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    elif isinstance(value, BaseModel):
        inner = vars(value).items()
    else:
        return
    for key, one in inner:
        if isinstance(key, str | int):
            yield from _within(one, [*path, key], names)


def _inside(value: Any) -> Iterator[Any]:
    """A value, and what it holds."""
    yield value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from _inside(one)


def _ordered(value: Any, entries: list[Entry]) -> Any:
    """With sets in one order: two that are equal are no change."""
    for path, name, data in entries:
        if PLAIN.get(name) in _SETS and _is_list(value, path):
            value = _put(value, path, data)
    return value


def aligned(before: Mapping[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """A dumped state, what is still in a set first, as it stood ``before``: what is new is appended, and so merged."""
    if KEY not in now:
        return {**now, KEY: {}} if KEY in before else now
    for field_, entries in now[KEY].items():
        for entry in entries:
            path, name, data = entry
            if PLAIN.get(name) in _SETS and _is_list(before.get(field_), path) and _is_list(now[field_], path):
                left = {_text(one): one for one in data}
                known = map(_text, _at(before[field_], path))
                entry[2] = [*(left.pop(text) for text in known if text in left), *left.values()]
                now[field_] = _put(now[field_], path, entry[2])
    return now


def _place(value: Any, path: list[Any], data: Any, taken: set[str]) -> tuple[list[Any], bool]:
    """Where an entry belongs, and whether its very data are there.

    What two methods appended to one list stands one after the other, and each said where as if it were alone.
    """
    wanted = _text(data)
    for place in _places(value, path):
        if _text(place) not in taken and _tells(_at(value, place), wanted):
            return place, True
    if _text(path) in taken:
        raise LookupError(path)
    return path, False


def _places(value: Any, path: list[Any]) -> Iterator[list[Any]]:
    if not path:
        yield []
        return
    key = path[0]
    for at in range(key, len(value)) if isinstance(value, list) and isinstance(key, int) else (key,):
        try:
            inner = _at(value, [at])
        except (LookupError, TypeError):
            continue
        for rest in _places(inner, path[1:]):
            yield [at, *rest]


def _at(value: Any, path: list[Any]) -> Any:
    for key in path:
        value = vars(value)[key] if isinstance(value, BaseModel) else value[key]
    return value


def _is_list(value: Any, path: list[Any]) -> bool:
    try:
        return isinstance(_at(value, path), list)
    except (LookupError, TypeError):
        return False


def _tells(value: Any, text: str) -> bool:
    try:
        return _text(to_jsonable_python(value)) == text
    except Exception:  # a serializer may raise anything
        return False


def _hashable(value: Any) -> Any:
    """What a set held; of lists JSON made of tuples."""
    return [tuple(_hashable(one)) if isinstance(one, list) else one for one in value]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _put(value: Any, path: list[Any], made: Any) -> Any:
    if not path:
        return made
    at = _at(value, path[:-1])
    (vars(at) if isinstance(at, BaseModel) else at)[path[-1]] = made
    return value
