"""Which step is about to begin when one was recorded: the one that began after its like the last time. Pure.

Who records a step may reserve the note of that one with it, which then begins without a word to the store.
"""

from runner.core.ledger import STEP, AccountKey


class NextStep(dict[AccountKey, AccountKey | None]):
    """What began after a step of each kind; None where nothing did soon. A dict, as each task makes one."""

    recorded: AccountKey | None = STEP  #: the step since which nothing began

    def begins(self, entry: AccountKey, *, soon: bool) -> None:
        """A step begins; ``soon``: at once after what was recorded before."""
        if self.recorded is not None:
            self[self.recorded] = entry if soon else None
            self.recorded = None

    def after(self, entry: AccountKey) -> AccountKey | None:
        """What is expected to begin soon, now that this one is recorded; None where nothing is."""
        self.recorded = entry
        return self.get(entry)
