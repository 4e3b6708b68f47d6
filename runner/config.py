"""When checkpoints are written, where, and how many are kept."""

import difflib
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from runner.events.types import CheckpointEventType

_KNOWN = get_args(CheckpointEventType)


def _known(events: Any) -> Any:
    for event in events if isinstance(events, list | tuple | set) else []:
        if event not in _KNOWN:
            near = difflib.get_close_matches(str(event), _KNOWN, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(_KNOWN)}"
            raise ValueError(f"unknown checkpoint event {event!r}: {hint}")
    return events


def _positive(value: int | None) -> int | None:
    if value is not None and value < 1:
        raise ValueError(f"max_checkpoints must be at least 1, got {value}")
    return value


class CheckpointConfig(BaseModel):
    """Checkpoint settings of a crew. On the fleet, checkpoints live in the run's own branch in Redis."""

    model_config = ConfigDict(extra="forbid")

    on_events: Annotated[list[CheckpointEventType], BeforeValidator(_known)] = ["task_completed"]
    max_checkpoints: Annotated[int | None, AfterValidator(_positive)] = None

    @property
    def trigger_all(self) -> bool:
        """Whether every event triggers."""
        return "*" in self.on_events

    @property
    def trigger_events(self) -> set[str]:
        """The events that trigger, as a set."""
        return set(self.on_events)


def resolve(setting: CheckpointConfig | bool | None) -> CheckpointConfig | None:
    """What ``checkpoint=`` means for a run on the fleet: checkpoints are on unless the crew says ``False``."""
    if setting is False:
        return None
    return setting if isinstance(setting, CheckpointConfig) else CheckpointConfig()
