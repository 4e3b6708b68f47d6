"""An attempt at a task, on the fleet or in a kickoff: its environment, its guardrail loop, its retries."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from runner.core import backoff
from runner.core.errors import GuardrailFailed, MissingDependency, OutputGone
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
    """Return the delay before the next attempt at a task, in seconds; None for no further attempt.

    Args:
        error: the last attempt's.
        failures: how many attempts failed, including the last one.
        retries: the task's retry options.
    """
    allowed, first = retries
    if failures > allowed or isinstance(error, NOT_INSTALLED):
        return None
    return backoff.delay(failures, first)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A crew with its adapter."""

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
    """The environment of an attempt at a claimed task: where its code comes from, what it reads, and where results go.

    This base class keeps no files and reports nothing.

    Attributes:
        origin: the prefix of the idempotency keys of its tool calls.
        unattributed: whether calls from threads without a context belong to the task.
        is_resumable: whether an interruption leaves the attempt unfinished, rather than failed.
        enclosed: whether it may run inside another task, in that task's own thread, and must leave the thread as it is.
    """

    unattributed = is_resumable = enclosed = False

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
        """Load the crew's code, and enter the task's folder."""

    def plan(self, loaded: Loaded) -> Plan:
        """Return the plan of the run."""
        return loaded.plan

    @abstractmethod
    def outputs(self, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """Return the outputs of the committed ones among these tasks."""

    def fetch(self, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """Return the outputs of these tasks. Raises `OutputGone` if one is not there."""
        found = self.outputs(keys)
        if gone := [key for key in keys if key not in found]:
            raise OutputGone(gone)
        return found

    def branch(self) -> Branch | None:
        """Return the branch, for reading, of a dynamic plan; None otherwise."""
        return None

    def stored_with(self, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:  # noqa: ARG002 - a hook
        """Return what is stored together with these outputs."""
        return {}

    def pacer(self) -> Pacer | None:
        """Return the rate limiter that the run's model calls share; None if there is none."""
        return None

    def warm(self, loaded: Loaded) -> None:  # noqa: B027 - a hook
        """Load what must not count against the task's timeout."""

    def at_work(self, loaded: Loaded, journal: Journal) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002 - a hook
        """Return the context in which the task's code runs."""
        return _NOTHING

    def left(self, note: Callable[[str, str], None]) -> dict[str, Any]:  # noqa: ARG002 - a hook
        """Return the files that the task left, to be stored; ``note`` appends a line to the run's events."""
        return {}

    def with_files(self, output: str, left: dict[str, Any], loaded: Loaded) -> str:  # noqa: ARG002 - a hook
        """Return the task's output together with its files."""
        return output

    @abstractmethod
    def failed(self, error: BaseException, loaded: Loaded | None) -> Retry | Fail:
        """Return the decision about an error; ``loaded`` is None if the code could not be loaded."""

    def note(self, kind: str, text: str) -> None:  # noqa: B027 - a hook
        """Append a line to the run's events."""

    def note_and_check(self, kind: str, text: str) -> None:
        """Append a line to the run's events, for the task's code. Raises what stops the task."""
        with self.cancel_scope.write:
            self.note(kind, text)
        self.cancel_scope.check()

    def unrecorded(self, where: str) -> None:
        """A model call that the journal cannot record is about to be sent."""
        self.note("calls_unrecorded", f"1 to {where}")

    @abstractmethod
    def record(self, decision: Decision, replayed: Counters) -> None:
        """Store the decision. Raises `ClaimLost` if the claim no longer holds."""

    def leave(self) -> None:  # noqa: B027 - a hook
        """Clean up after the attempt, whose decision is stored."""

    def ended(self, decision: Decision) -> None:  # noqa: B027 - a hook
        """Report the stored decision."""


def until_passed(
    make: Callable[[], R],
    check: Callable[[R, int], tuple[R, str | None]],
    retries: int,
    object_to: Callable[[str], None],
    whose: str,
) -> R:
    """The guardrail loop: return the first output that passes, as its guardrails leave it. Raises `GuardrailFailed`.

    Args:
        make: makes an output, taking into account the objection to the one before.
        check: takes an output and the number of failures, and returns the resulting output and the objection to it.
        retries: how many outputs may follow one that did not pass.
        object_to: called with the objection before another output is made.
        whose: the name of the output in the error, as in "the output of task 'a'".
    """
    for failed in range(retries + 1):
        output, why = check(make(), failed)
        if why is None:
            return output
        if failed < retries:
            object_to(why)
    times = "once" if retries == 0 else f"{retries + 1} times"
    raise GuardrailFailed(f"{whose} did not pass its guardrail, {times}; last: {why}")
