"""Models that nothing says the type of come back as themselves, as far as the code at hand knows them."""

import datetime
import decimal
import io
import itertools
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, Field, PrivateAttr

from runner.flows import state as states
from runner.flows import typed
from runner.flows.patch import apply_all, diff_all
from runner.flows.state import create
from runner.flows.typed import Models


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


@pytest.mark.parametrize(
    "value",
    [
        {"b", "a"},
        (1, "a", None),
        b"bytes",
        frozenset({1}),
        decimal.Decimal("1.50"),
        datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC),
        datetime.timedelta(minutes=1),
        uuid.UUID(int=7),
        {"deep": [{"seen": {"y", "x"}}, (Point(), {"z"})]},
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_state_holds_what_json_has_no_type_for(value: Any) -> None:
    for begun in (create({"any": value}, None), create(Typed(any=value), None)):
        data = json.loads(json.dumps(typed.dump(begun, _refuse, MODELS)))
        there = create(None, type(begun))
        typed.load(there, data, MODELS)
        again = states.fields(there)["any"]
        assert again == value or "deep" in value
        if isinstance(value, dict):
            assert again == {"deep": [{"seen": {"y", "x"}}, ({"x": 1}, ["z"])]}  # what a tuple holds is JSON
        assert typed.dump(there, _refuse, MODELS) == data


def _changed(base: Any, *changes: Callable[[Any], Any]) -> tuple[Any, list[str]]:
    """What is left of the field after methods that ran side by side, and where they conflict."""
    begun = json.loads(json.dumps(typed.dump({"any": base}, _refuse, MODELS)))
    there, paths = begun, []
    for change in changes:
        state: dict[str, Any] = {}
        typed.load(state, json.loads(json.dumps(begun)), MODELS)
        known = typed.aligned(begun, typed.dump(state, _refuse, MODELS))
        change(state["any"])
        patch = diff_all(known, typed.aligned(known, typed.dump(state, _refuse, MODELS)))
        there, found = apply_all(patch, {**known, **there}, known)
        paths += [path for path in found if not path.startswith(typed.KEY)]
    left: dict[str, Any] = {}
    typed.load(left, json.loads(json.dumps(there)), MODELS)
    return left["any"], paths


DAY = datetime.date(2026, 11, 22)


@pytest.mark.parametrize(
    ("base", "one", "other", "left"),
    [
        ([], lambda it: it.append(("a", 1)), lambda it: it.append(("b", 2)), [("a", 1), ("b", 2)]),
        ([DAY], lambda it: it.append(DAY.replace(day=1)), lambda it: it.append(Point()), None),
        ({"m"}, lambda it: it.add("a"), lambda it: it.add("z"), {"m", "a", "z"}),
        ({(1, 2)}, lambda it: it.add((0, 0)), lambda it: it.add((3, 4)), {(1, 2), (0, 0), (3, 4)}),
        ({"m": (0,)}, lambda it: it.update(m=(1,)), lambda it: it.update(b=(2,)), {"m": (1,), "b": (2,)}),
    ],
    ids=["tuples", "dates", "set", "set of tuples", "dict"],
)
def test_what_methods_side_by_side_change_is_all_there(
    base: Any, one: Callable[[Any], Any], other: Callable[[Any], Any], left: Any
) -> None:
    assert _changed(base, one, other) == (left or [DAY, DAY.replace(day=1), Point()], [])


def test_private_attributes_are_nobody_elses() -> None:
    class Counting(BaseModel):
        _numbers: Any = PrivateAttr(default_factory=itertools.count)

    assert typed.dump(create(Counting(), None), _refuse, MODELS).keys() == {"id"}


def test_a_set_in_a_model_with_other_names_in_json_is_dumped() -> None:
    class Named(BaseModel):
        inner: dict[str, Any] = Field({"seen": {"b", "a"}}, alias="Inner")

    assert typed.dump({"any": Named()}, _refuse, MODELS)["any"].keys() == {"Inner"}


class Refused(Exception):
    pass


@pytest.mark.parametrize("made", [lambda: iter("ab"), lambda: (one for one in "ab"), lambda: io.StringIO("a")])
def test_what_looking_at_it_would_use_up_is_refused(made: Callable[[], Any]) -> None:
    def refuse(name: str, value: Any) -> None:
        raise Refused(name)

    value = made()
    with pytest.raises(Refused, match="kept"):
        typed.dump(create({"kept": [value]}, None), refuse, MODELS)
    assert next(value) == "a"


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
