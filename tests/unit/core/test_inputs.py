"""What may be given to a run, and what is said of the rest."""

import sys
from typing import Any

import pytest

from runner.core import inputs
from runner.core.errors import BadInput


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"a": object()}, "the inputs are not JSON: Object of type object is not JSON serializable"),
        ({"a": float("nan")}, "the inputs are not JSON: Out of range float values are not JSON compliant"),
        ({"a": "half \ud800"}, "the input 'a' contains half of a surrogate pair, which is not valid UTF-8"),
        ({"a": nested(201)}, "the input 'a' is nested too deeply: more than 200 lists and objects"),
        ({3: "x"}, "the name of an input must be text, not 3"),
        ({" ": "x"}, "an input has an empty name"),
        ({"a\nb": "x"}, r"the name of the input 'a\\nb' has control characters: leave them out"),
    ],
)
def test_what_is_no_input_is_refused_with_its_reason(given: dict[Any, Any], says: str) -> None:
    with pytest.raises(BadInput, match=f"^{says}"):
        inputs.given_as_json(given)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", " 2 ", 2),
        ("number", "2", 2),
        ("number", "-2.5e3", -2500.0),
        ("boolean", "true", True),
        ("array", '["a"]', ["a"]),
        ("array", "hello", "hello"),
        ("array", '{"a": 1}', '{"a": 1}'),
        ("object", '{"a": 1}', {"a": 1}),
        ("object", "hello", "hello"),
    ],
)
def test_text_is_made_what_an_input_is_declared_to_be(kind: str, text: str, value: Any) -> None:
    found = inputs.typed({"n": text, "topic": "3"}, {"n": kind, "other": kind})
    assert found == {"n": value, "topic": "3"}
    assert type(found["n"]) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("integer", "two", "a whole number, not 'two'"),
        ("integer", "2.5", "a whole number, not '2.5'"),
        ("integer", "true", "a whole number, not 'true'"),
        ("number", "", "a number, not ''"),
        ("boolean", "1", "true or false, not '1'"),
    ],
)
def test_text_that_is_no_such_is_refused(kind: str, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=f"^the input 'n' is {says}$"):
        inputs.typed({"n": text}, {"n": kind})


def test_what_is_no_text_stays_what_it_is() -> None:
    assert inputs.typed({"n": 2.5, "m": None}, {"n": "integer", "m": "boolean"}) == {"n": 2.5, "m": None}


def test_what_fits_is_kept_beside_what_does_not() -> None:
    fit, unfit = inputs.as_json({"topic": "owls", "pages": (1, 2), "client": object()})
    assert fit == {"topic": "owls", "pages": [1, 2]}
    assert [*unfit] == ["client"]


def test_nesting_is_taken_up_to_its_limit_and_a_knot_is_too_deep() -> None:
    assert not inputs.nested_too_deep(nested(200))
    assert inputs.nested_too_deep({"a": nested(200)})
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(BadInput, match="nested too deep"):
        inputs.given_as_json({"knot": knot})


def test_what_is_nested_little_is_looked_into_no_further() -> None:
    def calls(value: Any) -> int:
        seen: list[str] = []
        before = sys.getprofile()
        sys.setprofile(lambda _, event, __: seen.append(event))
        try:
            assert not inputs.nested_too_deep(value)
        finally:
            sys.setprofile(before)
        return len(seen)

    assert calls("text") < 10
    assert calls(nested(200)) > 200


def test_they_are_stored_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inputs.stored({"b": "käse", "a": 1}) == '{"a": 1, "b": "käse"}'
    monkeypatch.setattr(inputs, "MOST_BYTES", 2**20)
    with pytest.raises(BadInput, match=r"^the inputs: more than 1 MiB of JSON; put large data into a file"):
        inputs.stored({"text": "é" * 2**19})


def test_what_is_missing_is_named_with_the_way_to_give_it() -> None:
    inputs.refuse_missing({"topic"}, {"topic": None, "more": 1})
    with pytest.raises(BadInput, match=r"^the crew needs the input 'topic': give it with --input topic=... or"):
        inputs.refuse_missing({"topic"}, {})
    with pytest.raises(BadInput, match=r"^the crew needs the inputs 'a' and 'b': give each with --input a=..."):
        inputs.refuse_missing({"b", "a", "c"}, {"c": 1})


def test_an_input_that_is_not_among_all_that_are_declared_is_refused() -> None:
    inputs.refuse_unknown(None, {"questoin": 1}, "agent")
    inputs.refuse_unknown(["question", "tries"], {"tries": 1}, "agent")
    says = r"^the agent has no input 'questoin' \(did you mean 'question'\?\); it has 'question', 'tries'$"
    with pytest.raises(BadInput, match=says):
        inputs.refuse_unknown(["question", "tries"], {"questoin": 1}, "agent")
    with pytest.raises(BadInput, match=r"^the agent has no input 'x'; it has 'question'$"):
        inputs.refuse_unknown(["question"], {"x": 1}, "agent")
