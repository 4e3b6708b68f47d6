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
    """The task of a plan that grows is done: what becomes of the plan by it."""

    expand: Expand
    used: ReadSet
    ms: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt ended without an output. ``error`` is what it raised, for who performed it in this process."""

    error: BaseException | None = field(default=None, kw_only=True, compare=False)


@dataclass(frozen=True, slots=True)
class Ask(Stopped):
    """It needs a person's answer: to ``question``, at that step of its journal."""

    step: str
    question: str


@dataclass(frozen=True, slots=True)
class Retry(Stopped):
    """It failed, and may try again after ``delay`` seconds."""

    delay: float
    reason: str
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Fail(Stopped):
    """It failed for good. ``trace`` says where: see `failures`."""

    reason: str
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Release(Stopped):
    """It stops here, to resume elsewhere."""


@dataclass(frozen=True, slots=True)
class Lost(Stopped):
    """Another worker holds the claim: the result is discarded."""


Decision = Commit | Grown | Ask | Retry | Fail | Release | Lost
