"""The plan is pure: the order of tasks, what may run, what is waited for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.errors import BadCrew
from runner.core.plan import THREAD, Plan, PlannedTask, frontier, refuse_cycles, sequential_order, waits


def order(kinds: str) -> dict[str, tuple[str, ...]]:
    """``sequential_order`` of tasks a, b, c, ...; ``s`` is a synchronous one, ``p`` one beside others."""
    return sequential_order((chr(ord("a") + i), kind == "p") for i, kind in enumerate(kinds))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("", {}),
        ("s", {"a": ()}),
        ("sss", {"a": (), "b": ("a",), "c": ("b",)}),
        ("pp", {"a": (), "b": ()}),
        ("pps", {"a": (), "b": (), "c": ("a", "b")}),
        ("spps", {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}),
        ("spsp", {"a": (), "b": ("a",), "c": ("b",), "d": ("c",)}),
        ("sspp", {"a": (), "b": ("a",), "c": ("b",), "d": ("b",)}),
    ],
)
def test_tasks_side_by_side_until_the_next_synchronous_one(kinds, expected):
    assert order(kinds) == expected


@given(st.text("sp", max_size=12))
def test_a_synchronous_task_has_all_earlier_ones_behind_it(kinds):
    after = order(kinds)
    plan = Plan("crew", tuple(PlannedTask(key, waits_for) for key, waits_for in after.items()))
    keys = list(after)
    for i, (key, kind) in enumerate(zip(keys, kinds, strict=True)):
        behind = plan.earlier(key)
        if kind == "s":
            assert behind == keys[:i]
        else:  # those beside it are not behind it
            beside = len(kinds[:i]) - len(kinds[:i].rstrip("p"))
            assert behind == keys[: i - beside]


@st.composite
def plans(draw) -> Plan:
    """A plan of up to eight tasks, each after some that stand before it, shuffled."""
    count = draw(st.integers(1, 8))
    tasks = []
    for i in range(count):
        after = draw(st.lists(st.integers(0, i - 1), unique=True, max_size=4)) if i else []
        tasks.append(PlannedTask(f"t{i}", tuple(f"t{j}" for j in after)))
    return Plan("crew", tuple(draw(st.permutations(tasks))))


@given(plans(), st.data())
def test_counting_finds_the_same_tasks_as_looking(plan, data):
    """The store does not look at the whole plan: a commit counts for those who wait. Both ways find the same."""
    committed: set[str] = set()
    met: dict[str, int] = {}
    ready = {task.key for task in frontier(plan, committed)}
    while ready:
        assert ready == {task.key for task in frontier(plan, committed)}
        assert {key: count for key, count in met.items() if 0 < count < len(plan.by_key[key].after)} == waits(
            plan, committed
        )
        key = data.draw(st.sampled_from(sorted(ready)))
        committed.add(key)
        ready.remove(key)
        for waiting in plan.dependents[key]:
            met[waiting.key] = met.get(waiting.key, 0) + 1
            if met[waiting.key] == len(waiting.after):
                ready.add(waiting.key)
    assert committed == plan.by_key.keys(), "every plan without a cycle ends"


@given(plans())
def test_a_plan_survives_its_stored_form(plan):
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest


def test_a_stored_plan_keeps_what_is_not_there_apart_from_what_is_empty():
    plan = Plan(
        "crew",
        (PlannedTask("a", timeout=2.5), PlannedTask("b", ("a",), ()), PlannedTask("ü", ("a", "b"), ("a",))),
        frozenset({"topic", "n"}),
        takes=("n", "more", "topic"),
    )
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.by_key["a"].context is None
    assert plan.by_key["b"].context == ()
    assert plan.result == "ü"


@pytest.mark.parametrize(
    "other",
    [
        Plan("crew", (PlannedTask("a"), PlannedTask("b", ()))),
        Plan("other", (PlannedTask("a"), PlannedTask("b", ("a",)))),
        Plan("crew", (PlannedTask("b", ("a",)), PlannedTask("a"))),
        Plan("crew", (PlannedTask("a", timeout=1), PlannedTask("b", ("a",)))),
        Plan("crew", (PlannedTask("a"), PlannedTask("b", ("a",), ("a",)))),
        Plan("crew", (PlannedTask("a"), PlannedTask("b", ("a",))), frozenset({"topic"})),
    ],
)
def test_the_digest_tells_plans_apart(other):
    assert other.digest != Plan("crew", (PlannedTask("a"), PlannedTask("b", ("a",)))).digest


def test_a_digest_is_the_same_in_every_process():
    assert Plan("crew", (PlannedTask("a"),), frozenset({"z", "y", "x"})).digest == "ecfe924e03b92ecb"


@pytest.mark.parametrize(
    ("after", "cycle"),
    [
        ({"a": ["a"]}, "a -> a"),
        ({"a": ["b"], "b": ["a"]}, "a -> b -> a"),
        ({"x": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]}, "a -> b -> c -> a"),
        ({"x": [], "y": ["x"], "a": ["x", "b"], "b": ["y", "a"]}, "a -> b -> a"),
    ],
)
def test_a_cycle_is_named(after, cycle):
    with pytest.raises(BadCrew, match=f"^the tasks wait for each other: {cycle}$"):
        refuse_cycles(after)


@given(plans())
def test_what_has_no_cycle_passes(plan):
    refuse_cycles({task.key: task.after for task in plan.tasks})


@given(plans(), st.data())
def test_an_arrow_back_is_a_cycle(plan, data):
    after = {task.key: list(task.after) for task in plan.tasks}
    late = data.draw(st.sampled_from(sorted(after)))
    for early in plan.earlier(late):
        with pytest.raises(BadCrew):
            refuse_cycles({**after, early: [*after[early], late]})


def test_a_long_chain_and_a_wide_plan_are_no_problem():
    chain = {f"t{i}": [f"t{i - 1}"] if i else [] for i in range(5000)}
    refuse_cycles(chain)
    plan = Plan("crew", tuple(PlannedTask(key, tuple(after)) for key, after in chain.items()))
    assert len(plan.earlier("t4999")) == 4999
    refuse_cycles({f"t{i}": [f"t{j}" for j in range(i)] for i in range(200)})


def test_where_a_task_is_done_is_kept_and_makes_no_other_plan():
    waiting = Plan("crew", (PlannedTask("a", pool=THREAD), PlannedTask("b", ("a",), pool=THREAD)))
    again = Plan.from_json(waiting.to_json())
    assert (again, [task.pool for task in again.tasks]) == (waiting, [THREAD, THREAD])
    mixed = Plan("crew", (waiting.tasks[0], PlannedTask("b", ("a",))))
    assert [task.pool for task in Plan.from_json(mixed.to_json()).tasks] == [THREAD, ""]
    assert mixed.digest == waiting.digest
