"""The state of a flow: made, copied, merged by field, stored and brought back."""

import threading
from typing import Any

import pytest
from pydantic import BaseModel, Field

from runner.core.errors import BadFlow, BadInput
from runner.flows import state as states
from runner.flows.patch import merge
from runner.flows.schema import INITIAL_STATE_CLASS_MARKER, describe, model_of, rebuild
from runner.flows.state import FlowState, Patch, changes, create, dump, fields, give, load, put, same, twin


class Report(BaseModel):
    title: str = ""
    pages: list[str] = []


class Work(BaseModel):
    count: int = 0
    report: Report = Field(default_factory=Report)


class Needs(BaseModel):
    topic: str
    count: int = 0


def refuse(name: str, value: Any) -> None:
    raise AssertionError(f"{name} is no JSON")


def merged(base: Any, theirs: Any, mine: Any) -> tuple[dict[str, Any], list[str]]:
    patch, conflicts = merge(base, theirs, mine)
    state = dict(theirs)
    put(state, patch)
    return state, conflicts


# -- made


@pytest.mark.parametrize("initial", [None, dict, {}, {"a": 1}])
def test_a_dict_gets_an_id(initial):
    state = create(initial, None)
    assert len(state["id"]) == 36
    assert state.keys() - {"id"} == (initial or {}).keys() if isinstance(initial, dict) else True


def test_a_model_without_an_id_gets_one_and_stays_of_its_class():
    state = create(None, Work)
    assert isinstance(state, Work)
    assert len(state.id) == 36
    assert create(Work(count=3), None).count == 3
    assert create(Work, None).id != create(Work, None).id
    assert type(create(None, FlowState)) is FlowState


def test_an_id_that_is_given_stays():
    assert create({"id": "mine"}, None) == {"id": "mine"}


def test_the_initial_state_is_not_the_flows_own():
    initial = {"items": [1]}
    state = create(initial, None)
    state["items"].append(2)
    assert initial == {"items": [1]}


def test_required_fields_may_come_with_the_inputs():
    state = create(None, Needs)
    give(state, {"topic": "owls"})
    assert (state.topic, state.count) == ("owls", 0)
    with pytest.raises(BadInput, match="needs 'topic'"):
        give(create(None, Needs), {"count": 1})
    with pytest.raises(BadInput, match="count"):
        give(create(None, Work), {"count": "many"})


@pytest.mark.parametrize("wrong", [3, "text", int])
def test_what_is_no_state_is_refused(wrong):
    with pytest.raises(BadFlow, match="dict or a pydantic model"):
        create(wrong, None)


# -- copied


def test_a_twin_shares_nothing_that_can_be_copied():
    lock = threading.RLock()
    state = create({"items": [1], "deep": {"lock": lock, "list": [1]}}, None)
    other = twin(state)
    other["items"].append(2)
    other["deep"]["list"].append(2)
    assert state["items"] == state["deep"]["list"] == [1]
    assert other["deep"]["lock"] is lock


def test_what_is_in_two_fields_is_one_thing_in_the_twin_too():
    shared = [1]
    other = twin({"a": shared, "b": shared})
    assert other["a"] is other["b"] is not shared


# -- merged


def test_different_fields_do_not_conflict():
    assert merged({"a": 0, "b": 0}, {"a": 1, "b": 0}, {"a": 0, "b": 2}) == ({"a": 1, "b": 2}, [])


def test_new_and_deleted_fields():
    assert merged({"a": 0, "b": 0}, {"b": 0, "c": 1}, {"a": 0, "d": 2}) == ({"c": 1, "d": 2}, [])


def test_the_later_one_wins_where_both_changed_the_same():
    assert merged({"a": 0}, {"a": 1}, {"a": 2}) == ({"a": 2}, ["a"])


def test_two_that_counted_to_the_same_number_conflict_and_two_that_say_the_same_do_not():
    assert merged({"n": 0}, {"n": 1}, {"n": 1}) == ({"n": 1}, ["n"])
    assert merged({"done": False, "who": ""}, {"done": True, "who": "x"}, {"done": True, "who": "x"})[1] == []


def test_dicts_merge_by_key_and_models_by_field():
    base, theirs, mine = {"r": {"x": 1}}, {"r": {"x": 1, "y": 2}}, {"r": {"x": 3}}
    assert merged(base, theirs, mine) == ({"r": {"x": 3, "y": 2}}, [])
    assert merged({}, {"r": {"y": 2}}, {"r": {"x": 3}}) == ({"r": {"y": 2, "x": 3}}, [])
    state, conflicts = merged({"r": Report()}, {"r": Report(title="T")}, {"r": Report(pages=["p"])})
    assert state["r"] == Report(title="T", pages=["p"])
    assert conflicts == []


def test_a_conflict_says_where():
    assert merged({"r": {"x": 1}}, {"r": {"x": 2}}, {"r": {"x": 3}}) == ({"r": {"x": 3}}, ["r.x"])


def test_items_that_both_appended_stand_one_after_the_other():
    assert merged({"l": [0]}, {"l": [0, 1]}, {"l": [0, 2]}) == ({"l": [0, 1, 2]}, [])
    assert merged({}, {"l": [1]}, {"l": [2]}) == ({"l": [1, 2]}, [])
    assert merged({"l": [0]}, {"l": [1]}, {"l": [2]}) == ({"l": [2]}, ["l"])


def test_sets():
    assert merged({"s": {1, 2}}, {"s": {1, 2, 3}}, {"s": {1, 4}}) == ({"s": {1, 3, 4}}, [])


def test_same_minds_the_type_and_bears_what_cannot_be_compared():
    class Odd:
        def __eq__(self, other):
            raise ValueError("ambiguous")

        __hash__ = None

    assert not same(1, True)
    assert not same(1, 1.0)
    assert not same(Odd(), Odd())
    assert same(float("nan"), float("nan")) is False
    assert changes({"a": 1}, {"a": 1, "b": 2}) == Patch({"b": 2})


def test_a_patch_is_put_into_a_model_without_validation():
    state = create(None, Work)
    put(state, Patch({"count": 4}))
    assert state.count == 4
    assert "count" in state.model_fields_set


def test_private_attributes_and_extra_fields_of_a_model():
    from pydantic import ConfigDict, PrivateAttr

    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow")
        _secret: int = PrivateAttr(default=1)

    state = create(None, Loose)
    other = twin(state)
    other.more, other._secret = [1], 2
    put(state, changes(fields(state), fields(other)))
    assert (state.more, state._secret) == ([1], 2)
    assert "more" in dump(state, refuse)
    assert "_secret" not in dump(state, refuse)


# -- stored


def test_a_model_comes_back_typed():
    state = create(None, Work)
    state.count, state.report.title = 2, "T"
    back = create(None, Work)
    load(back, dump(state, refuse))
    assert isinstance(back.report, Report)
    assert dump(back, refuse) == dump(state, refuse)


def test_what_is_no_json_is_left_out_and_said():
    left = []
    state = create({"a": 1, "lock": threading.Lock()}, None)
    assert dump(state, lambda name, value: left.append(name)).keys() == {"a", "id"}
    assert left == ["lock"]


def test_a_state_that_no_longer_fits_says_which_field():
    with pytest.raises(BadFlow, match=r"does not fit Work as it is now: Work\.count"):
        load(create(None, Work), {"id": "x", "count": "many"})


def test_revised_types_by_field():
    state = states.revised(create(None, Work), {"report": {"title": "T"}})
    assert state.report == Report(title="T")


# -- initial_state as data


def test_a_class_stands_as_its_schema_an_instance_as_its_values_a_dict_as_itself():
    described = describe(Work)
    assert described[INITIAL_STATE_CLASS_MARKER]["title"] == "Work"
    assert describe(Report(title="T")) == {"title": "T", "pages": []}
    assert describe({"a": 1}) == {"a": 1}
    assert describe(dict) is None
    assert rebuild({"a": 1}) == {"a": 1}


def test_a_model_made_of_a_schema():
    model = rebuild(describe(Work))
    assert set(model.model_fields) == {"count", "report"}
    assert model().count == 0
    made = model(report={"title": "T"})
    assert made.report.title == "T"


def test_schemas_of_all_sorts():
    from datetime import datetime
    from typing import Literal

    class Node(BaseModel):
        kind: Literal["a", "b"] = "a"
        maybe: int | None = None
        when: datetime | None = None
        children: list["Node"] = []
        table: dict[str, float] = {}
        must: str

    model = model_of(Node.model_json_schema())
    assert set(model.model_fields) == set(Node.model_fields)
    assert model(must="x").maybe is None
    with pytest.raises(ValueError, match="must"):
        model()
    with pytest.raises(ValueError, match="kind"):
        model(must="x", kind="c")


@pytest.mark.parametrize("declared", [None, dict, dict[str, Any], Any])
def test_a_flow_of_no_particular_type_begins_with_an_empty_dict(declared: Any) -> None:
    """`Flow[Any]` was refused: from Python 3.11 on, `Any` is a class."""
    state = create(None, declared)
    assert isinstance(state, dict)
    assert list(state) == ["id"]
