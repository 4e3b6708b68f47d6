"""Formats pydantic's validation errors in one line."""

import difflib

from pydantic import BaseModel, ValidationError


def format_field_errors(error: ValidationError) -> str:
    """Format the first error: the field, the reason, and the value if it is short."""
    first, *others = error.errors(include_url=False, include_context=False)
    where = ".".join(map(str, first["loc"]))
    place = ".".join(part for part in (error.title, where) if part)
    match first["type"]:
        case "extra_forbidden":
            near = difflib.get_close_matches(where, _fields(error.title), n=1, cutoff=0.5)
            text = f"{error.title} has no field {where!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        case "missing":
            missing = [".".join(map(str, one["loc"])) for one in (first, *others) if one["type"] == "missing"]
            others = [one for one in others if one["type"] != "missing"]
            text = f"{error.title} needs {' and '.join(map(repr, missing))}"
        case "value_error":
            text = f"{place}: {first['msg'].removeprefix('Value error, ')}"
        case _:
            given = repr(first["input"])
            text = f"{place}: {first['msg']}" + (f" (got {given})" if len(given) <= 40 else "")
    return text + (f" (and {len(others)} more)" if others else "")


def _fields(model: str) -> list[str]:
    """The fields of the models with this name, which is all that an error knows of its model."""
    found, waiting = dict[str, None](), [BaseModel]
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if one.__name__ == model:
            found |= dict.fromkeys(one.model_fields)
    return list(found)
