"""Steps of a kickoff inside a task, recorded in the task's journal under their own prefix."""

from collections.abc import Sequence

from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne


class ChildJournal(OneByOne):
    """A `Recorder` of the steps of a kickoff inside a task, in the task's journal, under its own prefix."""

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal, self._prefix = journal, f"{name}/"
        self.name = name
        """What it is called there: the same in each attempt."""

    def recorded(self, under: str = "") -> dict[str, str]:
        """Return the records by name; of one part, without its prefix."""
        return self._journal.recorded_under(self._prefix + under)

    def record_step(
        self,
        step: str,
        value: str,
        *,
        replayed: Counters | None = None,
        entry: AccountKey | None = STEP,
        usage: Usage = NO_TOKENS,
        reported: bool = False,
    ) -> None:
        """Record a finished step."""
        self._journal.record_as(self._prefix + step, value, replayed, entry, usage, reported=reported)

    def begin_step(
        self, entry: AccountKey = STEP, *, supersedes: Sequence[AccountKey] = (), intent_only: bool = False
    ) -> None:
        """Note that a step begins."""
        self._journal.begin(entry, supersedes, intent_only=intent_only)

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent."""
        self._journal.mark_sent(entry)

    def note_unrecorded(self, where: str) -> None:
        """A model call that the journal cannot record is about to be sent."""
        self._journal.note_unrecorded(where)

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """Note that a step raised."""
        self._journal.drop(entry, intent_only=intent_only)

    def replayed(self, count: Counters) -> None:
        """Count replayed steps that no record follows."""
        self._journal.add_replayed(count)

    @property
    def can_wait(self) -> bool:
        """Whether the enclosing task can stop for a person."""
        return self._journal.can_wait

    def place(self, step: str) -> str:
        """Return the step for an answer in the journal of the outermost task."""
        return self._journal.place(self._prefix + step)
