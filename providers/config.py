"""When checkpoints are written, where, and how many are kept."""

import difflib
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, model_validator

from runner.core.settings import MOST
from runner.events.types import CheckpointEventType as CheckpointEventType
from runner.providers.base import REDIS_SCHEMES, BaseProvider
from runner.providers.detect import detect_provider
from runner.providers.json import JsonProvider

_KNOWN = get_args(CheckpointEventType)

DEFAULT_LOCATION = "./.checkpoints"


def _known(events: Any) -> Any:
    for event in events if isinstance(events, list | tuple | set) else []:
        if event not in _KNOWN:
            near = [name for name in _KNOWN if name.lower() == str(event).lower()]
            near = near or difflib.get_close_matches(str(event), _KNOWN, n=1)
            hint = f"did you mean {near[0]!r}?" if near else 'such as "task_completed", or "*" for all of them'
            raise ValueError(f"unknown checkpoint event {event!r}: {hint}")
    return list(events) if isinstance(events, tuple | set) else events


def _some(events: list[str]) -> list[str]:
    if not events:
        raise ValueError("on_events is empty: name events, or pass checkpoint=False to write none")
    return events


def _text(location: Any) -> Any:
    return str(location) if isinstance(location, Path) else location


def _named(restore_from: Any) -> Any:
    if restore_from == "":
        raise ValueError(
            "restore_from is empty: name a checkpoint, or a location with checkpoints; None starts from the beginning"
        )
    return restore_from


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"max_checkpoints is how many to keep, not {value}: None keeps all")
    return value


def _in_range(value: int | None) -> int | None:
    if value is not None and value < 1:
        raise ValueError(f"max_checkpoints must be at least 1, got {value}")
    if value is not None and value > MOST:
        raise ValueError(f"max_checkpoints must be at most {MOST}, got {value}")
    return value


class CheckpointConfig(BaseModel):
    """When a crew, a flow or an agent writes checkpoints, where, and how many are kept.

    Args:
        location: a directory, a database file or a Redis URL.
        on_events: the types of events that trigger a checkpoint; "*" for all but signals.
        provider: stores the checkpoints. Default: the provider for the location.
        max_checkpoints: how many each branch keeps; the oldest are removed after each write. None keeps all.
        restore_from: for ``kickoff(from_checkpoint=...)``, a checkpoint to resume from, or a location for its newest
            complete one.

    On the fleet, checkpoints are stored with the run in Redis.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    location: Annotated[str, BeforeValidator(_text)] = DEFAULT_LOCATION
    on_events: Annotated[list[CheckpointEventType], BeforeValidator(_known), AfterValidator(_some)] = ["task_completed"]
    provider: SerializeAsAny[BaseProvider] = Field(default_factory=JsonProvider)
    max_checkpoints: Annotated[int | None, BeforeValidator(_number), AfterValidator(_in_range)] = None
    restore_from: Annotated[Path | str | None, BeforeValidator(_named)] = None

    @model_validator(mode="before")
    @classmethod
    def _all_of_them(cls, given: Any) -> Any:
        """``trigger_all=True`` means ``on_events=["*"]``."""
        if not isinstance(given, dict) or "trigger_all" not in given:
            return given
        rest = {name: value for name, value in given.items() if name != "trigger_all"}
        events, every = rest.get("on_events", []), given["trigger_all"]
        if not isinstance(every, bool) or (not every and "*" in events):
            raise ValueError(
                f'trigger_all says whether "*" is among on_events, and cannot be {every!r} here: leave it out'
            )
        return rest | {"on_events": [*events, "*"]} if every and "*" not in events else rest

    @model_validator(mode="after")
    def _fit_provider_and_location(self) -> "CheckpointConfig":
        """Refuse a Redis URL for a provider of files. Give a database file without a suffix ``.db``."""
        if "provider" not in self.model_fields_set and self.location != DEFAULT_LOCATION:
            self.provider = detect_provider(self.location)
        if not self.location:
            raise ValueError("location must not be empty: a directory, a database file or a Redis URL")
        if self.provider.provider_type in ("json", "sqlite") and self.location.startswith(REDIS_SCHEMES):
            raise ValueError(
                f"location is a Redis URL, and {type(self.provider).__name__} writes files: leave provider out"
            )
        if self.provider.provider_type == "sqlite" and not Path(self.location).suffix:
            self.location = f"{self.location}.db"
        return self

    @property
    def trigger_all(self) -> bool:
        """Whether every event triggers a checkpoint."""
        return "*" in self.on_events

    @property
    def trigger_events(self) -> set[str]:
        """The events that trigger a checkpoint, as a set."""
        return set(self.on_events)

    def wants(self, event_type: str) -> bool:
        """Whether an event of this type triggers a checkpoint. Signals must be named: ``"*"`` installs no handlers."""
        return event_type in self.on_events or (self.trigger_all and not event_type.startswith("SIG"))

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that trigger a checkpoint."""
        return tuple(event for event in self.on_events if event.startswith("SIG"))

    def going_on(self) -> "CheckpointConfig":
        """Return a copy without ``restore_from``, for a run that was restored with this config."""
        return self.model_copy(update={"restore_from": None})


def is_setting(value: Any) -> Any:
    """Validate ``checkpoint=``. Raises ValueError, also for text: a location given by mistake would count as true."""
    if not isinstance(value, CheckpointConfig | bool | dict | None):
        where = f": CheckpointConfig(location={str(value)!r}) writes there" if isinstance(value, str | Path) else ""
        raise ValueError(f"checkpoint takes True, False, None or a CheckpointConfig, not {value!r}{where}")
    return value


Setting = Annotated[CheckpointConfig | bool | None, BeforeValidator(is_setting)]
"""What ``checkpoint=`` takes."""


def config_of(given: Any) -> CheckpointConfig:
    """Validate the value of ``from_checkpoint``. Raises TypeError."""
    if not isinstance(given, CheckpointConfig):
        raise TypeError(
            f"from_checkpoint takes a CheckpointConfig, as in CheckpointConfig(restore_from={str(given)!r})"
        )
    return given


def resolve(setting: CheckpointConfig | bool | None) -> CheckpointConfig | None:
    """Return the config of a run on the fleet: checkpoints are written unless the crew says ``False``."""
    if setting is False:
        return None
    return setting if isinstance(setting, CheckpointConfig) else CheckpointConfig()
