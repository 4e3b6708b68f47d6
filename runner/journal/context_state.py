"""Changes that a tool makes to objects lent by its framework: recorded with its call, and applied on replay.

A replayed tool call does not run, so its changes of ``deps``, a ``context`` or a session's state are applied to those
objects: in place, and only what changed. A snapshot covers dicts, lists, deques, sets, and objects of the author's own
classes. Objects of installed packages are values if `runner.core.encoding` can store them; others are handles (a
client, a connection), which stay as they are in each process.
"""

import abc
import collections
import dataclasses
import functools
import io
import json
import pickle
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from runner.core import encoding
from runner.core.encoding import NotSerializable
from runner.core.plain_text import of_class

Change = list[Any]
"""``[path, kind, ...]``: where from the root, and what of it is another; JSON."""

_PLAIN = frozenset({str, int, float, bool, type(None)})
_WHOLE = (set, bytearray)  #: kept whole, changed in place
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PYDANTIC = ("__pydantic_extra__", "__pydantic_private__", "__pydantic_fields_set__")

_DICT, _LIST, _FIELDS, _TUPLE, _ITEMS, _HANDLE = "dict", "list", "fields", "tuple", "items", "handle"


class Contents(abc.ABC):
    """What is in an object of a library, as a dict of texts. The same instance stands for the same object."""

    @abc.abstractmethod
    def read(self, name_of: encoding.NameOf) -> dict[str, Any]:
        """What is in the object now: a new dict."""

    @abc.abstractmethod
    def write(self, contents: Mapping[str, Any], name_of: encoding.NameOf, find: encoding.Find) -> None:
        """Make this what is in the object. Raises `BadInput`."""


@dataclasses.dataclass(slots=True)
class _Thing:
    """A mutable object as it was when the snapshot was taken. The reference keeps its id unique."""

    live: Any
    path: list[Any]
    kind: str
    inside: Any = None
    """By key, index or field: ``("ref", id)`` or a value; of a handle what tells whether it changed."""


class Snapshot:
    """An object with its current contents, except for the dict keys in ``without``."""

    def __init__(self, root: Any, name_of: encoding.NameOf, without: Collection[str] = ()) -> None:
        self._name_of, self._root, self._without = name_of, root, without
        self.things: dict[int, _Thing] = {}
        if isinstance(root, Contents):
            contents = root.read(name_of)
            inside = {key: self._see(one, [key]) for key, one in contents.items()}
            self.things[id(root)] = _Thing(contents, [], _DICT, inside)
        else:
            self._see(root, [])

    def changes(self, now: "Snapshot", *, by_difference: bool = False) -> list[Change]:
        """Return the changes since the snapshot. Raises `NotSerializable` if they cannot be restored from JSON.

        ``by_difference``: of counts, how much was added, as others count there, too.
        """
        found = []
        new: set[int] = set()
        for key, thing in self.things.items():
            after = now.things.get(key)
            if after is None or after.inside == thing.inside:
                continue
            if thing.kind not in _CHANGES or None in thing.path:
                raise NotSerializable(f"a change in {of_class(thing.live)}")
            found.append(
                [thing.path, thing.kind, *_CHANGES[thing.kind](thing, after, _Encoder(self, now, new, by_difference))]
            )
        return found

    def _see(self, value: Any, path: list[Any]) -> Any:
        if type(value) in _PLAIN:
            return "=", type(value), value
        known = self.things.get(id(value))
        if known is not None:
            return "ref", id(value)
        kind = _kind_of(value) or (_FIELDS if value is self._root and _is_made_of_fields(value) else "")
        if kind in (_ITEMS, ""):
            items = list(value) if kind and type(value) is not bytearray else value
            try:
                data: Any = encoding.encode(items, self._name_of)
            except NotSerializable:
                data, kind = _printed(value, self.things), _HANDLE
            if not kind:
                return "=", type(value), json.dumps(data)
            self.things[id(value)] = _Thing(value, path, kind, data)
            return "ref", id(value)
        thing = self.things[id(value)] = _Thing(value, path, kind)
        parts = _parts_of(value, kind)
        if value is self._root and self._without:
            parts = {key: one for key, one in parts.items() if key not in self._without}
        if isinstance(parts, dict):
            thing.inside = {key: self._see(one, [*path, self._step(key)]) for key, one in parts.items()}
        else:
            thing.inside = [self._see(one, [*path, i]) for i, one in enumerate(parts)]
        return "ref", id(value)

    def _step(self, key: Any) -> Any:
        """A dict key, or the name of a field, in a path."""
        if type(key) is str:
            return key
        try:
            return encoding.encode(key, self._name_of)
        except NotSerializable:
            return None  # nothing can be said of what is there


def puts(changes: Sequence[Change], root: Any, find: encoding.Find) -> list[Callable[[], None]]:
    """Return functions that apply the changes. Raises `LookupError`, `AttributeError` or `BadInput`."""
    return [_put(_at(root, path, find), kind, more, root, find) for path, kind, *more in changes]


class _Encoder:
    """Encodes current values so that they can be restored."""

    def __init__(self, before: Snapshot, now: Snapshot, new: set[int], by_difference: bool) -> None:
        self._before, self._now, self._new, self._by_difference = before, now, new, by_difference

    def key(self, key: Any) -> Any:
        return encoding.encode(key, self._before._name_of)

    def value(self, seen: Any, live: Any, was: Any = None) -> list[Any]:
        """Return ``["@", path]`` for an object known before, ``["+", n]`` for a count, else ``["=", data, types]``."""
        if self._by_difference and was is not None and was[:2] == seen[:2] == ("=", int):
            return ["+", seen[2] - was[2]]
        if seen[0] == "ref":
            what = seen[1]
            if what in self._before.things:
                path = self._before.things[what].path
                if None in path:
                    raise NotSerializable("what stands under a key that is no value")
                return ["@", path]
            for one in self._under(what):
                if one in self._before.things or one in self._new:
                    raise NotSerializable("an object that stands in two places")
                self._new.add(one)
        return ["=", *encoding.encode(live, self._before._name_of)]

    def _under(self, key: int) -> Iterator[int]:
        yield key
        inside = self._now.things[key].inside
        for one in inside.values() if isinstance(inside, dict) else inside if isinstance(inside, list) else ():
            if isinstance(one, tuple) and one[0] == "ref":
                yield from self._under(one[1])


def _changed_keys(before: _Thing, after: _Thing, encoder: _Encoder) -> list[Any]:
    was, now, live = before.inside, after.inside, _parts_of(after.live, after.kind)
    kept = [key for key in now if key in was]
    if before.kind == _DICT and kept != [key for key in was if key in now]:
        raise NotSerializable("a dict in another order")
    given = [
        [encoder.key(key), encoder.value(one, live[key], was.get(key))]
        for key, one in now.items()
        if was.get(key) != one
    ]
    return [given, [encoder.key(key) for key in was if key not in now]]


_AT_END = "at the end"
"""Says of a list that it got longer: what others append to it before that stays."""


def _changed_items(before: _Thing, after: _Thing, encoder: _Encoder) -> list[Any]:
    was, now = before.inside, after.inside
    same = next(
        (i for i, pair in enumerate(zip(was, now, strict=False)) if pair[0] != pair[1]), min(len(was), len(now))
    )
    tail = [encoder.value(one, after.live[i]) for i, one in enumerate(now) if i >= same]
    return [same, tail, _AT_END] if same == len(was) else [same, tail]


def _changed_whole(before: _Thing, after: _Thing, encoder: _Encoder) -> list[Any]:  # noqa: ARG001 - one signature for all
    return list(after.inside)


_CHANGES: Mapping[str, Callable[[_Thing, _Thing, _Encoder], list[Any]]] = {
    _DICT: _changed_keys,
    _FIELDS: _changed_keys,
    _LIST: _changed_items,
    _ITEMS: _changed_whole,
}


def _put(live: Any, kind: str, more: list[Any], root: Any, find: encoding.Find) -> Callable[[], None]:
    def value(stored: list[Any], key: Any = None) -> Any:
        if stored[0] == "+":
            return (live[key] if kind == _DICT else getattr(live, key)) + stored[1]
        return _at(root, stored[1], find) if stored[0] == "@" else _read(stored[1:], find)

    if kind == _ITEMS:
        items = _read(more, find)
        return functools.partial(_refill, live, items)
    if kind == _LIST:
        keep, tail = more[0], [value(one) for one in more[1]]
        if _AT_END in more[2:]:
            return functools.partial(live.extend, tail)
        return functools.partial(_set_items, live, keep, tail)
    keys = [_read(key, find) for key, _ in more[0]]
    given = [(key, value(one, key)) for key, (_, one) in zip(keys, more[0], strict=True)]
    gone = [_read(key, find) for key in more[1]]
    return functools.partial(_set_keys if kind == _DICT else _set_fields, live, given, gone)


def _read(stored: Sequence[Any], find: encoding.Find) -> Any:
    return encoding.decode(stored[0], stored[1], find)


def _refill(live: Any, items: Any) -> None:
    live.clear()
    (live.update if isinstance(live, set) else live.extend)(items)


def _set_items(live: "list[Any] | collections.deque[Any]", keep: int, tail: list[Any]) -> None:
    while len(live) > keep:
        live.pop()
    live.extend(tail)


def _set_keys(live: dict[Any, Any], given: Sequence[tuple[Any, Any]], gone: Sequence[Any]) -> None:
    for key in gone:
        live.pop(key, None)
    live.update(given)


def _set_fields(live: Any, given: Sequence[tuple[str, Any]], gone: Sequence[str]) -> None:
    for name in gone:
        object.__delattr__(live, name)
    for name, one in given:
        object.__setattr__(live, name, one)  # as a copy is made: frozen or not


def _at(root: Any, path: Sequence[Any], find: encoding.Find) -> Any:
    live = root
    for step in path:
        key = _read(step, find) if isinstance(step, list) else step
        live = live[key] if isinstance(live, dict | list | tuple | collections.deque) else getattr(live, key)
    return live


def _kind_of(value: Any) -> str:
    """The kind of container; "" for a value."""
    if isinstance(value, dict):
        return _DICT
    if type(value) in (list, collections.deque):
        return _LIST
    if isinstance(value, tuple):
        return "" if _PLAIN.issuperset(map(type, value)) else _TUPLE
    if type(value) in _WHOLE:
        return _ITEMS
    return _FIELDS if is_own(value) and _is_made_of_fields(value) else ""


def _is_made_of_fields(value: Any) -> bool:
    """Whether its fields are its whole state, and it does not customize copying."""
    bases = type(value).__mro__[:-1]
    says = any("__reduce__" in vars(one) or "__reduce_ex__" in vars(one) for one in bases)
    return isinstance(value, BaseModel) or (not says and (hasattr(value, "__dict__") or hasattr(value, "__slots__")))


def is_own(value: Any) -> bool:
    """Whether its class is the author's, and not one of the standard library or an installed package."""
    return not isinstance(value, type) and is_own_class(type(value))


def is_own_class(of: type) -> bool:
    """Whether a class is the author's, and not one of the standard library or an installed package."""
    if of.__module__ == "__main__":
        return True
    file = str(getattr(sys.modules.get(of.__module__), "__file__", None) or "")
    return bool(file) and not file.startswith(_INSTALLED) and of.__module__.partition(".")[0] != "runner"


def _parts_of(value: Any, kind: str) -> Any:
    if kind != _FIELDS:
        return value
    fields = dict(getattr(value, "__dict__", {}))
    if isinstance(value, BaseModel):
        fields |= {name: getattr(value, name) for name in _PYDANTIC}
    for of in type(value).__mro__:
        slots = vars(of).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and not name.startswith("__pydantic") and hasattr(value, name):
                fields[name] = getattr(value, name)
    cached = [name for name in fields if isinstance(getattr(type(value), name, None), functools.cached_property)]
    return {name: one for name, one in fields.items() if name not in cached}


class _Printer(pickle.Pickler):
    """Passes over what is seen by itself: the object whose method a handle holds."""

    def __init__(self, to: io.BytesIO, seen: Mapping[int, _Thing]) -> None:
        super().__init__(to)
        self._seen = seen

    def persistent_id(self, value: Any) -> int | None:
        """Return a name for what is seen by itself."""
        found = self._seen.get(id(value))
        return id(value) if found is not None and found.kind != _HANDLE else None


def _printed(handle: Any, seen: Mapping[int, _Thing]) -> bytes:
    """A fingerprint of a handle's contents; empty for one that cannot be copied, such as a client or a lock."""
    printed = io.BytesIO()
    try:
        _Printer(printed, seen).dump(handle)
    except Exception:
        return b""
    return printed.getvalue()
