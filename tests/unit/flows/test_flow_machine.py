"""The flow machine: who is triggered by what, round after round, and that the same history gives the same machine."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.errors import BadFlow, FlowLoop
from runner.flows.definition import FlowDefinition, Method, and_, condition, or_
from runner.flows.machine import Done, Machine, key_of, method_of, replay, turn_of


def flow(*methods):
    return FlowDefinition("F", {method.name: method for method in methods})


def start(name, when=None, **more):
    return Method(name, start=True, when=condition(when) if when else None, **more)


def listen(name, when, **more):
    return Method(name, when=condition(when), **more)


def router(name, when, **more):
    return Method(name, when=condition(when), router=True, **more)


def run(definition, labels=None, *, pick=lambda pending: pending[0], limit=100):
    """Finish calls one by one until nothing is pending; return the keys in the order they were finished."""
    labels = {name: iter(each) for name, each in (labels or {}).items()}
    machine = Machine(definition, limit)
    machine.begin()
    log = []
    while machine.pending:
        call = machine.pending[pick(list(machine.pending))]
        signal = next(labels[call.method], None) if call.method in labels else None
        log.append(Done(call.key, call.method, signal))
        machine.finish(call.key, signal)
    return log


def keys(log):
    return [done.key for done in log]


def test_listeners_follow_their_method():
    log = run(flow(start("a"), listen("b", "a"), listen("c", "b")))
    assert keys(log) == ["a", "b", "c"]


def test_conditional_starts_wait_where_another_start_does_not():
    definition = flow(start("a"), start("late", "go"), router("r", "a"))
    assert keys(run(definition, {"r": ["go"]})) == ["a", "r", "late"]


def test_where_all_starts_wait_for_something_all_begin():
    definition = flow(start("a", "again"), router("r", "a"))
    assert keys(run(definition, {"r": ["again", "enough"]})) == ["a", "r", "a#2", "r#2"]


def test_and_waits_for_all_whatever_the_order():
    definition = flow(start("a"), start("b"), listen("c", and_("a", "b")))
    for pick in (lambda p: p[0], lambda p: p[-1]):
        assert keys(run(definition, pick=pick))[2:] == ["c"]


def test_a_call_knows_whose_output_it_gets():
    machine = Machine(flow(start("a"), router("r", "a"), listen("c", "yes"), listen("d", "r")))
    machine.begin()
    (routed,) = machine.finish("a")
    assert (routed.by, routed.signal) == ("a", "")
    by_name, by_label = machine.finish("r", "yes")
    assert (by_name.method, by_name.by, by_name.signal) == ("d", "r", "")
    assert (by_label.method, by_label.by, by_label.signal) == ("c", "r", "yes")


def test_or_is_triggered_once_by_two_that_run_side_by_side():
    definition = flow(start("fast"), start("slow"), listen("handler", or_("fast", "slow")))
    assert keys(run(definition)).count("handler") == 1
    assert "handler#2" not in keys(run(definition))


def test_or_is_triggered_once_by_a_method_and_its_own_label():
    definition = flow(start("r", router=True), listen("l", or_("r", "go")))
    assert keys(run(definition, {"r": ["go"]})) == ["r", "l"]


def test_or_is_triggered_again_in_a_loop_it_is_part_of():
    definition = flow(start("kick"), router("first", "kick"), listen("l", or_("A", "B")), router("loop", "l"))
    log = run(definition, {"first": ["A"], "loop": ["B", "B", "stop"]})
    assert [key for key in keys(log) if method_of(key) == "l"] == ["l", "l#2", "l#3"]


def test_or_is_triggered_again_in_a_loop_it_stands_beside():
    definition = flow(
        start("begin"),
        router("classify", or_("begin", "capture")),
        listen("handle", "a"),
        listen("store", or_("a", "b", "c")),
        listen("capture", "handle"),
    )
    log = run(definition, {"classify": ["a", "a", "b", None]})
    assert [key for key in keys(log) if method_of(key) == "store"] == ["store", "store#2", "store#3"]


def test_or_is_not_triggered_again_by_a_router_further_down_the_same_round():
    definition = flow(start("kick"), router("r1", "kick"), router("r2", "A"), listen("l", or_("A", "B")))
    assert keys(run(definition, {"r1": ["A"], "r2": ["B"]})).count("l") == 1
    assert "l#2" not in keys(run(definition, {"r1": ["A"], "r2": ["B"]}))


def test_the_slower_of_two_in_a_round_does_not_trigger_the_next_round():
    """y starts a and b in each round; l takes the first of them and closes the loop while b is still at work."""
    definition = flow(
        start("y", "again"), listen("a", "y"), listen("b", "y"), listen("l", or_("a", "b")), router("r", "l")
    )
    machine = Machine(definition)
    machine.begin()
    machine.finish("y")
    machine.finish("a")
    machine.finish("l")
    machine.finish("r", "again")
    machine.finish("y#2")
    assert sorted(machine.pending) == ["a#2", "b", "b#2"]
    assert machine.finish("b") == []  # of the first round
    assert [call.key for call in machine.finish("b#2")] == ["l#2"]
    assert machine.finish("a#2") == []
    machine.finish("l#2")
    machine.finish("r#2", "enough")
    assert not machine.pending


def test_an_inner_loop_does_not_silence_the_outer_one():
    definition = flow(
        start("outer", "next"),
        router("inner", or_("outer", "turn")),
        listen("turn", "more"),
        listen("report", or_("x", "y")),
        router("close", "report"),
    )
    log = run(definition, {"inner": ["more", "more", "x", "x"], "close": ["next", "end"]})
    assert [key for key in keys(log) if method_of(key) == "report"] == ["report", "report#2"]


def test_and_inside_or_is_an_alternative_as_a_whole():
    definition = flow(start("go"), listen("a", "go"), listen("b", "go"), listen("done", or_(and_("a", "b"), "late")))
    assert keys(run(definition))[-1] == "done"
    assert keys(run(definition)).count("done") == 1


def test_what_fulfilled_one_alternative_is_forgotten():
    definition = flow(
        start("begin"),
        listen("a", "begin"),
        listen("c", "begin"),
        listen("x", and_("a", "c")),
        listen("joined", or_(and_("a", "x"), and_("c", "y"))),
        router("emit_y", "joined"),
    )
    assert [key for key in keys(run(definition, {"emit_y": ["y"]})) if method_of(key) == "joined"] == ["joined"]


def test_a_loop_that_does_not_end_is_refused_in_words():
    definition = flow(start("a", "again"), router("r", "a"))
    with pytest.raises(FlowLoop, match=r"'a' was triggered more than 5 times.*max_method_calls"):
        run(definition, {"r": iter(lambda: "again", None)}, limit=5)


def test_keys():
    assert [key_of("a", 1), key_of("a", 12)] == ["a", "a#12"]
    assert [turn_of("a"), turn_of("a#12"), method_of("a#12")] == [1, 12, "a"]


def test_conditions_refuse_what_is_none():
    with pytest.raises(BadFlow, match="Invalid condition: 3"):
        condition(3)
    with pytest.raises(BadFlow, match="needs at least one"):
        or_()


# -- any flow, any order


NAMES = ["a", "b", "c", "d", "e"]
LABELS = ["x", "y"]


@st.composite
def conditions(draw, me):
    names = [name for name in NAMES + LABELS if name != me]
    leaf = st.sampled_from(names)
    tree = st.recursive(
        leaf, lambda inner: st.builds(lambda kind, parts: kind(*parts), st.sampled_from([or_, and_]),
                                      st.lists(inner, min_size=1, max_size=3)), max_leaves=4
    )  # fmt: skip
    return condition(draw(tree))


@st.composite
def flows(draw):
    methods = [Method("a", start=True)]
    for name in NAMES[1:]:
        methods.append(Method(name, when=draw(conditions(name)), router=draw(st.booleans())))
    return flow(*methods)


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(flows(), st.integers(0, 2**32))
def test_history_and_stored_form_give_the_same_machine(definition, seed):
    """At every point: the machine, the one replayed from its log, and the one from its JSON trigger the same."""
    chance = random.Random(seed)
    machine, log = Machine(definition, 6), []
    machine.begin()
    try:
        while machine.pending and len(log) < 25:
            key = chance.choice(sorted(machine.pending))
            method = definition.methods[method_of(key)]
            signal = chance.choice([None, *LABELS]) if method.router else None
            log.append(Done(key, method.name, signal))
            copied = Machine.from_data(definition, json.loads(json.dumps(machine.to_data())), 6)
            assert copied.finish(key, signal) == machine.finish(key, signal)
            assert copied.to_data() == machine.to_data() == replay(definition, log, 6).to_data()
    except FlowLoop:
        pass


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(flows(), st.integers(0, 2**32))
def test_every_call_has_a_cause(definition, seed):
    chance = random.Random(seed)
    machine, finished = Machine(definition, 6), {""}
    machine.begin()
    try:
        for _ in range(40):
            if not machine.pending:
                break
            key = chance.choice(sorted(machine.pending))
            call = machine.pending[key]
            assert call.by in finished
            signal = chance.choice([None, *LABELS]) if definition.methods[call.method].router else None
            finished.add(key)
            machine.finish(key, signal)
    except FlowLoop:
        pass
