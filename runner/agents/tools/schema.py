"""Argument schemas of tools: pydantic models, given or derived from a function's signature."""

import inspect
import json
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from runner.core.annotations import signature_of


class BadArguments(ValueError):
    """A model's arguments for a tool do not fit; the message is for the model."""


def schema_from(name: str, function: Callable[..., Any]) -> type[BaseModel]:
    """Return a model of a function's parameters. Raises `ValueError` for parameters that cannot be passed by name."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:  # an annotation that does not resolve says nothing
        hints = {}
    fields: dict[str, Any] = {}
    anything = False
    for parameter in signature_of(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            anything = True
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY) or parameter.name[0] == "_":
            if parameter.kind is parameter.VAR_POSITIONAL:
                continue
            raise ValueError(f"the argument {parameter.name!r} of the tool {name!r} cannot be given by name")
        else:
            annotation = hints.get(parameter.name, Any)
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (annotation, default)
    config = ConfigDict(extra="allow" if anything else "ignore", arbitrary_types_allowed=True, protected_namespaces=())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an argument called "copy" is none of pydantic's business
        return create_model("".join(name.split()).title() or "Arguments", __config__=config, **fields)


def schema_of(tool: Any, name: str) -> dict[str, Any]:
    """Return the description of a tool for models."""
    parameters = tool.args_schema.model_json_schema()
    plain = _untitled({key: value for key, value in parameters.items() if key != "description"})
    plain.setdefault("properties", {})
    return {
        "type": "function",
        "function": {"name": name, "description": inspect.cleandoc(tool.description), "parameters": plain},
    }


def arguments_of(tool: Any, given: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Convert a model's arguments for the tool. Raises `BadArguments` with what is wrong, in one line."""
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}", strict=False)
        except ValueError as error:
            raise BadArguments(f"the arguments are not JSON: {error}") from None
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise BadArguments("the arguments must be a JSON object with a value for each name")
    try:
        return dict(tool.args_schema.model_validate(dict(given)).model_dump())
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg']}"
            for one in error.errors(include_url=False)[:5]
        )
        raise BadArguments(f"the arguments do not fit: {wrong}") from None


def _untitled(schema: Any) -> Any:
    """Remove pydantic's titles from a JSON schema: each costs tokens in every request."""
    if isinstance(schema, list):
        return [_untitled(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _untitled(one) for name, one in value.items()}
        if key in ("properties", "$defs") and isinstance(value, dict)
        else _untitled(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
