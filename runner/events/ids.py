"""The ids of a run's events on the fleet: every reader makes the same one from the run and the number."""

import uuid

__all__ = ["event_id_of"]

_NAMESPACE = uuid.UUID("5f1e1f0c-6b0e-4c58-9a3e-0f2b6a1d7c43")


def event_id_of(run_id: str, number: int) -> str | None:
    """The id of the event of this number; None for number 0, which stands for no event."""
    return str(uuid.uuid5(_NAMESPACE, f"{run_id}/{number}")) if number > 0 else None
