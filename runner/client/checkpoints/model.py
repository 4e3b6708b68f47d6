"""Checkpoints as shown to people, independent of where they are stored. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from runner.core.diff import DONE, PENDING, Side, TaskSide
from runner.core.errors import NotFound
from runner.core.plan.branching import the_one

SKIPPED = "skipped"  #: a conditional task whose condition said no


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint without its content. Fields that its source cannot give cheaply are empty."""

    id: str
    branch: str
    parent: str = ""
    created_at: int = 0  #: milliseconds since 1970
    trigger: str = ""
    task: str = ""
    seq: int | None = None  #: on the fleet: its position on the branch
    size: int | None = None  #: stored on its own: bytes
    complete: bool = True
    location: str = ""  #: stored on its own: what a config's ``restore_from`` takes


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a branch left another. ``checkpoint`` is "" if that checkpoint is no longer kept."""

    branch: str
    checkpoint: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch and its checkpoints, oldest first. Only branches on the fleet have a ``status``."""

    name: str
    checkpoints: tuple[Checkpoint, ...] = ()
    origin: Origin | None = None
    status: str = ""


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task of a crew, or a method of a flow, as it was at a checkpoint."""

    key: str
    status: str = PENDING
    output: str | None = None
    description: str = ""
    agent: str = ""
    editable: bool = True  #: whether a fork can be given another output
    is_json: bool = False  #: whether that has to be JSON
    replaced: str | None = None  #: what that stands in the place of, where it is not the output

    @property
    def to_edit(self) -> str:
        """Return the text for a person to edit."""
        return self.replaced if self.replaced is not None else self.output or ""


@dataclass(frozen=True, slots=True)
class EntityView:
    """A crew, flow or agent in a checkpoint."""

    kind: str
    name: str
    done: int = 0
    total: int | None = None  #: None: it does not tell


@dataclass(frozen=True, slots=True)
class Details:
    """The content of one checkpoint."""

    checkpoint: Checkpoint
    entities: tuple[EntityView, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[TaskView, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict)  #: a flow's state
    version: str = ""
    events: int | None = None

    @property
    def progress(self) -> tuple[int, int]:
        """Return the number of completed tasks, and of all tasks."""
        return sum(task.status in (DONE, SKIPPED) for task in self.tasks), len(self.tasks)

    def side(self) -> Side:
        """Return it in the form for a comparison."""
        return Side(
            f"{self.checkpoint.id} ({self.checkpoint.branch})",
            self.inputs,
            {task.key: TaskSide(task.status, task.output) for task in self.tasks},
        )


class Source(Protocol):
    """A location of checkpoints. Reads afresh at each call; errors are `RunnerError`."""

    @property
    def title(self) -> str:
        """Describe the source in a few words."""

    @property
    def where(self) -> str:
        """Return what a person types for it, without a password."""

    def branches(self) -> Sequence[Branch]:
        """Return the branches with their checkpoints, the main one first."""

    def details(self, checkpoint: Checkpoint) -> Details:
        """Return the details of a checkpoint. Raises `CheckpointTorn`, and `NotFound` if it was pruned meanwhile."""

    def prune(self, keep: int, branch: str) -> int:
        """Keep exactly the newest ``keep`` checkpoints of a branch. Returns the number of removed ones."""

    def live(self) -> bool:
        """Whether checkpoints are being added."""


def everything(branches: Iterable[Branch]) -> list[Checkpoint]:
    """Return the checkpoints of all branches."""
    return [checkpoint for branch in branches for checkpoint in branch.checkpoints]


def newest(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """Return the newest complete checkpoint, or else the newest; of several at one moment, the last one listed."""
    return sorted([one for one in checkpoints if one.complete] or checkpoints, key=lambda one: one.created_at)[-1]


def branch_called(source: Source, name: str) -> Branch:
    """Return the branch of that name. Raises `NotFound`, which lists the existing names."""
    branches = source.branches()
    for branch in branches:
        if branch.name == name:
            return branch
    there = ", ".join(branch.name for branch in branches[:6]) + (", ..." if len(branches) > 6 else "")
    raise NotFound(f"{source.title} has no branch {name!r}" + (f"; it has {there}" if there else ": it is empty"))


def find(source: Source, beginning: str | None) -> Checkpoint:
    """The checkpoint by id or by an unambiguous beginning of it; None: the newest complete one. Raises `NotFound`."""
    found = everything(source.branches())
    if beginning is None:
        complete = [checkpoint for checkpoint in found if checkpoint.complete]
        if not complete:
            raise NotFound(f"{source.title} has no {'complete ' if found else ''}checkpoint")
        return newest(complete)
    return the_one(found, beginning, source.title, source.where)
