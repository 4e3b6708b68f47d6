"""Converts methods' outputs to JSON and back. Types come from return annotations, never from stored data."""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from runner.core.output import TaskOutput
from runner.core.plain_text import of_class, with_article
from runner.crews.crew import CrewOutput
from runner.flows.feedback import HumanFeedbackResult

#: Classes of our own that come back as themselves.
_OURS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "crew_output": CrewOutput.model_validate,
    "task_output": TaskOutput.model_validate,
    "human_feedback": lambda data: HumanFeedbackResult(
        **{**data, "timestamp": datetime.fromisoformat(data["timestamp"])}
    ),
}
_KINDS: dict[type, str] = {
    CrewOutput: "crew_output",
    TaskOutput: "task_output",
    HumanFeedbackResult: "human_feedback",
}


def known(kind: str, of: type, make: Callable[[Mapping[str, Any]], Any]) -> None:
    """Values of that class come back as themselves, too: made of their JSON."""
    _KINDS[of], _OURS[kind] = kind, make


class Lost:
    """In place of an output that no checkpoint could hold: whoever needs it is told so."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<{with_article(self.kind)} that was not JSON and is not in the checkpoint>"


def encode(value: Any) -> dict[str, Any]:
    """The value as ``{"output": JSON}``, with its kind where it is one of ours. Raises TypeError if it is no JSON."""
    kind = _KINDS.get(type(value))
    plain = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)} if kind == "human_feedback" else value
    try:
        data = to_jsonable_python(plain.value if isinstance(plain, Enum) else plain)
    except Exception:  # a serializer may raise anything
        raise TypeError(f"{of_class(value)} is not JSON") from None
    return {"output": data, "kind": kind} if kind else {"output": data}


def encode_gently(value: Any) -> dict[str, Any]:
    """`encode`; of what is no JSON, only its type's name."""
    try:
        return encode(value)
    except TypeError:
        return {"output": None, "lost": value.kind if isinstance(value, Lost) else type(value).__qualname__}


def decode(stored: Mapping[str, Any], function: Callable[..., Any] | None) -> Any:
    """The inverse of `encode`, typed by the method's return annotation."""
    if "lost" in stored:
        return Lost(str(stored["lost"]))
    data = stored.get("output")
    make = _OURS.get(str(stored.get("kind")))
    if make is not None:
        return make(data or {})
    adapter = _adapter(function)
    if adapter is None:
        return data
    try:
        return adapter.validate_python(data)
    except ValidationError:  # the annotation was wrong, or is newer than the value
        return data


def returned(function: Callable[..., Any] | None) -> Any:
    """The return annotation of a function; None where there is none, or none that resolves."""
    try:
        return typing.get_type_hints(function).get("return") if function is not None else None
    except Exception:  # a name that is nowhere says nothing
        return None


def _adapter(function: Callable[..., Any] | None) -> TypeAdapter[Any] | None:
    found = returned(function)
    try:
        return None if found is None or found is Any else TypeAdapter(found)
    except Exception:  # nor does one that pydantic cannot use
        return None
