"""What a branch does again: decided here, and held against the plainest way of saying it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.errors import BadInput
from runner.core.plan import Plan, PlannedTask, branching, frontier
from runner.core.plan.branching import BranchHistory, Done
from runner.core.plan.dependencies import EDITED, ReadSet

KEYS = "abcdefghij"


@st.composite
def plans(draw: Any) -> Plan:
    """A graph of up to ten tasks, in any order."""
    keys = KEYS[: draw(st.integers(1, 10))]
    tasks = []
    for i, key in enumerate(keys):
        after = tuple(draw(st.lists(st.sampled_from(keys[:i]), unique=True, max_size=3))) if i else ()
        context = draw(st.sampled_from([None, (), after[:1]]))
        tasks.append(PlannedTask(key, after, context))
    return Plan("crew", tuple(draw(st.permutations(tasks))))


@st.composite
def situations(draw: Any) -> tuple[Plan, dict[str, ReadSet], frozenset[str], frozenset[str]]:
    """A plan, what is done of it and used by it, and what a fork changes."""
    plan = draw(plans())
    done: dict[str, ReadSet] = {}
    for _ in range(draw(st.integers(0, len(plan.tasks)))):
        ready = frontier(plan, done.keys())
        key = draw(st.sampled_from([task.key for task in ready]))
        earlier = plan.earlier(key)
        some = draw(st.lists(st.sampled_from(earlier), max_size=2)) if earlier else []
        tasks = draw(st.sampled_from([some, some, ["*"]]))
        done[key] = ReadSet(frozenset(tasks), frozenset(draw(st.sampled_from(["", "x", "xy", "*"]))))
        if draw(st.integers(0, 9)) == 9:
            done[key] = EDITED
    edited = frozenset(draw(st.lists(st.sampled_from(sorted(done)), max_size=2))) if done else frozenset()
    return plan, done, edited, frozenset(draw(st.sampled_from(["", "", "x", "z"])))


def depends(plan: Plan, key: str, used: ReadSet, changed: set[str], inputs: frozenset[str]) -> bool:
    if used.edited:
        return False
    read = set(plan.by_key[key].context or ()) | used.tasks
    if "*" in read:
        read |= set(plan.earlier(key))
    return bool(read & changed or used.inputs & inputs or ("*" in used.inputs and inputs))


@settings(max_examples=4 * settings.default.max_examples, deadline=None, derandomize=True)
@given(situations())
def test_what_used_a_change_is_done_again_and_nothing_else(found):
    plan, done, edited, inputs = found
    changed = set(edited)
    while more := {k for k, used in done.items() if k not in changed and depends(plan, k, used, changed, inputs)}:
        changed |= more
    assert branching.invalidated(plan, done, edited, inputs) == changed - edited


@settings(max_examples=3 * settings.default.max_examples, deadline=None, derandomize=True)
@given(plans(), st.sets(st.sampled_from(KEYS)))
def test_a_branch_keeps_the_order_of_what_it_does_whatever_lies_between(plan, wanted):
    rerun = wanted & plan.by_key.keys()
    part = branching.part(plan, rerun)
    assert [task.key for task in part.tasks] == [task.key for task in plan.tasks if task.key in rerun]
    for task in part.tasks:
        assert set(part.earlier(task.key)) == set(plan.earlier(task.key)) & rerun
        assert (task.context, task.timeout) == (plan.by_key[task.key].context, plan.by_key[task.key].timeout)
    assert branching.starts(plan, rerun) == [t for t in plan.tasks if t.key in {f.key for f in frontier(part, set())}]
    assert branching.unpack(plan, branching.pack(plan, rerun)) == rerun


def test_a_todo_is_small():
    plan = Plan("crew", tuple(PlannedTask(f"t{i}") for i in range(1000)))
    assert len(branching.pack(plan, {f"t{i}" for i in range(500, 1000)})) < 64, "and its hash stays compact"


def test_new_code_adds_its_new_tasks_to_what_is_to_be_done():
    old = Plan("crew", (PlannedTask("a"), PlannedTask("b"), PlannedTask("c")))
    new = Plan("crew", (PlannedTask("d"), PlannedTask("c"), PlannedTask("a")))
    assert branching.rebase({"b", "c"}, old, new) == {"c", "d"}


def test_a_branch_sees_its_own_and_its_parents_but_for_what_it_does_again():
    lines = [
        BranchHistory("fork", "main", 3, frozenset("bc"), [Done("c", 4), Done("b", 6)]),
        BranchHistory("main", "", 0, None, [Done("a", 1), Done("b", 2), Done("x", 3), Done("c", 4)]),
    ]

    def seen(upto: float = float("inf")) -> dict[str, tuple[str, int]]:
        return {task: (name, done.seq) for task, (name, done) in branching.visible(lines, upto).items()}

    assert seen() == {"a": ("main", 1), "x": ("main", 3), "c": ("fork", 4), "b": ("fork", 6)}
    assert seen(5) == {"a": ("main", 1), "x": ("main", 3), "c": ("fork", 4)}
    assert seen(2) == {"a": ("main", 1)}


@pytest.mark.parametrize("name", ["main", "fork/one", "fork/20260101T000000_0123abcd_ffffff", "a.b+c@d_e-f", "v1.0/x"])
def test_names_that_a_branch_may_have(name):
    assert branching.check_name(name) == name


@pytest.mark.parametrize("name", ["../../etc", "/etc", "a/../b", ".."])
def test_names_that_leave_the_place_of_branches(name):
    with pytest.raises(BadInput, match=r"begins with / or has \.\. as a part"):
        branching.check_name(name)


@pytest.mark.parametrize("name", ["", "a|b", "a:b", "a b", "a//b", "a/", "-a", ".a", "ö", "a\n", "x" * 121, "{a}"])
def test_other_names_that_a_branch_may_not_have(name):
    with pytest.raises(BadInput, match="is not a branch name"):
        branching.check_name(name)


def test_forks_name_themselves_by_what_they_leave():
    one, other = branching.fork_name("20260101T000000_0123abcd"), branching.fork_name("20260101T000000_0123abcd")
    assert one != other
    assert one.startswith("fork/20260101T000000_0123abcd_")
    assert len(branching.fork_name("")) == len("fork/12345678")


@pytest.mark.parametrize(
    ("before", "given", "changed"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": [1]}, {"a": [1.0]}, {"a": [1.0]}),
        ({"a": None}, {"b": None}, {"b": None}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, {}),
    ],
)
def test_inputs_that_differ(before, given, changed):
    assert branching.changed_inputs(before, given) == changed


def test_an_unknown_task_is_named_with_its_nearest():
    plan = Plan("crew", (PlannedTask("collect"), PlannedTask("count")))
    with pytest.raises(BadInput, match=r"^run r-1 has no task 'colect' to edit: did you mean 'collect'\?$"):
        branching.refuse_unknown(plan.by_key, ["count", "colect"], "r-1")
    with pytest.raises(BadInput, match=r"has no task 'zzz' to edit: `runner show r-1` lists them$"):
        branching.refuse_unknown(plan.by_key, ["zzz"], "r-1")
