"""Notifies the worker's pool that a task waits for a model and needs no core meanwhile."""

from collections.abc import Callable

from runner.core.ledger import AccountKey
from runner.journal.recorder import Recorder


class WaitNotifier:
    """Delegates to another recorder, and notifies once that a model call was sent. Replayed calls are not sent."""

    def __init__(self, recorder: Recorder, notify: Callable[[], None]) -> None:
        self._recorder, self._notify = recorder, notify
        self._notified = False
        self.begin_step, self.begin_steps = recorder.begin_step, recorder.begin_steps
        self.record_step, self.record_steps = recorder.record_step, recorder.record_steps
        self.drop_step, self.place = recorder.drop_step, recorder.place

    @property
    def can_wait(self) -> bool:
        """Whether the task can stop for a person."""
        return self._recorder.can_wait

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent now."""
        self._recorder.mark_sent(entry)
        if entry.kind == "model" and not self._notified:
            self._notified = True
            self._notify()
