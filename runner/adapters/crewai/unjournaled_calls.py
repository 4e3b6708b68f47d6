"""Counts model calls of CrewAI that bypassed the journal, because their transport is not journaled.

They are not in the ledger, and are made again when their task restarts: a run says how many there were.
"""

from typing import Any

from runner.journal.current_journal import journal_here
from runner.journal.journal import Journal


class UnjournaledCalls:
    """Counts, in one task, what CrewAI says that it asked, beside what passed the journal.

    CrewAI's own models tell when they have answered; of others CrewAI tells that they are asked.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._answered = self._unjournaled = self._asked = 0

    def answered(self, model: Any, seen: int, before: int) -> None:
        """A model answered a call, in which the journal saw so many, and had seen ``before`` when it began."""
        if _is_own(model):
            self._answered += seen
            self._unjournaled += not seen and self._journal.calls == before

    def asked(self, context: Any) -> None:
        """A model is about to be asked: a hook of CrewAI's."""
        if journal_here() in (self._journal, None):  # else it is another task's, beside this one
            self._asked += not _is_own(context.llm)

    @property
    def count(self) -> int:
        """How many there were, at least: one that is made again by its client counts for two that are seen."""
        return self._unjournaled + max(0, self._asked - max(0, self._journal.calls - self._answered))


def _is_own(model: Any) -> bool:
    return type(model).__module__.partition(".")[0] == "crewai"
