"""Patches of a state, and where a flow stands after what was committed."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.plan.expansion import Committed
from runner.flows import Flow, and_, listen, or_, router, start
from runner.flows.definition import FlowDefinition
from runner.flows.history import FlowPosition, position_after
from runner.flows.patch import apply_all, diff_all, merge
from runner.flows.state import MISSING, put, same


def test_small_changes_are_small():
    base = {"log": ["x" * 100] * 50, "table": {"a": "y" * 100, "b": 1}, "n": 1}
    mine = {"log": [*base["log"], "new"], "table": {"a": "y" * 100, "b": 2, "c": 3}, "n": 2}
    patches = diff_all(base, mine)
    assert patches == {"log": ["a", ["new"]], "table": ["d", {"b": ["s", 2], "c": ["s", 3]}], "n": ["s", 2]}
    assert apply_all(patches, base)[0] == mine


def test_what_went_is_removed():
    assert apply_all(diff_all({"a": 1, "d": {"x": 1}}, {"d": {}}), {"a": 1, "d": {"x": 1}, "b": 2})[0] == {
        "d": {},
        "b": 2,
    }


leaf = st.one_of(st.integers(0, 2), st.booleans(), st.none(), st.sampled_from(["a", "b"]))
values = st.recursive(
    leaf,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("xy"), inner, max_size=2)),
    max_leaves=4,
)
states = st.dictionaries(st.sampled_from("pq"), values, max_size=2)


def by_rule(base: Any, theirs: Any, mine: Any, path: str, conflicts: list[str]) -> Any:
    """What is to come of a value that two changed, said a second time."""
    if same(mine, base):
        return theirs
    if same(theirs, base):
        return mine
    if isinstance(theirs, dict) and isinstance(mine, dict):
        known = base if isinstance(base, dict) else {}
        found = {}
        for key in dict.fromkeys([*theirs, *mine]):
            value = by_rule(
                known.get(key, MISSING), theirs.get(key, MISSING), mine.get(key, MISSING), f"{path}.{key}", conflicts
            )
            if value is not MISSING:
                found[key] = value
        return found
    if isinstance(theirs, list) and isinstance(mine, list):
        known = base if isinstance(base, list) else []
        if same(theirs[: len(known)], known) and same(mine[: len(known)], known):
            return theirs + mine[len(known) :]
    if isinstance(theirs, set) and isinstance(mine, set):
        items = base if isinstance(base, set) else set()
        return (theirs | (mine - items)) - (items - mine)
    if not same(theirs, mine) or (isinstance(mine, int) and not isinstance(mine, bool)):
        conflicts.append(path)
    return mine


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(states, states, states)
def test_patches_merge_by_the_rule(base, theirs, mine):
    patches = json.loads(json.dumps(diff_all(base, mine)))
    assert same(apply_all(patches, base)[0], mine)
    found, conflicts = apply_all(patches, theirs, base)
    expected: list[str] = []
    assert same({"": found}, {"": by_rule(base, theirs, mine, "", expected)})
    assert sorted(conflicts) == sorted(one.removeprefix(".") for one in expected)


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(*[st.dictionaries(st.sampled_from("pq"), st.one_of(values, st.sets(st.integers(0, 3))), max_size=2)] * 3)
def test_live_values_merge_by_the_rule(base, theirs, mine):
    patch, conflicts = merge(base, theirs, mine)
    found = dict(theirs)
    put(found, patch)
    expected: list[str] = []
    assert same(found, by_rule(base, theirs, mine, "", expected))
    assert sorted(conflicts) == sorted(one.removeprefix(".") for one in expected)
    for name in mine.keys() & patch.put.keys():
        if same(theirs.get(name, MISSING), base.get(name, MISSING)):
            assert found[name] is mine[name]


# -- where it stands


class Reviewed(Flow[dict]):
    @start()
    def a(self): ...

    @start()
    def side(self): ...

    @router(a)
    def route(self): ...

    @listen("yes")
    def publish(self): ...

    @listen("no")
    def discard(self): ...

    @listen(and_(side, or_(publish, discard)))
    def end(self): ...


DEFINITION = FlowDefinition.from_data(json.loads(json.dumps(Reviewed.flow_definition().to_data())))


def done(key, raw="", signal=None, **patch):
    part = {"patch": {name: ["a", [value]] for name, value in patch.items()}}
    return Committed(key, {"raw": raw, "flow": {**part, "signal": signal} if signal else part})


HISTORY = [
    done("a", "A", log="a"),
    done("route", "yes", "yes"),
    done("side", "S", log="side"),
    done("publish", "P", log="publish"),
    done("end", "E", log="end"),
]


def test_a_definition_comes_back_from_its_data():
    assert DEFINITION.to_data() == Reviewed.flow_definition().to_data()
    assert [method.name for method in DEFINITION.starts] == ["a", "side"]


def test_the_state_of_any_position():
    for i, log in enumerate([[], ["a"], ["a"], ["a", "side"], ["a", "side", "publish"]]):
        position = position_after(DEFINITION, {"log": [], "n": 0}, HISTORY[:i])
        assert position.state == {"log": log, "n": 0}
    assert list(position_after(DEFINITION, {}, HISTORY[:2]).machine.pending) == ["side", "publish"]
    assert list(position_after(DEFINITION, {}, HISTORY).machine.pending) == []


def test_inputs_of_a_branch_are_laid_over_where_it_begins():
    position = position_after(DEFINITION, {"n": 0}, [*HISTORY[:1], Committed("", inputs={"n": 7}), HISTORY[2]])
    assert position.state == {"n": 7, "log": ["a", "side"]}


def test_what_came_of_an_edited_output_is_void_and_nothing_else():
    position = position_after(DEFINITION, {"log": []}, [*HISTORY, Committed("", edits={"a": {"raw": "other"}})])
    assert position.void == {"route", "publish", "end"}
    assert list(position.machine.pending) == ["route"]
    assert position.state == {"log": ["a", "side"]}


def test_a_router_may_be_told_another_label():
    position = position_after(DEFINITION, {"log": []}, [*HISTORY, Committed("", edits={"route": {"raw": "no"}})])
    assert position.void == {"publish", "end"}
    assert list(position.machine.pending) == ["discard"]


def test_what_was_done_again_after_an_edit_counts():
    again = [done("route", "no", "no"), done("discard", "D", log="discard"), done("end", "E2", log="end2")]
    edit = Committed("", edits={"a": {"raw": "other"}})
    position = position_after(DEFINITION, {"log": []}, [*HISTORY, edit, *again])
    assert list(position.machine.pending) == []
    assert position.state == {"log": ["a", "side", "discard", "end2"]}


def test_standing_as_texts_and_back():
    position = position_after(DEFINITION, {"log": [], "x": {"y": 1}}, HISTORY[:3])
    fields = position.fields()
    assert fields["state:log"] == '["a","side"]'
    back = FlowPosition.from_fields(DEFINITION, fields)
    assert (back.state, back.machine.to_data()) == (position.state, position.machine.to_data())
