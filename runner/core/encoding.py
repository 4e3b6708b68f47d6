"""Encodes a task's output as JSON, and decodes it with its type.

A value of a type that JSON lacks is stored as the closest one (a date as text, a set as a list), and the types are
listed separately, inner values first: ``[path, kind, more...]``. A class is known by a name for which the *code* of the
task has a class (`runner.core.class_names`): nothing is imported because of what is stored.
"""

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import ipaddress
import json
import math
import pathlib
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import AnyHttpUrl, AnyUrl, BaseModel, FileUrl, HttpUrl, TypeAdapter, ValidationError
from pydantic_core import TzInfo as _FixedOffset
from pydantic_core import to_jsonable_python

from runner.core.errors import BadInput
from runner.core.plain_text import with_article

Path = tuple[str | int, ...]
Entry = list[Any]  #: the path, the kind, and what else there is to know
Find = Callable[[str], type | None]  #: the class that the code means by a name
NameOf = Callable[[type], str | None]  #: the name by which the code knows a class

_PLAIN = frozenset({str, int, bool, type(None)})
_SCALARS = (str, int, float)
_FACTORIES: dict[str, Any] = {"list": list, "dict": dict, "set": set, "int": int, "float": float, "str": str, "": None}

_ADDRESSES: tuple[type, ...] = (
    *(ipaddress.IPv4Address, ipaddress.IPv4Network, ipaddress.IPv4Interface),
    *(ipaddress.IPv6Address, ipaddress.IPv6Network, ipaddress.IPv6Interface),
)
_LEAVES: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "datetime": (datetime.datetime, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.fromisoformat),
    "timedelta": (datetime.timedelta, TypeAdapter(datetime.timedelta).validate_python),
    "decimal": (decimal.Decimal, decimal.Decimal),
    "fraction": (fractions.Fraction, fractions.Fraction),
    "uuid": (uuid.UUID, uuid.UUID),
    "complex": (complex, complex),
    "path": (type(pathlib.Path()), pathlib.Path),
    "purepath": (type(pathlib.PurePath()), pathlib.PurePath),
    **{of.__name__.lower(): (of, of) for of in (*_ADDRESSES, AnyUrl, AnyHttpUrl, HttpUrl, FileUrl)},
}
"""Types with a text that makes the value again."""


def _deque(data: list[Any], longest: int | None = None) -> collections.deque[Any]:
    if longest is not None and len(data) > longest:
        raise ValueError(f"it holds at most {longest}")
    return collections.deque(data, longest)


_AROUND: dict[str, tuple[type, Callable[..., Any]]] = {
    "tuple": (tuple, tuple),
    "set": (set, set),
    "frozenset": (frozenset, frozenset),
    "deque": (collections.deque, _deque),
}
"""Types whose JSON is a list."""

_LEAF_KINDS = {of: kind for kind, (of, _) in _LEAVES.items()}
_AROUND_KINDS = {of: kind for kind, (of, _) in _AROUND.items()}


class NotSerializable(TypeError):
    """The value cannot be restored from JSON; the message says what it is, and what to do."""

    def __init__(
        self, what: str, remedy: str = "return text, numbers, dates, lists, sets, dicts or models of them"
    ) -> None:
        super().__init__(f"{what}, which cannot be passed to the next task unchanged: {remedy}")


def is_class_of_values(of: object) -> bool:
    """Whether instances of a class can be stored: an enumeration, a model, a dataclass, a named tuple."""
    return isinstance(of, type) and (
        issubclass(of, BaseModel | enum.Enum) or dataclasses.is_dataclass(of) or _is_named_tuple(of)
    )


def encode(value: Any, name_of: NameOf) -> tuple[Any, list[Entry]]:
    """Return the value as JSON, and the types that JSON lacks, by path. Raises `NotSerializable`."""
    entries: list[Entry] = []
    try:
        return _Encoder(name_of, entries).walk(value, ()), entries
    except RecursionError:
        raise NotSerializable("something that is nested too deeply, or contains itself") from None


def decode(data: Any, entries: Iterable[Entry], find: Find) -> Any:
    """The inverse of `encode`; does not change the JSON. Raises `BadInput` if the two do not fit."""
    whole = [_copied(data)]
    for path, kind, *more in entries:
        around, key = _parent(whole, path)
        try:
            around[key] = _made(around[key], kind, more, find)
        except BadInput:
            raise
        except Exception as error:  # a validator of the crew's may raise anything
            what = more[0] if kind == "class" else kind
            why = misfit(error) if isinstance(error, ValidationError) else error
            raise BadInput(f"there is no {what} in {json.dumps(around[key])[:60]}: {why}") from None
    return whole[0]


def types_after_edit(entries: Iterable[Entry], before: Any, after: Any) -> list[Entry]:
    """Return the type entries that still apply to data that a person edited. Raises `BadInput`.

    A type applies if JSON of the same kind is in its place; an edited value that does not fit its type is refused.
    """
    found = []
    for path, kind, *more in entries:
        try:
            was, now = _at(before, path), _at(after, path)
        except (LookupError, TypeError):
            continue
        if type(was) is not type(now):
            continue
        if kind == "keys":
            more = [[one for one in more[0] if one[0] in now]]
        elif kind in ("class", "fields") and was != now:
            kind, more = "class", more[:1]
        elif kind in _LEAVES or kind == "deque":
            more = more if was == now else more[:1]  # without the fold, which was the other's
            decode(now, [[[], kind, *more]], lambda _: None)
        found.append([path, kind, *more])
    return found


class _Encoder:
    def __init__(self, name_of: NameOf, entries: list[Entry]) -> None:
        self._name_of = name_of
        self._entries = entries

    def walk(self, value: Any, path: Path) -> Any:
        of = type(value)
        if of in _PLAIN:
            return value
        if of is float:
            return value if math.isfinite(value) else self._is(path, "float", None, repr(value))
        if of is dict:
            return self._of_dict(value, path)
        if of is list:
            return self._of_list(value, path)
        if of in _AROUND_KINDS:
            # A set has another order in each process.
            inside = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
            longest = getattr(value, "maxlen", None)
            return self._is(
                path, _AROUND_KINDS[of], self._of_list(inside, path), *([] if longest is None else [longest])
            )
        if of in _LEAF_KINDS:
            return self._leaf(value, path, _LEAF_KINDS[of])
        if of in (bytes, bytearray):
            return self._bytes(value, path, of.__name__)
        if isinstance(value, collections.Counter | collections.OrderedDict | collections.defaultdict):
            return self._of_known_dict(value, path)
        if is_class_of_values(of):
            return self._of_class(value, path)
        if isinstance(value, _SCALARS):  # of numpy's, say
            return next(self.walk(base(value), path) for base in _SCALARS if isinstance(value, base))
        raise NotSerializable(f"{_article(of)}{_where(path)}")

    def _is(self, path: Path, kind: str, data: Any, *more: Any) -> Any:
        self._entries.append([list(path), kind, *more])
        return data

    def _of_list(self, values: Iterable[Any], path: Path) -> list[Any]:
        values = list(values)
        if _PLAIN.issuperset(map(type, values)):
            return values
        return [self.walk(one, (*path, i)) for i, one in enumerate(values)]

    def _of_dict(self, values: Mapping[Any, Any], path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        other: list[Any] = []
        for key, one in values.items():
            name = key
            if type(key) is not str:
                inner, entries = encode(key, self._name_of)
                [name] = _shown({key: None})
                other.append([name, inner, entries])
            if name in found:
                raise NotSerializable(
                    f"a dict with the keys {key!r} and {name!r}, which are the same key in JSON{_where(path)}"
                )
            found[name] = one if type(one) in _PLAIN else self.walk(one, (*path, name))
        return self._is(path, "keys", found, other) if other else found

    def _of_known_dict(self, value: Any, path: Path) -> Any:
        of = type(value)
        factory = getattr(value, "default_factory", None)
        made_by = next((name for name, known in _FACTORIES.items() if known is factory), None)
        if of.__module__ != "collections" or made_by is None:
            raise NotSerializable(f"{_article(of)}{_where(path)}")
        return self._is(path, of.__name__, self._of_dict(value, path), made_by)

    def _leaf(self, value: Any, path: Path, kind: str) -> Any:
        shown = str(value) if isinstance(value, fractions.Fraction | complex) else to_jsonable_python(value)
        zone = getattr(getattr(value, "tzinfo", None), "key", None)
        more: list[Any] = [zone] if zone else []
        if getattr(value, "fold", 0):  # the second time in a night that an hour comes twice
            more = [zone or "", value.fold]
        if called := _own_name(getattr(value, "tzinfo", None)):
            more = ["", getattr(value, "fold", 0), called]
        if not same(_made(shown, kind, more, lambda _: None), value):
            raise NotSerializable(f"{_article(type(value))}{_where(path)} that its text {shown!r} does not restore")
        return self._is(path, kind, shown, *more)

    def _bytes(self, value: bytes | bytearray, path: Path, kind: str) -> str:
        try:
            return str(self._is(path, kind, bytes(value).decode(), "utf-8"))
        except UnicodeDecodeError:
            return str(self._is(path, kind, base64.b64encode(value).decode(), "base64"))

    def _of_class(self, value: Any, path: Path) -> Any:
        of: Any = type(value)
        name = self._name_of(of)
        if name is None:
            raise NotSerializable(
                f"{_article(of)}{_where(path)}, a class that is not in its file",
                f"import it at the top, or annotate the function: -> {of.__name__}",
            )
        if isinstance(value, enum.Enum):
            return self._of_enum(value, path, name)
        if isinstance(value, BaseModel):
            return self._of_model(value, path, name)
        fields: Any = value
        if not isinstance(value, tuple):
            names = [field.name for field in dataclasses.fields(value)]
            fields = {name: getattr(value, name) for name in names if hasattr(value, name)}
        more_than_that = sorted(getattr(value, "__dict__", {}).keys() - set(fields if fields is not value else ()))
        if more_than_that:
            raise NotSerializable(
                f"{_article(of)}{_where(path)} with {more_than_that[0]!r}, which is not one of its fields"
            )
        try:
            again = same(_instance(of, fields, []), value)
        except (KeyError, TypeError):  # it lacks a field, or is a dict, a text or an exception as well
            again = False
        if not again:
            raise NotSerializable(f"{_article(of)}{_where(path)} that its fields do not restore")
        data = self._of_list(value, path) if fields is value else self._of_dict(fields, path)
        return self._is(path, "class", data, name)

    def _of_enum(self, value: enum.Enum, path: Path, name: str) -> Any:
        data = _shown(value.value)
        try:
            by_value = type(value)(data) is value
        except ValueError:
            by_value = False
        return self._is(path, "class", data, name, *([] if by_value else [value.name]))

    def _of_model(self, value: BaseModel, path: Path, name: str) -> Any:
        """Encode a model by its own serialization if that restores it, else with separate data, or by its fields."""
        data: Any = None
        try:
            data = value.model_dump(mode="json")
            ways: list[Callable[[], list[Any]]] = [
                lambda: [],
                lambda: [None, sorted(value.model_fields_set)],
                lambda: [value.model_dump(mode="json", exclude_unset=True)],
                lambda: [value.model_dump(mode="json", by_alias=True, round_trip=True)],
                lambda: [value.model_dump(mode="json", by_alias=True, round_trip=True, exclude_unset=True)],
            ]
        except Exception:  # bytes that are no text, or a serializer of the crew's, which may raise anything
            ways = []
        for way in ways:
            try:
                more = way()
                if same(_instance(type(value), data, more), value):
                    return self._is(path, "class", data, name, *more)
            except Exception:  # a validator of the crew's may raise anything
                continue
        return self._of_fields(value, path, name, data)

    def _of_fields(self, value: BaseModel, path: Path, name: str, data: Any) -> Any:
        state = _parts_of(value)
        if state is None:
            raise NotSerializable(
                f"{_article(type(value))}{_where(path)} with an attribute that is not one of its fields"
            )
        parts = [values if values is None else self._apart(values, path) for values in state]
        shown = data if data is not None or parts[0] is None else parts[0][0]
        return self._is(path, "fields", shown, name, sorted(value.model_fields_set), *parts)

    def _apart(self, values: Mapping[str, Any], path: Path) -> list[Any]:
        """Encode data separately, with type entries of its own."""
        entries: list[Entry] = []
        data = _Encoder(self._name_of, entries)._of_dict(values, path)
        return [data, [[place[len(path) :], *more] for place, *more in entries]]


def _made(data: Any, kind: str, more: list[Any], find: Find) -> Any:
    if kind in _LEAVES:
        return _in_zone(_LEAVES[kind][1](data), *more)
    if kind in _AROUND:
        return _AROUND[kind][1](data, *more)
    if kind == "keys":
        keys = {name: decode(inner, entries, find) for name, inner, entries in more[0]}
        return {keys.get(name, name): one for name, one in data.items()}
    if kind == "class":
        of = find(more[0])
        if of is None or not is_class_of_values(of):
            raise BadInput(f"it holds {with_article(more[0])}, which its task's code no longer names")
        return _instance(of, data, more[1:])
    if kind == "fields":
        of = find(more[0])
        if of is None or not issubclass(of, BaseModel):
            raise BadInput(f"it holds {with_article(more[0])}, which its task's code no longer names")
        return _of_parts(of, more[1], [part and decode(part[0], part[1], find) for part in more[2:]])
    if kind in ("bytes", "bytearray"):
        found = data.encode() if more[0] == "utf-8" else base64.b64decode(data, validate=True)
        return bytearray(found) if kind == "bytearray" else found
    if kind == "float":
        return float(more[0])
    if kind == "defaultdict":
        return collections.defaultdict(_FACTORIES[more[0]], data)
    return {"Counter": collections.Counter, "OrderedDict": collections.OrderedDict}[kind](data)


def _instance(of: Any, data: Any, more: list[Any]) -> Any:
    if issubclass(of, enum.Enum):
        return of[more[0]] if more else of(data)
    if issubclass(of, BaseModel):
        found = of.model_validate(data if not more or (more[0] is None and more[1:]) else more[0])
        if more[1:]:
            object.__setattr__(found, "__pydantic_fields_set__", set(more[1]))
        return found
    if _is_named_tuple(of):
        return of._make(data)
    made: Any = object.__new__(of)  # as a copy is made: what its __init__ makes of its arguments is in the fields
    for field in dataclasses.fields(of):
        object.__setattr__(made, field.name, data[field.name])
    return made


def _of_parts(of: type[BaseModel], given: list[str], parts: list[Any]) -> BaseModel:
    """Build a model as a copy is made: without validation, and with defaults still counting as unset."""
    fields, extra, private = parts
    if not fields.keys() <= of.model_fields.keys():
        raise ValueError("it has other fields")
    made = of.__new__(of)
    state = {"__dict__": fields, "__pydantic_fields_set__": set(given), "__pydantic_extra__": extra}
    for name, one in {**state, "__pydantic_private__": private}.items():
        object.__setattr__(made, name, one)
    return made


def _parts_of(model: BaseModel) -> tuple[Any, Any, Any] | None:
    """The fields, extra fields and private attributes of a model; None if they are not all of it."""
    of, inside = type(model), vars(model)
    kept = [name for name in inside if isinstance(getattr(of, name, None), functools.cached_property)]
    fields = {name: one for name, one in inside.items() if name not in kept}
    if not fields.keys() <= of.model_fields.keys():
        return None
    return fields, model.__pydantic_extra__, model.__pydantic_private__


def _shown(value: Any) -> Any:
    """JSON for display and edits; the data that restores the value is stored separately."""
    try:
        return to_jsonable_python(value, fallback=repr)
    except ValueError:  # bytes that are no text
        return to_jsonable_python(value, fallback=repr, bytes_mode="base64")


def misfit(error: ValidationError) -> str:
    """Format what does not fit, field by field, in one line."""
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg']}" for one in error.errors()[:3])


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same types, recursively."""
    if type(one) is not type(other):
        return False
    if isinstance(one, decimal.Decimal):
        return str(one) == str(other)
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict):
        factories = [getattr(each, "default_factory", None) for each in (one, other)]
        pairs = zip(one.items(), other.items(), strict=True)  # in this order
        return len(one) == len(other) and factories[0] is factories[1] and all(same(*pair) for pair in pairs)
    if isinstance(one, datetime.datetime | datetime.time):
        clocks = [each.replace(tzinfo=None) for each in (one, other)]
        return clocks[0] == clocks[1] and one.fold == other.fold and _zone(one.tzinfo) == _zone(other.tzinfo)
    if isinstance(one, set | frozenset):
        return one == other and {(type(each), each) for each in one} == {(type(each), each) for each in other}
    if isinstance(one, collections.deque) and one.maxlen != other.maxlen:
        return False
    if isinstance(one, list | tuple | collections.deque):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, BaseModel):
        parts, others = _parts_of(one), _parts_of(other)
        if parts is None or others is None or one.model_fields_set != other.model_fields_set:
            return False
        return all(map(same, map(_by_name, parts), map(_by_name, others)))
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return bool(one == other)


def _by_name(part: Mapping[str, Any] | None) -> list[tuple[str, Any]] | None:
    return None if part is None else sorted(part.items(), key=lambda item: item[0])


def _zone(zone: datetime.tzinfo | None) -> Any:
    """The identity of a time zone. Pydantic's fixed offset equals the standard library's."""
    if isinstance(zone, datetime.timezone | _FixedOffset):
        return zone.utcoffset(None), _own_name(zone)
    key = getattr(zone, "key", None)
    return zone and (type(zone), key if isinstance(key, str) else id(zone))


def _own_name(zone: datetime.tzinfo | None) -> str:
    """The name that was given to a fixed offset, as by `datetime.astimezone`."""
    if not isinstance(zone, datetime.timezone):
        return ""
    name = zone.tzname(None)
    return name if name != datetime.timezone(zone.utcoffset(None)).tzname(None) else ""


def _is_named_tuple(of: type) -> bool:
    return issubclass(of, tuple) and hasattr(of, "_fields") and hasattr(of, "_make")


def _in_zone(made: Any, zone: str = "", fold: int = 0, called: str = "") -> Any:
    if zone:
        there = zoneinfo.ZoneInfo(zone)
        made = made.astimezone(there) if isinstance(made, datetime.datetime) else made.replace(tzinfo=there)
    if called:
        made = made.replace(tzinfo=datetime.timezone(made.utcoffset(), called))
    return made.replace(fold=fold) if fold else made


def _copied(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copied(one) for key, one in data.items()}
    return [_copied(one) for one in data] if isinstance(data, list) else data


def _parent(whole: list[Any], path: Iterable[Any]) -> tuple[Any, Any]:
    """The container at a path, and the last key."""
    around: Any = whole
    key: Any = 0
    try:
        for step in path:
            around, key = around[key], step
        around[key]
    except (LookupError, TypeError):
        raise BadInput(f"there is no longer anything at {_dotted(path)}") from None
    return around, key


def _at(data: Any, path: Iterable[Any]) -> Any:
    for step in path:
        data = data[step]
    return data


def _dotted(path: Iterable[Any]) -> str:
    return ".".join(one if one.isprintable() else repr(one)[1:-1] for one in map(str, path))


def _where(path: Path) -> str:
    return f" at {_dotted(path)}" if path else ""


def _article(of: type) -> str:
    return with_article(of.__qualname__)
