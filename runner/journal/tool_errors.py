"""Errors of tools in records, and made again where their uses are replayed."""

import functools
import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

from runner.core import encoding
from runner.journal.class_names import find_class, loaded, name_of


class ToolRaised(Exception):
    """Stands for an error of a tool whose own class is no longer found: of the same name, and with the same text."""

    @classmethod
    def named(cls, name: str, text: str) -> Exception:
        """Return one of a class of this name."""
        return cast("Exception", type(name.rpartition(":")[2].rpartition(".")[2], (cls,), {})(text))


def record_of(error: Exception) -> dict[str, Any]:
    """Return its class, text and arguments, and what else it keeps, as far as these are values."""
    args = _as_args(error) if isinstance(error, ValidationError) else error.args
    record = {"raised": [name_of(type(error)), str(error), *_encoded(list(args), [])]}
    if vars(error):
        record["state"] = list(_encoded(vars(error), {}))
    return record


def from_record(record: Mapping[str, Any]) -> Exception:
    """Return the error again."""
    name, text, *more = record["raised"]  # older versions recorded no more than these two of some
    return _remade(name, text, *(more or ([], [])), *record.get("state", ({}, [])))


def _encoded(value: Any, otherwise: Any) -> tuple[Any, Any]:
    try:
        return encoding.encode(value, name_of)
    except encoding.NotSerializable:
        return otherwise, []


def _remade(name: str, text: str, args: Any, types: Any, state: Any, state_types: Any) -> Exception:
    """Return the error as it was raised, if its class is known.

    It is made of its arguments, or without its ``__init__``, which may take other ones than the error keeps.
    """
    of = loaded(name)
    ways: list[Any] = [of, functools.partial(getattr(of, "__new__", object), of)]
    for make in [_validation_error] if of is ValidationError else ways:
        try:
            error = make(*encoding.decode(args, types, find_class))
            vars(error).update(encoding.decode(state, state_types, find_class))
            if isinstance(error, Exception) and str(error) == text:
                return error
        except Exception:  # a class that is made of other things than it keeps
            continue
    return ToolRaised.named(name, text)


def _as_args(error: ValidationError) -> tuple[Any, ...]:
    return error.title, json.loads(error.json(include_url=False))


def _validation_error(title: str, about: list[dict[str, Any]]) -> ValidationError:
    raised = {"value_error": ValueError, "assertion_error": AssertionError}
    for one in about:
        if one["type"] in raised:
            one["ctx"]["error"] = raised[one["type"]](one["ctx"]["error"])
    return ValidationError.from_exception_data(title, [cast("Any", {**one, "loc": tuple(one["loc"])}) for one in about])
