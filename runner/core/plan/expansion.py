"""Plans that grow: a task's output determines which tasks follow it.

The tasks of such a plan share named texts on their branch, all of one version. A task that ends says what becomes of
them, and which tasks are there now; the store takes both with its output, if the texts have not changed since. If
they have, the task looks again: what it did stays done, only what it adds to is newer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from runner.core.plan import PlannedTask


@dataclass(frozen=True, slots=True)
class Shared:
    """The texts as they stand. ``version`` is "" on a branch where none was written yet."""

    version: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expansion:
    """The end of a task: its output, the tasks that are ready by it, texts to put and to drop, and lines to note."""

    output: str
    ready: tuple[PlannedTask, ...] = ()
    put: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


class Expand(Protocol):
    """A task that is done."""

    @property
    def record(self) -> dict[str, Any]:
        """Its output as it is to be stored: the engine adds what it keeps beside."""

    def __call__(self, shared: Shared, /) -> Expansion:
        """What it makes of the texts as they stand; asked again when they changed before that was stored."""


@dataclass(frozen=True, slots=True)
class Committed:
    """An output's record as it is stored; or, without a key, that a branch begins here, with inputs that it lays over
    and with records that a person put in the place of earlier ones."""

    key: str
    record: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    edits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Branch(Protocol):
    """What a task of a growing plan may read of its branch."""

    def initial_state(self) -> Mapping[str, Any]:
        """What the adapter said of the run when it was submitted."""

    def shared(self) -> Shared:
        """The texts as they stand now."""

    def records(self, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Stored outputs by key."""

    def history(self) -> Sequence[Committed]:
        """All that was committed on the branch and, before it left them, on its parents, in order."""
