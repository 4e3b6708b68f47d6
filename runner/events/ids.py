"""Ids of events: consecutive in a process; on the fleet derived from the run and the event's number."""

import itertools
import os
import secrets
import uuid

from runner.core.jobs import event_id_of

__all__ = ["event_id_of"]


class _Ids:
    """The random start of this process's ids, so that no two processes make the same."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.head = str(uuid.uuid4())[:-8]
        self.numbers = itertools.count(secrets.randbits(16))


_ids = _Ids()
os.register_at_fork(after_in_child=_ids.begin)


def make_event_id() -> str:
    """Return a new id. Ids of one process differ only in their last digits, so they compress well in checkpoints."""
    return f"{_ids.head}{next(_ids.numbers) & 0xFFFFFFFF:08x}"
