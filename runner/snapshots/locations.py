"""Resolves ``restore_from``: which provider reads it, and whether it is one checkpoint or a location with several."""

import contextlib
import json
from pathlib import Path

from runner.core.errors import RunnerError
from runner.providers.base import BaseProvider
from runner.providers.config import DEFAULT_LOCATION, CheckpointConfig
from runner.providers.detect import detect_provider


def provider_of(config: CheckpointConfig) -> BaseProvider:
    """Return the provider that reads ``config.restore_from``, detected from its form.

    A third-party provider cannot be detected, so the config's own is used if it knows the location.
    """
    named = config.provider
    if _is_own(config):
        return named
    found = detect_provider(str(config.restore_from))
    if type(named) is type(found) or not type(named).__module__.startswith("runner.providers"):
        return named
    return found


def one_of(provider: BaseProvider, config: CheckpointConfig) -> str:
    """Return the location of one checkpoint: the named one, or the newest complete one of a location."""
    location = str(config.restore_from)
    if _is_own(config) or _is_place(location) or _knows(provider, location):
        return provider.latest(config.location if _is_own(config) else location).location
    return location


def is_new(config: CheckpointConfig) -> bool:
    """Whether ``restore_from`` is the run's own location, and nothing is there yet.

    Such a run starts from the beginning, and the next one resumes from it.
    """
    return _is_own(config) and not config.provider.checkpoints(config.location)


def place_of(file: Path) -> Path | None:
    """Return the directory to which a checkpoint's file belongs, above its branch's folders; None if elsewhere."""
    if file.suffix != ".json":
        return None
    try:
        names = Path(str(json.loads(file.read_text("utf-8"))["branch"])).parts
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return file.parents[len(names)] if file.parent.parts[-len(names) :] == names else None


def place_around(location: str) -> str:
    """Return the location of which a directory is a branch, else the directory itself."""
    files = sorted(Path(location).glob("*_p-*.json"))
    found = place_of(files[-1]) if files else None
    return location if found is None else str(found)


def going_on_at(config: CheckpointConfig, branch: str, own: object) -> CheckpointConfig:
    """Return the config of a run restored with ``config``: without a location of its own, it writes where it was."""
    settled = config.going_on()
    if isinstance(own, CheckpointConfig):
        unsaid = {"on_events", "max_checkpoints"} & own.model_fields_set - config.model_fields_set
        settled = settled.model_copy(update={name: getattr(own, name) for name in unsaid})
    if "location" in config.model_fields_set or config.location != DEFAULT_LOCATION:
        return settled
    location = str(config.restore_from)
    if location.endswith(".json"):
        folder, names = Path(location).parent, Path(branch).parts  # LOCATION/BRANCH/FILE; a branch may have slashes
        if folder.parts[-len(names) :] != names:
            return settled  # a file that was copied elsewhere: its place is none to write to
        location = str(folder.parents[len(names) - 1])
    elif Path(location).is_dir():
        location = place_around(location)
    else:
        location = location.partition("#")[0]
    provider = provider_of(config)
    return settled.model_copy(update={"location": location, "provider": provider})


def _is_own(config: CheckpointConfig) -> bool:
    """Whether it resumes from where it writes to."""
    return config.location in (str(config.restore_from), f"{config.restore_from}.db")


def _knows(provider: BaseProvider, location: str) -> bool:
    """Whether a third-party provider has checkpoints there: only it knows what its locations look like."""
    if type(provider).__module__.startswith("runner.providers"):
        return False
    with contextlib.suppress(RunnerError, ValueError, OSError):
        return bool(provider.checkpoints(location))
    return False


def _is_place(location: str) -> bool:
    if "#" in location.rpartition("/")[2] or location.endswith(".json"):
        return False
    return Path(location).is_dir() or Path(location).is_file() or "://" in location
