"""Edits of typed outputs are refused where a run knows the type."""

from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from runner import Crew, Task
from runner.client.reading import shapes
from runner.core.errors import BadInput
from runner.crews.adapter import NATIVE
from runner.flows import Flow, listen, start
from runner.flows.adapter import FLOW


class Part(BaseModel):
    n: int


class Report(BaseModel):
    title: str
    parts: list[Part] = []
    also: Part | None = None


class Renamed(BaseModel, populate_by_name=True):
    title: str = Field(alias="Title")


class Split(BaseModel):
    words: list[str]

    @field_validator("words", mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        return given.split() if isinstance(given, str) else given


GOOD = {"title": "t", "parts": [{"n": 1}]}


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"titel": "t"}, r"not a valid Report \(title: Field required\)"),
        ({**GOOD, "parts": [{"n": "one"}]}, r"parts\.0\.n: Input should be a valid integer"),
        ({**GOOD, "also": 3}, "also"),
        ({**GOOD, "also": {"n": 2}}, None),
    ],
)
def test_what_is_no_such_model_is_refused(edit: Any, why: str | None):
    known = shapes.dump({"a": Report, "b": Report})
    assert known.count('"title": "Report"') == 1, "each schema is kept once"
    shapes.refuse_misfit(known, "c", GOOD, edit)
    if why is None:
        shapes.refuse_misfit(known, "a", GOOD, edit)
    else:
        with pytest.raises(BadInput, match=why):
            shapes.refuse_misfit(known, "b", GOOD, edit)


@pytest.mark.parametrize(
    ("model", "before"), [(Renamed, {"title": "t"}), (Split, {"words": "a b"}), (Report, "text"), (Report, None)]
)
def test_a_schema_that_refused_what_was_there_refuses_nothing(model: Any, before: Any):
    shapes.refuse_misfit(shapes.dump({"a": model}), "a", before, {"what": "ever"})


def test_crews_and_flows_say_what_they_declare():
    class Tale(Flow):
        @start()
        def begin(self) -> Report:
            return Report(title="t")

        @listen(begin)
        def go_on(self, report) -> str:
            return report.title

    def made(ctx) -> Part:
        return Part(n=1)

    crew = Crew(tasks=[Task(name="a", run=made), Task(name="b", run=lambda ctx: "b"),
                       Task(name="c", run=lambda ctx: "{}", output_pydantic=Report)])  # fmt: skip
    assert NATIVE.models(crew) == {"a": Part, "c": Report}
    assert FLOW.models(Tale) == {"begin": Report}
    assert shapes.dump({}) == ""
