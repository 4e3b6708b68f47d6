"""The port to which a task's steps are recorded, and their observers."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage


class DoneStep(NamedTuple):
    """The result of one of several steps; it ``counts`` unless others stand for it in the account."""

    step: str
    value: str
    counts: bool = True


class Recorder(Protocol):
    """Where the steps of one task go."""

    def begin_step(
        self, entry: AccountKey = STEP, *, supersedes: Sequence[AccountKey] = (), intent_only: bool = False
    ) -> None:
        """A step is about to be done. In the account it stands for those around it, which were begun before.

        With ``intent_only`` a call is only intended: it is sent after `mark_sent`.
        """

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent now."""

    def record_step(
        self,
        step: str,
        value: str,
        *,
        replayed: Counters,
        entry: AccountKey | None = STEP,
        usage: Usage = NO_TOKENS,
        told: bool = False,
    ) -> None:
        """It was done: keep its result. Without an entry others stand for it in the account.

        ``told``: it is reported on the event bus elsewhere.
        """

    def record_steps(self, done: Sequence[DoneStep], *, dropped: int = 0, begins: int = 0, replayed: Counters) -> None:
        """Steps side by side were done, others raised: keep the results. So many more begin when this returns."""

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """It was begun and raised: it is not in doubt. ``intent_only``: it was never sent."""

    @property
    def can_wait(self) -> bool:
        """Whether the task can stop for a person and resume when they have answered."""

    def place(self, step: str) -> str:
        """Where the answer to a question belongs: the step's name in the journal of the outermost task."""


class StepObserver(Protocol):
    """Notified of one step that is really done; not of a replayed one."""

    def began(self) -> None:
        """It is about to be done."""

    def ended(self, value: Any) -> None:
        """It was done and is recorded; ``value`` is what it returned."""

    def failed(self, error: BaseException) -> None:
        """It raised, and nothing is recorded."""


def one_by_one(
    recorder: Recorder, done: Sequence[DoneStep], *, dropped: int = 0, begins: int = 0, replayed: Counters
) -> None:
    """The same for a recorder that knows single steps only."""
    for one in done:
        recorder.record_step(one.step, one.value, replayed=replayed, entry=STEP if one.counts else None)
        replayed = Counters()
    for _ in range(dropped):
        recorder.drop_step()
    for _ in range(begins):
        recorder.begin_step()
