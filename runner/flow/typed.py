"""Models in what methods return and in a state, as JSON and back: by names that the crew's own code gives them.

What is stored says a name; which classes there are, and what each makes of the data, the code at hand says.
"""

import datetime
import decimal
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from runner.flow import state as states

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
        for entry in states.copied(entries):
            try:
                path, name, data = entry
                value = _put(value, path, self._make(name, data))
            except Exception:  # a class that is gone or changed, a place that is not there
                continue
        return value

    def with_plain(self) -> "Models":
        """These, and `PLAIN`."""
        return Models({**PLAIN, **self.classes}, self.made)

    def _make(self, name: str, data: Any) -> Any:
        owner: Any = self.classes[name]
        if name in PLAIN:
            return TypeAdapter(owner).validate_python(data)
        return self.made[name](data) if name in self.made else owner.model_validate(data)


def dump(state: states.State, refuse: Callable[[str, Any], None], models: Models) -> dict[str, Any]:
    """`states.dump`, and which models are in it where the state's own type does not say so."""
    for name, value in states.fields(state).items():
        if any(isinstance(one, Iterator) for one in _inside(value)):
            refuse(name, value)  # to look at it would use it up
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
        if PLAIN.get(name) in (set, frozenset):
            value = _put(value, path, data)
    return value


def _put(value: Any, path: list[Any], made: Any) -> Any:
    if not path:
        return made
    at = value
    for key in path[:-1]:
        at = vars(at)[key] if isinstance(at, BaseModel) else at[key]
    if isinstance(at, BaseModel):
        vars(at)[path[-1]] = made
    else:
        at[path[-1]] = made
    return value
