"""Dynamic plans: a task's output determines which tasks follow it.

The tasks of a branch share named texts with one version number. A finished task says how to change them, and which
tasks exist now; the store commits both with its output if the texts have not changed since. If they have, that decision
alone is made again, not the task's work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from runner.core.plan import PlannedTask


@dataclass(frozen=True, slots=True)
class Shared:
    """The current texts. ``version`` is "" on a branch where none was written yet."""

    version: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expansion:
    """The result of a task: its output, the tasks that are ready, texts to set and to remove, and lines to log."""

    output: str
    ready: tuple[PlannedTask, ...] = ()
    put: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


class Expand(Protocol):
    """A finished task."""

    @property
    def record(self) -> dict[str, Any]:
        """The output as it is stored; the engine adds its own fields."""

    def __call__(self, shared: Shared, /) -> Expansion:
        """Return the expansion for the current texts; called again if they change before it is stored."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The stored record of an output; without a key, the start of a branch, with changed inputs and edited records."""

    key: str
    record: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    edits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Branch(Protocol):
    """What a task of a dynamic plan may read of its branch."""

    def initial_state(self) -> Mapping[str, Any]:
        """Return what the adapter's ``initial_state`` returned when the run was submitted."""

    def shared(self) -> Shared:
        """Return the current texts."""

    def records(self, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return stored outputs by key."""

    def history(self) -> Sequence[Committed]:
        """Return everything committed on the branch and, up to the fork points, on its ancestors, in order."""
