"""What a person's edit makes of what a flow's method gave."""

from typing import Any

import pytest

from runner.core.errors import BadInput
from runner.flows.edits import Given, edited, replaced

CREW = {"raw": "old", "json_dict": {"a": 1}, "tasks_output": [], "token_usage": {}}


def said(output: Any, outcome: str | None = None) -> dict[str, Any]:
    data = {"output": output, "feedback": "fine", "outcome": outcome, "method_name": "m"}
    return {"output": data, "kind": "human_feedback"}


def chosen(outcome: str) -> Given:
    return Given("a draft", None, {"signal": outcome, "feedback": said("a draft", outcome), "patch": {"s": 1}})


def worded(output: Any) -> Given:
    told = said(output)
    return Given("fine", told["output"], {"feedback": told, "kind": "human_feedback", "patch": {"s": 1}})


def test_with_labels_an_edit_is_another_choice():
    now = edited("m", chosen("rejected"), " Approved ", ("approved", "rejected"))
    assert (now.raw, now.json) == ("a draft", None)
    told = now.part["feedback"]["output"]
    assert (now.part["signal"], told["outcome"], told["feedback"]) == ("approved", "approved", "approved")
    assert (told["output"], now.part["feedback"]["kind"], "patch" in now.part) == ("a draft", "human_feedback", False)


@pytest.mark.parametrize("edit", ["", "approve", "a better draft", 3, {"output": "x"}])
def test_what_is_no_label_is_refused_with_those_that_are(edit: Any):
    with pytest.raises(BadInput, match="is not one of approved, rejected"):
        edited("m", chosen("rejected"), edit, ("approved", "rejected"))


def test_without_labels_an_edit_is_another_output_of_which_the_same_was_said():
    now = edited("m", worded("a draft"), "a better draft")
    assert now.raw == "fine"
    assert now.json == {**worded("").json, "output": "a better draft"}
    assert now.part == {"feedback": {"output": now.json, "kind": "human_feedback"}, "kind": "human_feedback"}


@pytest.mark.parametrize(
    ("before", "edit", "value"),
    [
        (Given("5", None, {"value": 5}), "7", 7),
        (Given("true", None, {"value": True}), "false", False),
        (Given("", None, {"value": None}), "words", "words"),
        (Given("[1]", [1], {"patch": {}}), "[2]", [2]),
        (Given("x", None, {"signal": "x"}), "y", "y"),
        (worded({"a": 1}), '{"a": 2}', {"a": 2}),
    ],
)
def test_an_edit_is_of_the_kind_of_what_was_there(before: Given, edit: str, value: Any):
    now = edited("m", before, edit)
    found = now.json["output"] if "feedback" in now.part else now.part.get("value", now.json or now.raw)
    assert found == value
    assert type(found) is type(value)
    assert now.part.get("signal") == (value if "signal" in before.part else None)
    assert edited("m", now, replaced(now)[0]) is now, "what is shown to be edited changes nothing by itself"


@pytest.mark.parametrize(
    ("before", "edit", "why"),
    [
        (Given("5", None, {"value": 5}), "seven", "is JSON, but the edit is not"),
        (Given("5", None, {"value": 5}), "true", "is a number in JSON, but the edit is not"),
        (worded({"a": 1}), "[]", "is an object in JSON, but the edit is not"),
    ],
)
def test_another_kind_is_refused(before: Given, edit: str, why: str):
    with pytest.raises(BadInput, match=why):
        edited("m", before, edit)


def test_what_a_crew_gave_is_edited_as_its_text():
    now = edited("m", Given("old", CREW, {"kind": "crew_output"}), "new")
    assert (now.raw, now.json["raw"], now.json["json_dict"], now.part) == ("new", "new", None, {"kind": "crew_output"})
    assert edited("m", Given("old", CREW, {"kind": "crew_output"}), {"raw": "r"}).json == {**CREW, "raw": "r"}


def test_models_stay_where_they_still_are():
    part = {"models": [[[], "a:A", {"x": 1}], [["in"], "a:B", {"y": 1}], [["gone"], "a:B", {}]]}
    before = Given("{}", {"x": 1, "in": {"y": 1}, "gone": {}}, part)
    now = edited("m", before, '{"x": 2, "in": {"y": 2}}')
    assert now.part["models"] == [[[], "a:A", {"x": 2, "in": {"y": 2}}], [["in"], "a:B", {"y": 2}]]


@pytest.mark.parametrize("before", [chosen("approved"), worded("a draft"), worded([1]), Given("x", None, {})])
def test_an_edit_that_changes_nothing_is_none(before: Given):
    assert edited("m", before, replaced(before)[0], ("approved", "rejected")) is before
