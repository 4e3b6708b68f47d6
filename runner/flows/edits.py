"""Edits of a method's output by a person, and the resulting record. Pure.

With the labels of ``@human_feedback`` an edit replaces the chosen label; else the output on which the person commented.
The rest of the record, from which the code restores the value, is adapted to the edit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from runner.core import output as outputs
from runner.core.errors import BadInput
from runner.core.plan.branching import alike


class Given(NamedTuple):
    """A method's output as recorded: text, JSON if there is more to it, and the flow's part of the record."""

    raw: str
    json: Any
    part: Mapping[str, Any]


def replaced(before: Given) -> tuple[str, bool]:
    """Return the text that an edit replaces, and whether the edit has to be JSON."""
    value = before.part["signal"] if _is_chosen(before) else _value(before)
    raw, data = outputs.from_value(value)
    return raw, not isinstance(value, str | None) or data is not None


def edited(task: str, before: Given, edit: Any, labels: Sequence[str] = ()) -> Given:
    """Return the record with the edit in it. ``labels`` are those that a person chooses from. Raises `BadInput`."""
    if _is_chosen(before):
        return _chosen(task, before, edit, labels)
    was = _value(before)
    value = outputs.from_edit(task, edit, was)
    if alike(value, was):
        return before
    part = {name: one for name, one in before.part.items() if name not in ("patch", "value", "models")}
    if "feedback" in part:
        data = {**before.json, "output": value}
        return Given(before.raw, data, {**part, "feedback": {**part["feedback"], "output": data}})
    if "signal" in part:
        part["signal"] = str(value)
    if "kind" in part:
        data = _remade(before.json, value)
        return Given(str(data.get("raw", "")), data, {**part, **_models(before, data)})
    raw, data = outputs.from_value(value)
    if value is not None and not isinstance(value, str | dict | list):
        part["value"] = value
    return Given(raw, data, {**part, **_models(before, data)})


def _is_chosen(before: Given) -> bool:
    """Whether a person chose one of several labels."""
    return "signal" in before.part and "feedback" in before.part


def _value(before: Given) -> Any:
    """The value that a person edits: for the output of a crew or an agent, its text."""
    if "feedback" in before.part:
        return before.json["output"]
    if "kind" in before.part:
        return before.raw
    return before.part.get("value", before.raw if before.json is None else before.json)


def _chosen(task: str, before: Given, edit: Any, labels: Sequence[str]) -> Given:
    label = str(edit).strip()
    if labels:
        exact = [one for one in labels if one.casefold() == label.casefold()]
        if not exact:
            raise BadInput(
                f"the outcome of {task!r} is a person's choice, and {label[:60]!r} is not one of {', '.join(labels)}: "
                "edit it to one of them"
            )
        label = exact[0]
    if label == before.part["signal"]:
        return before
    feedback = before.part["feedback"]
    said = {**feedback["output"], "feedback": label, "outcome": label}
    part = {name: one for name, one in before.part.items() if name != "patch"}
    return Given(before.raw, before.json, {**part, "signal": label, "feedback": {**feedback, "output": said}})


def _remade(data: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """The output of a crew, a task or an agent, with another text or other fields."""
    if isinstance(value, dict):
        return {**data, **value}
    raw, parsed = outputs.from_value(value)
    return {**data, "raw": raw, **{name: parsed if name == "json_dict" else None for name in _MORE if name in data}}


_MORE = ("json_dict", "pydantic")
"""What was made of the text."""


def _models(before: Given, data: Any) -> dict[str, Any]:
    """The models that are still in the output, with their current values."""
    found = []
    for path, name, _ in before.part.get("models", ()):
        at = data
        try:
            for key in path:
                at = at[key]
        except (LookupError, TypeError):
            continue
        if isinstance(at, dict):
            found.append([path, name, at])
    return {"models": found} if found else {}
