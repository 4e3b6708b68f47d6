"""Branches as a tree: forks under the checkpoint that they left."""

from runner.client.checkpoints.model import Branch, Checkpoint, Origin
from runner.client.checkpoints.tree import BranchNode, build, grouped


def drawn(nodes: list[BranchNode], depth: int = 0) -> list[str]:
    """The tree as lines: branches in brackets, checkpoints by id."""
    found = []
    for node in nodes:
        found.append("  " * depth + f"[{node.branch.name}]")
        found += drawn(node.forks, depth + 1)
        for one in node.checkpoints:
            found.append("  " * (depth + 1) + one.checkpoint.id)
            found += drawn(one.forks, depth + 2)
    return found


def of(branch: str, *ids: str, after: str = "") -> list[Checkpoint]:
    """A line of checkpoints, each the parent of the next."""
    return [Checkpoint(one, branch, parent) for one, parent in zip(ids, (after, *ids), strict=False)]


def test_nothing_is_an_empty_tree():
    assert grouped([]) == []
    assert build([]) == []


def test_forks_and_forks_of_forks_stand_under_the_checkpoint_that_they_left():
    checkpoints = [
        *of("main", "m1", "m2", "m3"),
        *of("b", "b1", "b2", after="m2"),
        *of("a", "a1", after="m2"),
        *of("c", "c1", after="b1"),
    ]
    assert drawn(build(grouped(checkpoints))) == [
        "[main]", "  m1", "  m2", "    [a]", "      a1", "    [b]", "      b1", "        [c]", "          c1",
        "      b2", "  m3",
    ]  # fmt: skip


def test_main_comes_first_and_branches_that_left_none_stand_beside_it():
    checkpoints = [*of("alone", "x1"), *of("main", "m1"), *of("beta", "y1", after="pruned long ago")]
    assert drawn(build(grouped(checkpoints))) == ["[main]", "  m1", "[alone]", "  x1", "[beta]", "  y1"]


def test_a_branch_whose_first_checkpoints_are_gone_may_still_tell_by_its_name():
    left = "20260715T101530_0123abcd"
    branches = grouped([*of("main", left), *of(f"fork/{left}_a1b2c3", "f7", after="f6"), *of("own", "o7", after="o6")])
    assert drawn(build(branches)) == [
        "[main]", f"  {left}", f"    [fork/{left}_a1b2c3]", "      f7", "[own]", "  o7",
    ]  # fmt: skip


def test_a_branch_that_left_a_checkpoint_no_longer_kept_stands_under_the_branch():
    branches = [
        Branch("main", tuple(of("main", "m9"))),
        Branch("late", tuple(of("late", "l1")), Origin("main", "m2")),
        Branch("unstarted", (), Origin("main", "m9")),
        Branch("lost", (), Origin("gone", "g1")),
    ]
    assert drawn(build(branches)) == [
        "[main]", "  [late]", "    l1", "  m9", "    [unstarted]", "[lost]",
    ]  # fmt: skip


def test_damaged_records_that_name_each_other_lose_nothing():
    branches = [
        Branch("a", tuple(of("a", "a1", after="b1")), Origin("b", "b1")),
        Branch("b", tuple(of("b", "b1", after="a1")), Origin("a", "a1")),
        Branch("c", tuple(of("c", "c1", after="c1")), Origin("c", "c1")),
    ]
    assert drawn(build(branches)) == ["[b]", "  b1", "    [a]", "      a1", "[c]", "  c1"]


def test_two_runs_that_write_on_one_branch_are_one_list_in_order():
    checkpoints = [*of("main", "r1"), *of("main", "s1"), Checkpoint("r2", "main", "r1")]
    assert drawn(build(grouped(checkpoints))) == ["[main]", "  r1", "  s1", "  r2"]


def test_a_thousand_branches_of_a_thousand_checkpoints_are_quickly_nested():
    checkpoints = of("main", *(f"m{i}" for i in range(1000)))
    for i in range(1000):
        checkpoints += of(f"f{i}", f"f{i}-1", after=f"m{i}")
    [main] = build(grouped(checkpoints))
    assert all(len(node.forks) == 1 for node in main.checkpoints)
