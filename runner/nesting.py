"""What a call or a kickoff is part of: the journal of the task around it, if there is one."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from runner.ledger import NO_TOKENS, STEP, Entry, Tally, Usage

if TYPE_CHECKING:
    from runner.journal import Journal


class Nest:
    """What a kickoff inside of a task records in the task's journal, under names of its own."""

    def __init__(self, journal: "Journal", prefix: str) -> None:
        self._journal = journal
        self._prefix = prefix

    @property
    def name(self) -> str:
        """What it is called there: the same in each attempt."""
        return self._prefix.rstrip("/")

    def recorded(self, under: str = "") -> dict[str, str]:
        """What is recorded, by name; of one part, without its prefix."""
        return self._journal.recorded_under(self._prefix + under)

    def record(
        self,
        name: str,
        value: str,
        *,
        replayed: Tally | None = None,
        entry: Entry | None = STEP,
        usage: Usage = NO_TOKENS,
        told: bool = False,
    ) -> None:
        """Record a step that was done."""
        self._journal.record_as(self._prefix + name, value, replayed, entry, usage, told=told)

    def begin(self, entry: Entry = STEP, *, instead_of: Sequence[Entry] = ()) -> None:
        """A step is about to be done."""
        self._journal.begin(entry, instead_of)

    def drop(self, entry: Entry = STEP) -> None:
        """It was begun and raised."""
        self._journal.drop(entry)

    def replayed(self, count: Tally) -> None:
        """So many steps of it were replayed, with no record after them."""
        self._journal.add_replayed(count)

    @property
    def can_wait(self) -> bool:
        """Whether the task around it can stop for a person."""
        return self._journal.can_wait

    def place(self, name: str) -> str:
        """Where the answer to a question that is asked in here belongs, in the journal of the outermost task."""
        return self._journal.place(self._prefix + name)


_enclosing: ContextVar["Journal | None"] = ContextVar("runner_enclosing_journal", default=None)
_gathering: list["Journal"] = []  # those that take in what has no context


@contextlib.contextmanager
def inside_of(journal: "Journal", *, strays: bool = False) -> Iterator[None]:
    """Kickoffs and calls of models in this context are part of the task whose journal this is.

    With ``strays`` calls without a context are, too, while it is the only journal of which that was said.
    """
    token = _enclosing.set(journal)
    if strays:
        _gathering.append(journal)
    try:
        yield
    finally:
        if strays:
            _gathering.remove(journal)
        _enclosing.reset(token)


def journal_here() -> "tuple[Journal, bool] | None":
    """The journal that a call made here belongs to, and whether that is only a guess."""
    journal = _enclosing.get()
    if journal is not None:
        return journal, False
    gathering = list(_gathering)
    return (gathering[0], True) if len(gathering) == 1 else None


def nest(name: str, *about: Any) -> Nest | None:
    """Where a kickoff that begins here records what it does, if it is inside of a task. The same kickoff finds the same
    records when the task begins anew."""
    journal = _enclosing.get()
    return journal.nest(name, *about) if journal is not None else None
