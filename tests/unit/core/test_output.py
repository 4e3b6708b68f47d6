"""Outputs of tasks: what they say of a value, and what a person's edit makes of one."""

from typing import Any

import pytest
from pydantic import BaseModel

from runner.core import output, stored_output
from runner.core.class_names import Names
from runner.core.errors import BadInput, TaskError
from runner.core.output import TaskOutput


class Report(BaseModel):
    pages: int


NAMES = Names([], [Report])


def stored(value: Any) -> dict[str, Any]:
    return output.record(output.typed_output("t", value, lambda: NAMES))


def edited(value: Any, edit: Any) -> Any:
    return output.from_record(output.revised("t", stored(value), edit), NAMES).value


@pytest.mark.parametrize(
    ("value", "raw", "json"),
    [
        (None, "", None),
        ("text", "text", None),
        (b"k\xc3\xa4se", "käse", None),
        (3, "3", None),
        (True, "true", None),
        ([1, "ä"], '[1, "ä"]', [1, "ä"]),
        (Report(pages=2), '{"pages":2}', {"pages": 2}),
        (TaskOutput(raw="r", json_dict={"a": 1}), "r", {"a": 1}),
    ],
)
def test_a_value_is_text_and_json(value: Any, raw: str, json: Any) -> None:
    assert output.from_value(value) == (raw, json)
    again = stored_output.load(output.stored(raw, json))
    assert again == (raw, json)


@pytest.mark.parametrize(
    ("value", "says"),
    [(b"\xff", "return base64.b64encode"), (object(), "a task returned an object, which is not JSON: return text")],
)
def test_what_is_neither_is_refused_with_what_to_return(value: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        output.from_value(value)


def test_what_cannot_come_back_fails_its_task() -> None:
    with pytest.raises(TaskError, match=r"^task 't' returned "):
        output.typed_output("t", object(), lambda: NAMES)


def test_an_output_is_asked_by_key_only_where_it_is_json() -> None:
    found = TaskOutput(name="t", raw='{"a": 1}', json_dict={"a": 1})
    assert (found["a"], found.to_dict(), str(found)) == (1, {"a": 1}, '{"a": 1}')
    text = TaskOutput(name="t", raw="text")
    assert (text.to_dict(), text.value) == ({}, "text")
    with pytest.raises(KeyError, match=r"task 't' returned text, not a dict: use .raw"):
        text["a"]


@pytest.mark.parametrize(
    ("value", "edit", "becomes"),
    [
        ("before", "after", "after"),
        ({"a": 1}, '{"a": 2}', {"a": 2}),
        ({"a": 1}, {"a": 3}, {"a": 3}),
        ([1], "[2, 3]", [2, 3]),
        (1, "2", 2),
        (True, "false", False),
        (None, "something", "something"),
        ((1, 2), "[3, 4]", (3, 4)),
        (Report(pages=1), '{"pages": 7}', Report(pages=7)),
    ],
)
def test_an_edit_is_of_the_type_that_stood_there(value: Any, edit: Any, becomes: Any) -> None:
    found = edited(value, edit)
    assert (found, type(found)) == (becomes, type(becomes))


@pytest.mark.parametrize(
    ("value", "edit", "says"),
    [
        ({"a": 1}, "{a: 2}", "the output of task 't' is JSON, but the edit is not: "),
        ({"a": 1}, "[2]", "the output of task 't' is an object in JSON, but the edit is not"),
        ([1], '"text"', "the output of task 't' is a list in JSON, but the edit is not"),
        (1, "true", "the output of task 't' is a number in JSON, but the edit is not"),
        (True, "null", "the output of task 't' is true or false in JSON, but the edit is not"),
    ],
)
def test_an_edit_of_another_kind_is_refused(value: Any, edit: str, says: str) -> None:
    with pytest.raises(BadInput, match=f"^{says}"):
        output.revised("t", stored(value), edit)


def test_an_edit_that_does_not_fit_its_model_says_what_to_do() -> None:
    assert output.fitted("t", None, {"pages": 1}) is None
    assert output.fitted("t", Report, {"pages": 1}) == Report(pages=1)
    with pytest.raises(
        BadInput, match=r"^the output of task 't' is not a valid Report \(.*fork with an edit that fits$"
    ):
        output.fitted("t", Report, {"pages": "many"})


def test_a_value_whose_class_the_code_does_not_name_any_more_is_refused() -> None:
    found = output.from_record(stored(Report(pages=2)), Names([]), name="t")
    with pytest.raises(BadInput, match=r"^the output of task 't' cannot be restored as a value: .*no longer names"):
        _ = found.value
    assert output.named(found, lambda: NAMES).value == Report(pages=2)
    assert output.plain(found).value == {"pages": 2}


def test_text_that_is_no_utf8_and_what_is_nested_too_deep_have_no_stored_form() -> None:
    with pytest.raises(TypeError, match="half of a surrogate pair"):
        output.dump("half \ud800", None)
    assert output.dump("r", {"a": [1]}) == '{"raw":"r","json":{"a":[1]}}'
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(TypeError, match="more than 200 nested lists and objects"):
        output.dump("r", deep)
