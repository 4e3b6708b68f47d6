"""Structured output: asks a model for a pydantic model and parses its answer."""

import json
import re
from typing import Any

from pydantic import BaseModel, ValidationError

_FENCED = re.compile(r"```(?:json|JSON)?\s*\n(.*?)```", re.DOTALL)


def wanted(model: type[BaseModel]) -> str:
    """Return the instruction that describes the form of the answer."""
    schema = json.dumps(model.model_json_schema(), ensure_ascii=False, separators=(",", ":"))
    return f"Give the final answer as JSON that fits this schema, and nothing around it:\n{schema}"


def read(text: str, model: type[BaseModel]) -> tuple[Any, str | None]:
    """Parse the answer as that model; return it, or what is wrong. JSON may be in a fence, or amid other text."""
    why = ""
    for found in _candidates(text):
        try:
            return model.model_validate_json(found), None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            why = why or f"it is no {model.__name__}: {where}: {first['msg']}"
    return None, why


def _candidates(text: str) -> list[str]:
    found = [text.strip(), *(part.strip() for part in _FENCED.findall(text))]
    for opens, closes in ("{}", "[]"):
        start, end = text.find(opens), text.rfind(closes)
        if 0 <= start < end:
            found.append(text[start : end + 1])
    # The error is about the last one that looks like JSON at all.
    unique = list(dict.fromkeys(found))
    looks = [one for one in unique if one[:1] in ("{", "[")]
    return looks or unique
