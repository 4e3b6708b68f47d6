"""Which classes a piece of code names, however it is written: only of those are values made again."""

import dataclasses
import datetime
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from runner.core.class_names import Names


class Place(BaseModel):
    name: str


class Trip(BaseModel):
    to: list[Place]


@dataclasses.dataclass
class Leg:
    at: Place | None
    unknown: "NobodyDefinedThis"  # noqa: F821 - it is nowhere


class Stop(NamedTuple):
    place: Place


class Called:
    def __call__(self, ctx: Any) -> Trip: ...

    def method(self, ctx: Any) -> Trip: ...


def plain(ctx: Any) -> Trip: ...


@functools.wraps(plain)
def wrapped(*given: Any) -> Any:
    return plain(*given)


@pytest.mark.parametrize(
    "function",
    [plain, wrapped, functools.partial(plain, None), Called(), Called().method],
    ids=["function", "wrapped", "partial", "object", "method"],
)
def test_what_a_function_returns_is_named_with_what_is_in_it(function: Callable[..., Any]) -> None:
    names = Names([function])
    assert names.find("Trip") is Trip
    assert names.find("Place") is Place
    assert names.name_of(Trip) == "Trip"


def test_what_a_module_imports_is_named_by_where_it_is() -> None:
    names = Names([plain])
    assert names.find("datetime.date") is None, "JSON has ways of its own for it"
    assert names.find("NoSuchClass") is None
    assert names.name_of(datetime.tzinfo) is None


def test_what_a_function_has_around_it_is_named_and_what_is_not_set_yet_is_not() -> None:
    class Inner(BaseModel):
        n: int

    def uses(ctx: Any) -> Any:
        return Inner(n=1), later

    assert Names([uses]).find("Inner") is Inner
    later = 1


def test_an_annotation_that_does_not_resolve_names_nothing() -> None:
    def function(ctx: Any) -> Any: ...

    function.__annotations__["return"] = "NobodyDefinedThis"
    assert Names([function]).find("NobodyDefinedThis") is None
    assert Names([function]).find("Trip") is Trip, "its file does"


def test_classes_that_are_given_bring_those_of_their_fields() -> None:
    assert Names([], [Trip]).find("Place") is Place
    assert Names([], [Stop]).find("Place") is Place
    assert Names([], [Leg]).find("Leg") is Leg
    assert Names([], [Leg]).find("Place") is None, "its annotations do not resolve"
    assert Names([]).name_of(Trip) is None
