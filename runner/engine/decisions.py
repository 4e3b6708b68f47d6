"""The outcomes of performing a task, as values. The caller stores them."""

from dataclasses import dataclass, field

from runner.core.plan import PlannedTask
from runner.core.plan.dependencies import NOTHING, ReadSet
from runner.core.plan.expansion import Expand


@dataclass(frozen=True, slots=True)
class Commit:
    """The task is done: its output, its dependents, what it used, and how long it took."""

    output: str
    unlocks: tuple[PlannedTask, ...]
    used: ReadSet = NOTHING
    ms: int | None = None


@dataclass(frozen=True, slots=True)
class Grown:
    """A task of a dynamic plan is done: how the plan grows."""

    expand: Expand
    used: ReadSet
    ms: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt ended without an output. ``error`` is what it raised, for the caller in this process."""

    error: BaseException | None = field(default=None, kw_only=True, compare=False)


@dataclass(frozen=True, slots=True)
class Ask(Stopped):
    """The task needs a person's answer to ``question``, at that step of its journal."""

    step: str
    question: str


@dataclass(frozen=True, slots=True)
class Retry(Stopped):
    """The task failed, and is retried after ``delay`` seconds."""

    delay: float
    reason: str
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Fail(Stopped):
    """The task failed for good. ``trace`` is its traceback: see `failures`."""

    reason: str
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Release(Stopped):
    """The task is handed back, to resume elsewhere."""


@dataclass(frozen=True, slots=True)
class Lost(Stopped):
    """Another worker holds the claim: the result is discarded."""


Decision = Commit | Grown | Ask | Retry | Fail | Release | Lost
