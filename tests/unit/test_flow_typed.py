"""Models that nothing says the type of come back as themselves, as far as the code at hand knows them."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from runner.flow import typed
from runner.flow.state import create
from runner.flow.typed import Models


class Point(BaseModel):
    x: int = 1


class Holder(BaseModel):
    raw: str = ""
    inside: Any = None


class Typed(BaseModel):
    point: Point = Point()
    any: Any = None


MODELS = Models({"Point": Point, "Holder": Holder})


def _refuse(name: str, value: Any) -> None:
    raise AssertionError(name, value)


@pytest.mark.parametrize(
    "value",
    [
        Point(x=2),
        [Point(), {"a": [Point(x=3)]}],
        {"one": Point(), "two": 2},
        Holder(raw="r", inside=Point(x=4)),
        [Holder(inside=[Point(), Point(x=5)])],
        "text",
        [1, {"a": None}],
    ],
)
def test_a_value_and_a_field_come_back(value: Any) -> None:
    entries = json.loads(json.dumps(MODELS.within(value)))
    plain = json.loads(json.dumps(value, default=lambda one: one.model_dump(mode="json")))
    assert MODELS.put_back(plain, entries) == value
    for begun in (create({"any": value}, None), create(Typed(any=value), None)):
        data = json.loads(json.dumps(typed.dump(begun, _refuse, MODELS)))
        there = create(None, type(begun))
        typed.load(there, data, MODELS)
        assert there == begun
        assert typed.dump(there, _refuse, MODELS) == data


def test_nothing_is_kept_of_what_the_state_says_itself() -> None:
    assert typed.KEY not in typed.dump(create(Typed(point=Point(x=7)), None), _refuse, MODELS)


@pytest.mark.parametrize(
    "entries",
    [
        [[[], "os.system", {}]],
        [[["nowhere", 3], "Point", {}]],
        [[[], "Point", {"x": "no number"}]],
        [[[], "Point"]],
        [7],
        "text",
        None,
    ],
)
def test_what_does_not_fit_stays_what_it_is(entries: Any) -> None:
    assert MODELS.put_back({"x": 1}, entries) == {"x": 1}


def test_a_model_that_is_not_known_is_its_data() -> None:
    there = create({}, None)
    typed.load(there, typed.dump(create({"p": Point()}, None), _refuse, Models()), Models())
    assert isinstance(there, dict)
    assert there["p"] == {"x": 1}
