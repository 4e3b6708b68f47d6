"""The fields of the author's objects that each process makes for itself (with callbacks, tools), as records hold them.

A field whose value is JSON is stored as it is; one of another type with its types (`runner.core.encoding`). What cannot
be stored stays in its process: a client, a lock, a function, an open file, a secret. Objects that a framework keeps and
lends to its tools are changed in place instead (`context_state.py`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

from runner.core import encoding
from runner.core.encoding import NotSerializable
from runner.core.errors import BadInput
from runner.journal.class_names import find_class, loaded, name_of

State = dict[str, dict[str, Any]]
"""The stored values by object and field."""

_OLDER = "model of pydantic"
"""Where older versions stored the name of a model's class, which is in the module of the object's."""

_NOT_LOOKED_AT = (Iterator, SecretStr, SecretBytes)
"""What JSON has of these would take from them (a generator, a file that is open), or is only asterisks."""


class Handle(NamedTuple):
    """In place of a value that cannot be stored: equal while the field holds the same object."""

    id: int


class ObjectState:
    """Some objects, each by a name that is the same in every process; ``fields_of`` returns the fields of one.

    If ``exactly``, a value that would not come back as it was is not stored; else what JSON has of it is.
    """

    def __init__(
        self,
        objects: Mapping[str, Any],
        fields_of: Callable[[Any], Mapping[str, Any]] = vars,
        *,
        exactly: bool = False,
    ) -> None:
        self.objects, self._fields_of, self._exactly = objects, fields_of, exactly

    def seen(self) -> State:
        """Return all fields as they are now, to compare with."""
        return {
            name: {field: stored(value, exactly=self._exactly) for field, value in self._fields_of(one).items()}
            for name, one in self.objects.items()
        }

    def changed(self, before: Mapping[str, Mapping[str, Any]]) -> tuple[State, list[tuple[str, str]]]:
        """Return the fields that differ from ``before``, and the object and name of those that cannot be stored."""
        state: State = {}
        lost = []
        for name, fields in self.seen().items():
            for field, value in fields.items():
                if field in before[name] and before[name][field] == value:
                    continue
                if isinstance(value, Handle):
                    lost.append((name, field))
                else:
                    state.setdefault(name, {})[field] = value
        return state, lost

    def put(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Set the stored fields of those objects that are here."""
        for name in state.keys() & self.objects.keys():
            one = self.objects[name]
            private = getattr(one, "__private_attributes__", ())  # also one that is not set yet
            for field, value in state[name].items():
                (one.__pydantic_private__ if field in private else vars(one))[field] = restored(value, one)


def stored(value: Any, *, exactly: bool = False) -> Any:
    """Return a value as it is stored, or its `Handle`. ``exactly``: see `ObjectState`."""
    try:
        data, types = encoding.encode(value, _name_of)
    except NotSerializable:
        return Handle(id(value)) if exactly or callable(value) or isinstance(value, _NOT_LOOKED_AT) else _closest(value)
    except Exception:  # whatever its own code says to being looked at
        return Handle(id(value))
    is_like_one = isinstance(data, dict) and ("types" in data or _OLDER in data)
    return {"value": data, "types": types} if types or is_like_one else data


def _closest(value: Any) -> Any:
    """What JSON has of a value that it does not restore."""
    try:
        data = to_jsonable_python(value, inf_nan_mode="null")
    except Exception:  # likewise
        return Handle(id(value))
    return {"value": data, "types": [[[], "class", name_of(type(value))]]} if isinstance(value, BaseModel) else data


def restored(value: Any, owner: Any) -> Any:
    """Return a stored value of a field of ``owner``; its JSON where its class is gone, or does not take it any more."""
    match value:
        case {"value": data, "types": list(types)}:
            pass
        case {"model of pydantic": str(name), "fields": data}:
            types = [[[], "class", f"{type(owner).__module__}:{name}"]]
        case _:
            return value
    try:
        return encoding.decode(data, types, find_class)
    except BadInput:
        return data


def _name_of(of: type) -> str | None:
    """The name of a class that is found by it."""
    name = name_of(of)
    return name if loaded(name) is of else None
