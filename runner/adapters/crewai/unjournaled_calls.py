"""Counts model calls of CrewAI that bypassed the journal, because their transport is not journaled.

They are not in the ledger, and are made again when their task restarts: a run says how many there were.
"""

from typing import Any

from runner.journal.current_journal import journal_here
from runner.journal.journal import Journal


class UnjournaledCalls:
    """Compares, during one task, the model calls that CrewAI reports with those that the journal saw.

    CrewAI's own models report when they have answered; for other models CrewAI reports when they are asked.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._answered = self._unjournaled = self._asked = 0

    def answered(self, model: Any, seen: int, before: int) -> None:
        """Note that a model answered a call during which the journal saw ``seen`` requests; it had counted ``before``
        at the start.
        """
        if _is_own(model):
            self._answered += seen
            self._unjournaled += not seen and self._journal.calls == before

    def asked(self, context: Any) -> None:
        """Note that a model is about to be asked (a hook of CrewAI's)."""
        if journal_here() in (self._journal, None):  # else it is another task's, beside this one
            self._asked += not _is_own(context.llm)

    @property
    def count(self) -> int:
        """The least number of unjournaled calls: a call that its client retried may hide another one."""
        return self._unjournaled + max(0, self._asked - max(0, self._journal.calls - self._answered))


def _is_own(model: Any) -> bool:
    return type(model).__module__.partition(".")[0] == "crewai"
