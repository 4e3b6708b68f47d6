"""Branches as a tree: a fork is under the checkpoint it starts from. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runner.client.checkpoints.model import Branch, Checkpoint, Origin

_NAMED_AFTER = re.compile(r"^(?:fork|resume)/(?P<checkpoint>\d{8}T\d{6}_[0-9a-f]{8})_[0-9a-f]+$")


@dataclass
class CheckpointNode:
    """A checkpoint and the branches that left at it."""

    checkpoint: Checkpoint
    forks: "list[BranchNode]" = field(default_factory=list)


@dataclass
class BranchNode:
    """A branch, its checkpoints, and the branches that left at one that it no longer keeps."""

    branch: Branch
    checkpoints: list[CheckpointNode] = field(default_factory=list)
    forks: "list[BranchNode]" = field(default_factory=list)


def build(branches: Sequence[Branch]) -> list[BranchNode]:
    """Return the branches without a parent, each with its forks."""
    nodes = {
        branch.name: BranchNode(branch, [CheckpointNode(one) for one in branch.checkpoints]) for branch in branches
    }
    under: dict[str, str] = {}  # branch -> the branch that it stands under
    top = []
    for node in nodes.values():
        origin = node.branch.origin
        # Damaged records could name each other: a branch never stands under itself.
        if origin is None or origin.branch not in nodes or node.branch.name in _line(origin.branch, under):
            top.append(node)
            continue
        under[node.branch.name] = origin.branch
        parent = nodes[origin.branch]
        left = next((one for one in parent.checkpoints if one.checkpoint.id == origin.checkpoint), None)
        (left or parent).forks.append(node)
    return top


def _line(name: str, under: dict[str, str]) -> list[str]:
    line = [name]
    while line[-1] in under:
        line.append(under[line[-1]])
    return line


def grouped(checkpoints: Iterable[Checkpoint]) -> list[Branch]:
    """Group checkpoints (oldest first) into branches, main first, with origins by their parents, or a fork's name."""
    by_branch: dict[str, list[Checkpoint]] = {}
    home: dict[str, str] = {}
    for one in checkpoints:
        by_branch.setdefault(one.branch, []).append(one)
        home[one.id] = one.branch
    return [
        Branch(name, tuple(by_branch[name]), _origin(name, by_branch[name], home))
        for name in sorted(by_branch, key=lambda name: (name != "main", name))
    ]


def _origin(name: str, kept: list[Checkpoint], home: dict[str, str]) -> Origin | None:
    for one in kept:
        if home.get(one.parent, name) != name:
            return Origin(home[one.parent], one.parent)
    named = _NAMED_AFTER.match(name)
    if named and home.get(named["checkpoint"], name) != name:
        return Origin(home[named["checkpoint"]], named["checkpoint"])
    return None
