"""An attempt at a task, on the fleet or in a kickoff: its environment, its guardrail loop, and whether and when to
retry."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from runner.core import backoff
from runner.core.errors import GuardrailFailed, MissingDependency
from runner.core.jobs import Claim
from runner.core.ledger import Counters
from runner.core.output import TaskOutput
from runner.core.plan import Plan
from runner.core.plan.expansion import Branch
from runner.core.waiting import Waiter
from runner.engine.adapter import Adapter, GrowingAdapter
from runner.engine.decisions import Decision, Fail, Retry
from runner.engine.work import Conversation
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.rate_limit import Pacer
from runner.journal.recorder import Recorder, StepObserver

P = ParamSpec("P")
R = TypeVar("R")

Retries = tuple[int, float]
"""How many attempts may follow a failed one, and the seconds before the first of them: see `Adapter.retry`."""

NOT_INSTALLED = (ImportError, MissingDependency)  #: what no other attempt in the same place does better


def next_delay(error: BaseException, failures: int, retries: Retries) -> float | None:
    """How long to wait before the next attempt at a task, in seconds; None if there is to be none.

    Args:
        error: what the last attempt failed of.
        failures: how many attempts failed, the last one included.
        retries: how the task is retried.
    """
    allowed, first = retries
    if failures > allowed or isinstance(error, NOT_INSTALLED):
        return None
    return backoff.delay(failures, first)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A crew, and how it is planned and performed."""

    crew: Any
    adapter: Adapter
    plan: Plan
    made_with: frozenset[str] = frozenset()
    """The inputs that its class was made with: every task of it uses them."""
    growing: GrowingAdapter | None = None
    """The adapter, if its plans grow."""
    files: tuple[Path, ...] = ()
    """Those that were imported for it, where it was read for one task."""


_NOTHING = contextlib.nullcontext()


class Attempt(ABC):
    """What an attempt at a claimed task is made in: whence its code comes, what it reads, what is kept and reported.

    As it stands here it keeps no files and reports nothing.
    ``origin`` is what the idempotency keys of its tools begin with. With ``strays``, calls from threads that do not
    know what they are part of are the task's; one that ``goes_on`` is not over when it is interrupted. One that may be
    ``enclosed`` in a task, whose code makes it in that task's own thread, leaves that thread as it is.
    """

    unattributed = goes_on = enclosed = False

    waiter: Waiter | None = None  #: the task, where it shares its thread with others
    claim: Claim
    recorder: Recorder
    cancel_scope: CancelScope
    origin: str
    conversation: Conversation
    watch: Callable[[str, Callable[..., Any]], StepObserver] | None = None  #: gives what observes a step

    def run(self, do: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it in the task's context."""
        return do(*args, **kwargs)

    @abstractmethod
    def load(self, journal: Journal) -> Loaded:
        """The crew's code, and the task's folder around it."""

    def plan(self, loaded: Loaded) -> Plan:
        """The plan of the run."""
        return loaded.plan

    @abstractmethod
    def outputs(self, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """The outputs of those of these tasks that are done."""

    def branch(self) -> Branch | None:
        """The branch, to read, of a plan that grows; None where plans do not."""
        return None

    def beside(self, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:  # noqa: ARG002 - a hook
        """What is stored beside these outputs."""
        return {}

    def pacer(self) -> Pacer | None:
        """Counts the run's calls of models for all who make them; None where they are not counted."""
        return None

    def warm(self, loaded: Loaded) -> None:  # noqa: B027 - a hook
        """Load what is not to cost the task's own time."""

    def at_work(self, loaded: Loaded, journal: Journal) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002 - a hook
        """The task's code runs in this context."""
        return _NOTHING

    def left(self, note: Callable[[str, str], None]) -> dict[str, Any]:  # noqa: ARG002 - a hook
        """The files that the task left, to be kept; ``note`` puts a line among the run's events."""
        return {}

    def with_files(self, output: str, left: dict[str, Any], loaded: Loaded) -> str:  # noqa: ARG002 - a hook
        """The task's output with what it left."""
        return output

    @abstractmethod
    def failed(self, error: BaseException, loaded: Loaded | None) -> Retry | Fail:
        """What comes of an error; ``loaded`` is None where the code did not come."""

    def note(self, kind: str, text: str) -> None:  # noqa: B027 - a hook
        """Put a line among the run's events."""

    def unrecorded(self, where: str) -> None:
        """A call of a model goes there that no journal keeps."""
        self.note("calls_unrecorded", f"1 to {where}")

    @abstractmethod
    def record(self, decision: Decision, replayed: Counters) -> None:
        """Store what came of it. Raises `ClaimLost` if the claim does not hold any more."""

    def leave(self) -> None:  # noqa: B027 - a hook
        """The attempt is over, and what came of it is stored."""

    def ended(self, decision: Decision) -> None:  # noqa: B027 - a hook
        """Tell what was stored."""


def until_passed(
    make: Callable[[], R],
    check: Callable[[R, int], tuple[R, str | None]],
    retries: int,
    object_to: Callable[[str], None],
    whose: str,
) -> R:
    """The guardrail loop: the first output that passes, as its guardrails leave it. Raises `GuardrailFailed`.

    Args:
        make: makes an output, taking into account what was said of the one before.
        check: given an output and how many did not pass before it, gives it as it is to be, and why it does not pass.
        retries: how many outputs may follow one that did not pass.
        object_to: hears why an output did not pass, before another one is made.
        whose: what the output is called in the error, as in "the output of task 'a'".
    """
    for failed in range(retries + 1):
        output, why = check(make(), failed)
        if why is None:
            return output
        if failed < retries:
            object_to(why)
    times = "once" if retries == 0 else f"{retries + 1} times"
    raise GuardrailFailed(f"{whose} did not pass its guardrail, {times}; last: {why}")
