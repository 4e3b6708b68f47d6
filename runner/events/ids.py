"""The ids of events: in a process they count on; on the fleet every reader makes the same one from run and number."""

import hashlib
import itertools
import os
import secrets
import uuid
from functools import lru_cache

__all__ = ["event_id_of"]

_NAMESPACE = uuid.UUID("5f1e1f0c-6b0e-4c58-9a3e-0f2b6a1d7c43")
_BEGUN = hashlib.sha1(_NAMESPACE.bytes, usedforsecurity=False)


@lru_cache(maxsize=256)  # a task names its relatives in each of its events
def event_id_of(run_id: str, number: int) -> str | None:
    """The id of the event of this number; None for number 0, which stands for no event.

    It is ``uuid.uuid5(_NAMESPACE, f"{run_id}/{number}")``, at a third of what that costs.
    """
    if number <= 0:
        return None
    digest = _BEGUN.copy()
    digest.update(f"{run_id}/{number}".encode())
    found = digest.hexdigest()
    variant = "89ab"[int(found[16], 16) & 3]
    return f"{found[:8]}-{found[8:12]}-5{found[13:16]}-{variant}{found[17:20]}-{found[20:32]}"


class _Ids:
    """Where this process's ids begin: a random one, so that no two processes make the same."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.head = str(uuid.uuid4())[:-8]
        self.numbers = itertools.count(secrets.randbits(16))


_ids = _Ids()
os.register_at_fork(after_in_child=_ids.begin)


def make_event_id() -> str:
    """A new id. Those of one process differ in their last digits only: checkpoints are packed, and pack that well."""
    return f"{_ids.head}{next(_ids.numbers) & 0xFFFFFFFF:08x}"
