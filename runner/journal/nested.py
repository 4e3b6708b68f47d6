"""Steps of a kickoff inside a task, recorded in the task's journal under their own prefix."""

from collections.abc import Sequence

from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage
from runner.journal.journal import Journal


class ChildJournal:
    """What a kickoff inside of a task records in the task's journal, under names of its own."""

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal, self._prefix = journal, f"{name}/"
        self.name = name
        """What it is called there: the same in each attempt."""

    def recorded(self, under: str = "") -> dict[str, str]:
        """What is recorded, by name; of one part, without its prefix."""
        return self._journal.recorded_under(self._prefix + under)

    def record(
        self,
        name: str,
        value: str,
        *,
        replayed: Counters | None = None,
        entry: AccountKey | None = STEP,
        usage: Usage = NO_TOKENS,
        reported: bool = False,
    ) -> None:
        """Record a step that was done."""
        self._journal.record_as(self._prefix + name, value, replayed, entry, usage, reported=reported)

    def begin(
        self, entry: AccountKey = STEP, *, supersedes: Sequence[AccountKey] = (), intent_only: bool = False
    ) -> None:
        """A step is about to be done."""
        self._journal.begin(entry, supersedes, intent_only=intent_only)

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent."""
        self._journal.mark_sent(entry)

    def note_unrecorded(self, where: str) -> None:
        """A call of a model leaves that no journal keeps."""
        self._journal.note_unrecorded(where)

    def drop(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """It was begun and raised."""
        self._journal.drop(entry, intent_only=intent_only)

    def replayed(self, count: Counters) -> None:
        """So many steps of it were replayed, with no record after them."""
        self._journal.add_replayed(count)

    @property
    def can_wait(self) -> bool:
        """Whether the task around it can stop for a person."""
        return self._journal.can_wait

    def place(self, name: str) -> str:
        """Where the answer to a question that is asked in here belongs, in the journal of the outermost task."""
        return self._journal.place(self._prefix + name)
