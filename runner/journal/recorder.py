"""The port to which a task's steps are recorded, and their observers."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage


class BegunStep(NamedTuple):
    """One of several steps that begin: see `Recorder.begin_step`."""

    entry: AccountKey = STEP
    supersedes: Sequence[AccountKey] = ()
    intent_only: bool = False


class DoneStep(NamedTuple):
    """The result of one of several steps: see `Recorder.record_step`."""

    step: str
    value: str
    entry: AccountKey | None = STEP
    usage: Usage = NO_TOKENS
    reported: bool = False


class Recorder(Protocol):
    """Where the steps of one task go."""

    def begin_step(
        self, entry: AccountKey = STEP, *, supersedes: Sequence[AccountKey] = (), intent_only: bool = False
    ) -> None:
        """A step is about to be done. In the account it stands for those around it, which were begun before.

        With ``intent_only`` a call is only intended: it is sent after `mark_sent`.
        """

    def begin_steps(self, begins: Sequence[BegunStep]) -> None:
        """Several are about to be done: the same in one write."""

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
        reported: bool = False,
    ) -> None:
        """It was done: keep its result. Without an entry others stand for it in the account.

        ``reported``: it is reported on the event bus elsewhere.
        """

    def record_steps(
        self, done: Sequence[DoneStep], *, dropped: int = 0, begins: Sequence[BegunStep] = (), replayed: Counters
    ) -> None:
        """Several were done, ``dropped`` steps raised: keep the results. Others begin when this returns."""

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """It was begun and raised: it is not in doubt. ``intent_only``: it was never sent."""

    @property
    def can_wait(self) -> bool:
        """Whether the task can stop for a person and resume when they have answered."""

    def place(self, step: str) -> str:
        """Where the answer to a question belongs: the step's name in the journal of the outermost task."""


class Post(Protocol):
    """What a `Recorder` may have as ``post_step``."""

    def __call__(
        self, step: str, value: str, *, replayed: Counters, entry: AccountKey, usage: Usage, reported: bool
    ) -> Callable[[], None]:
        """The same as `Recorder.record_step` of a call of a model, but it returns when that is sent.

        What it returns waits until the record is acknowledged, and raises what came of it; so does whatever is written
        next.
        """


class StepObserver(Protocol):
    """Notified of one step that is really done; not of a replayed one."""

    def began(self) -> None:
        """It is about to be done."""

    def ended(self, value: Any) -> None:
        """It was done and is recorded; ``value`` is what it returned."""

    def failed(self, error: BaseException) -> None:
        """It raised, and nothing is recorded."""


class OneByOne:
    """A `Recorder` that knows single steps only: of several, each is a write of its own."""

    def begin_steps(self: Recorder, begins: Sequence[BegunStep]) -> None:
        """Several are about to be done."""
        for entry, supersedes, intent_only in begins:
            self.begin_step(entry, supersedes=supersedes, intent_only=intent_only)

    def record_steps(
        self: Recorder,
        done: Sequence[DoneStep],
        *,
        dropped: int = 0,
        begins: Sequence[BegunStep] = (),
        replayed: Counters,
    ) -> None:
        """Several were done, ``dropped`` steps raised; others begin."""
        for step, value, entry, usage, reported in done:
            self.record_step(step, value, replayed=replayed, entry=entry, usage=usage, reported=reported)
            replayed = Counters()
        for _ in range(dropped):
            self.drop_step()
        self.begin_steps(begins)
