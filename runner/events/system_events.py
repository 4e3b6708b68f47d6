"""Events of checkpoints, and of the signals that a process gets."""

import signal
from enum import IntEnum
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from runner.events.base import ErrorText, KnownEvent


class _CheckpointEvent(KnownEvent):
    recorded = False  # each checkpoint would hold what was said of all before it

    location: str = ""
    provider: str | None = None
    branch: str | None = None
    checkpoint_id: str | None = None
    parent_id: str | None = None


class CheckpointBaseEvent(_CheckpointEvent):
    """What the events of writing and pruning checkpoints have in common."""


class CheckpointStartedEvent(CheckpointBaseEvent):
    """A checkpoint is about to be written."""

    type: Literal["checkpoint_started"] = "checkpoint_started"
    trigger: str | None = None


class CheckpointCompletedEvent(CheckpointBaseEvent):
    """A checkpoint was written."""

    type: Literal["checkpoint_completed"] = "checkpoint_completed"
    trigger: str | None = None
    duration_ms: float = 0.0


class CheckpointFailedEvent(CheckpointBaseEvent):
    """A checkpoint could not be written; the run continues."""

    type: Literal["checkpoint_failed"] = "checkpoint_failed"
    trigger: str | None = None
    error: ErrorText = ""


class CheckpointPrunedEvent(CheckpointBaseEvent):
    """Old checkpoints were removed."""

    type: Literal["checkpoint_pruned"] = "checkpoint_pruned"
    removed_count: int = 0
    max_checkpoints: int | None = None


class CheckpointForkBaseEvent(_CheckpointEvent):
    """What the events of a fork have in common."""

    parent_branch: str | None = None


class CheckpointForkStartedEvent(CheckpointForkBaseEvent):
    """A branch is about to leave a checkpoint."""

    type: Literal["checkpoint_fork_started"] = "checkpoint_fork_started"


class CheckpointForkCompletedEvent(CheckpointForkBaseEvent):
    """A branch left a checkpoint."""

    type: Literal["checkpoint_fork_completed"] = "checkpoint_fork_completed"


class CheckpointRestoreBaseEvent(_CheckpointEvent):
    """What the events of a restore have in common."""


class CheckpointRestoreStartedEvent(CheckpointRestoreBaseEvent):
    """A checkpoint is about to be read."""

    type: Literal["checkpoint_restore_started"] = "checkpoint_restore_started"


class CheckpointRestoreCompletedEvent(CheckpointRestoreBaseEvent):
    """A checkpoint was read, and the run resumes from it."""

    type: Literal["checkpoint_restore_completed"] = "checkpoint_restore_completed"
    duration_ms: float = 0.0


class CheckpointRestoreFailedEvent(CheckpointRestoreBaseEvent):
    """A checkpoint could not be read."""

    type: Literal["checkpoint_restore_failed"] = "checkpoint_restore_failed"
    error: ErrorText = ""


class SignalType(IntEnum):
    """The signals that can trigger a checkpoint."""

    SIGTERM = signal.SIGTERM
    SIGINT = signal.SIGINT
    SIGHUP = signal.SIGHUP
    SIGTSTP = signal.SIGTSTP
    SIGCONT = signal.SIGCONT


class _SignalEvent(KnownEvent):
    reason: str | None = None


class SigTermEvent(_SignalEvent):
    """The process is asked to end."""

    type: Literal["SIGTERM"] = "SIGTERM"
    signal_number: SignalType = SignalType.SIGTERM


class SigIntEvent(_SignalEvent):
    """SIGINT: Ctrl-C was pressed."""

    type: Literal["SIGINT"] = "SIGINT"
    signal_number: SignalType = SignalType.SIGINT


class SigHupEvent(_SignalEvent):
    """The terminal is gone."""

    type: Literal["SIGHUP"] = "SIGHUP"
    signal_number: SignalType = SignalType.SIGHUP


class SigTStpEvent(_SignalEvent):
    """SIGTSTP: Ctrl-Z was pressed."""

    type: Literal["SIGTSTP"] = "SIGTSTP"
    signal_number: SignalType = SignalType.SIGTSTP


class SigContEvent(_SignalEvent):
    """SIGCONT: the process continues after it was stopped."""

    type: Literal["SIGCONT"] = "SIGCONT"
    signal_number: SignalType = SignalType.SIGCONT


SignalEvent = Annotated[
    SigTermEvent | SigIntEvent | SigHupEvent | SigTStpEvent | SigContEvent, Field(discriminator="type")
]
"""Any of the five."""

signal_event_adapter: TypeAdapter[Any] = TypeAdapter(SignalEvent)

SIGNAL_EVENT_TYPES: tuple[type[KnownEvent], ...] = (SigTermEvent, SigIntEvent, SigHupEvent, SigTStpEvent, SigContEvent)


def signal_event(number: int, reason: str | None = None) -> KnownEvent:
    """The event for a signal. Raises ValueError for one that is not among the five."""
    event: KnownEvent = signal_event_adapter.validate_python({"type": SignalType(number).name, "reason": reason})
    return event
