"""``initial_state`` as data: a dict unchanged, a model as its values, a class as its JSON schema.

The code provides the class again. If there is no code, a class is made from the schema: fields, types, defaults.
"""

from collections.abc import Mapping
from typing import Any, Literal, Union

from pydantic import BaseModel, Field, create_model
from pydantic_core import to_jsonable_python

from runner.core.compatibility import STATE_CLASS_KEY

INITIAL_STATE_CLASS_MARKER = STATE_CLASS_KEY
"""The key under which a class stands as its schema."""

_PLAIN: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
}


def describe(initial: Any) -> Any:
    """``initial_state`` as JSON; None for what says nothing."""
    if isinstance(initial, type):
        return {INITIAL_STATE_CLASS_MARKER: initial.model_json_schema()} if issubclass(initial, BaseModel) else None
    if isinstance(initial, BaseModel):
        return initial.model_dump(mode="json", fallback=str, warnings=False)
    return to_jsonable_python(initial, fallback=str)


def rebuild(described: Any) -> Any:
    """The inverse of `describe`, as far as data goes."""
    if isinstance(described, Mapping) and INITIAL_STATE_CLASS_MARKER in described:
        return model_of(described[INITIAL_STATE_CLASS_MARKER])
    return described


def model_of(schema: Mapping[str, Any]) -> type[BaseModel]:
    """A model with the fields of a JSON schema."""
    shared = schema.get("$defs", {})
    top = shared.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    return _model({"title": schema.get("title"), **top}, shared, {})


def _model(schema: Mapping[str, Any], shared: Mapping[str, Any], made: dict[str, Any]) -> type[BaseModel]:
    required = set(schema.get("required", ()))
    fields: dict[str, Any] = {}
    for name, one in schema.get("properties", {}).items():
        kind = _type(one, shared, made)
        if name in required:
            fields[name] = (kind, ...)
        elif "default" in one:
            fields[name] = (kind, Field(default_factory=lambda value=one["default"]: value))
        else:  # made by a factory that the schema does not tell
            fields[name] = (kind | None if isinstance(kind, type) else Union[kind, None], None)  # noqa: UP007 - a special form has no `|`
    return create_model(str(schema.get("title") or "State"), **fields)


def _type(schema: Mapping[str, Any], shared: Mapping[str, Any], made: dict[str, Any]) -> Any:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        if name not in made:
            made[name] = Any  # what refers to itself is not followed for ever
            made[name] = _type(shared.get(name, {}), shared, made)
        return made[name]
    if schema.get("enum"):
        return Literal[tuple(schema["enum"])]
    if "const" in schema:
        return Literal[schema["const"]]
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return Union[tuple(_type(choice, shared, made) for choice in choices)]  # noqa: UP007 - of as many as there are
    kind = schema.get("type")
    if kind == "array":
        return list[_type(schema.get("items", {}), shared, made)]  # type: ignore[misc]  # a type that is known at run time
    if kind == "object":
        return _model(schema, shared, made) if schema.get("properties") else dict[str, Any]
    return _PLAIN.get(str(kind), Any)
