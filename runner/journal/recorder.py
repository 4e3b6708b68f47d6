"""The port to which a task's steps are recorded, and their observers."""

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import is_
from typing import Any, NamedTuple, Protocol

from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage


class BegunStep(NamedTuple):
    """One of several beginning steps: see `Recorder.begin_step`."""

    entry: AccountKey = STEP
    supersedes: Sequence[AccountKey] = ()
    intent_only: bool = False


OWN = BegunStep()  #: of the author's own steps


class DoneStep(NamedTuple):
    """The result of one of several steps: see `Recorder.record_step`."""

    step: str
    value: str
    entry: AccountKey | None = STEP
    usage: Usage = NO_TOKENS
    reported: bool = False


def are_own(entries: Sequence[AccountKey | None], usages: Sequence[Usage]) -> bool:
    """Whether all are the author's own steps without a model call, as those of `ctx.map`. No bytecode runs for each."""
    return all(map(is_, entries, repeat(STEP))) and all(map(is_, usages, repeat(NO_TOKENS)))


class Recorder(Protocol):
    """Records the steps of one task."""

    def begin_step(
        self, entry: AccountKey = STEP, *, supersedes: Sequence[AccountKey] = (), intent_only: bool = False
    ) -> None:
        """Note that a step begins. It is counted instead of the enclosing steps, which began before.

        With ``intent_only`` the call is only intended: it is sent after `mark_sent`.
        """

    def begin_steps(self, begins: Sequence[BegunStep]) -> None:
        """Note that several steps begin, in one write."""

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
        """Record the result of a step. Without an entry, other steps are counted instead of it.

        ``reported``: it is reported on the event bus elsewhere.
        """

    def record_steps(
        self, done: Sequence[DoneStep], *, dropped: int = 0, begins: Sequence[BegunStep] = (), replayed: Counters
    ) -> None:
        """Record the results of several steps; ``dropped`` steps raised. Others begin when this returns."""

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """Note that a step raised, so it is not in doubt. ``intent_only``: it was never sent."""

    @property
    def can_wait(self) -> bool:
        """Whether the task can stop for a person and resume with the answer."""

    def place(self, step: str) -> str:
        """Return the step for an answer: its name in the journal of the outermost task."""


class Post(Protocol):
    """The optional method ``post_step`` of a `Recorder`."""

    def __call__(
        self, step: str, value: str, *, replayed: Counters, entry: AccountKey, usage: Usage, reported: bool
    ) -> Callable[[], None]:
        """Send the record of a model call, as `Recorder.record_step` does, without waiting for the acknowledgement.

        The returned function waits for it, and raises if the write failed; so does the task's next write.
        """


class PostSteps(Protocol):
    """The optional method ``post_steps`` of a `Recorder`."""

    def __call__(
        self, done: Sequence[DoneStep], *, dropped: int, begins: Sequence[BegunStep], replayed: Counters
    ) -> Callable[[], None] | None:
        """Send what `Recorder.record_steps` records, without waiting for the acknowledgement.

        The returned function waits for it, and raises if the write failed; so does the task's next write. The steps
        that are noted begin when it returns. None if it is acknowledged already.
        """


class StepObserver(Protocol):
    """Observes one step that is really made; not a replayed one."""

    def began(self) -> None:
        """The step is about to be made."""

    def ended(self, value: Any) -> None:
        """The step is recorded; ``value`` is its result."""

    def failed(self, error: BaseException) -> None:
        """The step raised, and nothing is recorded."""


class OneByOne:
    """A `Recorder` that only has single writes: several steps are several writes."""

    def begin_steps(self: Recorder, begins: Sequence[BegunStep]) -> None:
        """Note that several steps begin."""
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
        """Record several results; ``dropped`` steps raised; others begin."""
        for step, value, entry, usage, reported in done:
            self.record_step(step, value, replayed=replayed, entry=entry, usage=usage, reported=reported)
            replayed = Counters()
        for _ in range(dropped):
            self.drop_step()
        self.begin_steps(begins)


class Uncounted(OneByOne):
    """A `Recorder` outside of runs: no step is in doubt there, and nothing is counted."""

    can_wait = False

    def begin_step(
        self, entry: AccountKey = STEP, *, supersedes: Sequence[AccountKey] = (), intent_only: bool = False
    ) -> None:
        """Do nothing."""

    def mark_sent(self, entry: AccountKey) -> None:
        """Do nothing."""

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """Do nothing."""

    def place(self, step: str) -> str:
        """Return the step itself."""
        return step
