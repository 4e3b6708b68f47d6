"""The state of kickoffs in this process: entities, events, and the position among their checkpoints."""

import json
import logging
import time
import uuid
from collections.abc import Iterable
from typing import Any, Self

from pydantic import PrivateAttr, RootModel, model_serializer
from pydantic_core import PydanticSerializationError, to_json

from runner.core.compatibility import VERSION_KEY
from runner.core.errors import BadCheckpoint, one_line
from runner.core.plain_text import of_class
from runner.core.private_state import Private
from runner.events.bus import event_bus
from runner.events.record import EventRecord
from runner.events.system_events import (
    CheckpointCompletedEvent,
    CheckpointFailedEvent,
    CheckpointForkCompletedEvent,
    CheckpointForkStartedEvent,
    CheckpointRestoreCompletedEvent,
    CheckpointRestoreFailedEvent,
    CheckpointRestoreStartedEvent,
    CheckpointStartedEvent,
)
from runner.providers.base import BaseProvider, check_branch
from runner.providers.config import CheckpointConfig
from runner.providers.json import JsonProvider
from runner.snapshots import locations
from runner.snapshots.kinds import KINDS, kind_of
from runner.snapshots.lock import StateLock
from runner.snapshots.migration import VERSION, migrate
from runner.snapshots.pins import Pins
from runner.snapshots.progress import Progress

logger = logging.getLogger("runner.snapshots")


class RuntimeState(RootModel[list[Any]]):
    """The crews, flows and agents that run in this process, with their events; a checkpoint is a snapshot of it.

    `checkpoint` writes one now. Code that changes an entity while it runs holds ``lock``, so a snapshot is consistent.
    """

    root: list[Any]

    _provider: BaseProvider = PrivateAttr(default_factory=JsonProvider)
    _event_record: EventRecord = PrivateAttr(default_factory=EventRecord)
    _checkpoint_id: str | None = PrivateAttr(default=None)
    _parent_id: str | None = PrivateAttr(default=None)
    _branch: str = PrivateAttr(default="main")
    _lock: StateLock = PrivateAttr(default_factory=StateLock)
    _progress: dict[int, Progress] = PrivateAttr(default_factory=dict)
    _restored: bool = PrivateAttr(default=False)
    _pins: Pins = PrivateAttr(default_factory=Pins)
    _forked: bool = PrivateAttr(default=False)
    _in_flight: set[int] = PrivateAttr(default_factory=set)

    # -- what it is

    event_record = Private[EventRecord]("_event_record", "What happened, up to now.")
    lock = Private[StateLock]("_lock", "Held while an event is recorded, and while a picture is taken.")
    progress = Private[dict[int, Progress]]("_progress", "How far its kickoffs are, by the identity of the entity.")
    in_flight = Private[set[int]](
        "_in_flight", "The restored entities that wait, as data, for their code to be kicked off again, by identity."
    )
    forked = Private[bool]("_forked", "Whether it left the branch that it was on.")
    pins = Private[Pins]("_pins", "The checkpoints that it stands on while its kickoff lasts.")
    restored = Private[bool]("_restored", "Whether it came from a checkpoint.")
    provider = Private[BaseProvider]("_provider", "Where `checkpoint` writes to.")
    checkpoint_id = Private[str | None]("_checkpoint_id", "The checkpoint written or restored last.")
    parent_id = Private[str | None]("_parent_id", "The parent of the next checkpoint.")
    branch = Private[str]("_branch", "The branch that checkpoints are written on.")

    def register(self, entity: Any) -> None:
        """Add an entity, once. An agent of a crew in the state is part of that crew."""
        if getattr(entity, "entity_type", None) not in KINDS:
            return
        with self._lock:
            known = {id(one) for one in self.root}
            if id(entity) in known or (entity.entity_type == "agent" and id(getattr(entity, "crew", None)) in known):
                return
            self.root.append(entity)

    def forget(self, entity: Any) -> None:
        """Remove an entity."""
        with self._lock:
            self.root[:] = [one for one in self.root if one is not entity]
            self._progress.pop(id(entity), None)

    # -- as data

    def describe(self, trigger: str | None = None) -> dict[str, Any]:
        """Return a snapshot of the state as JSON-able data."""
        with self._lock:
            data: dict[str, Any] = {
                VERSION_KEY: VERSION,
                "parent_id": self._parent_id,
                "branch": self._branch,
                "entities": [kind_of(entity.entity_type).describe(entity, self) for entity in self.root],
                "event_record": self._event_record.compact(),
            }
        return {**data, "trigger": trigger} if trigger else data

    @model_serializer(mode="plain")
    def _serialize(self) -> dict[str, Any]:
        return self.describe()

    def to_text(self, trigger: str | None = None) -> str:
        """Return `describe` as JSON text."""
        data = self.describe(trigger)
        try:
            return to_json(data, inf_nan_mode="null").decode()
        except PydanticSerializationError:  # half a surrogate pair has a spelling in JSON, and none in UTF-8
            return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Build a state from what `describe` returned, in this or an earlier version. Raises `BadCheckpoint`.

        Its entities have their data and no code.
        """
        data = migrate(data)
        state = cls(root=[])
        state._parent_id = data.get("parent_id")
        try:
            state._branch = data.get("branch") or "main"
            check_branch(state._branch)
            state._event_record = EventRecord.load(data.get("event_record") or {})
            for entity in data.get("entities") or []:
                state.root.append(kind_of(entity["entity_type"]).build(entity, state))
        except BadCheckpoint:
            raise
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise BadCheckpoint(
                f"the checkpoint's data is inconsistent: {' '.join(str(error).split())[:300]}"
            ) from None
        return state

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> Self:
        """Build a state from JSON text. Raises `BadCheckpoint`, a `ValueError`."""
        try:
            data = json.loads(json_data)
        except ValueError as error:
            raise BadCheckpoint(f"the checkpoint is torn or not JSON: {error}") from None
        return cls.model_validate(data)

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Self:
        """Build a state from its data, or from entities."""
        if isinstance(obj, dict):
            return cls.from_data(obj)
        if isinstance(obj, list):
            return cls(root=obj)
        if isinstance(obj, cls):
            return obj
        raise BadCheckpoint(f"a checkpoint is a JSON object, not {of_class(obj)}")

    # -- writing

    def checkpoint(self, location: str) -> str:
        """Write a checkpoint now and return its location. Raises what the provider raised."""
        with self._lock:
            return self.write(self._provider, location)

    async def acheckpoint(self, location: str) -> str:
        """`checkpoint`, by the provider's async method."""
        with _Write(self, self._provider, location) as write:
            write.done(await self._provider.acheckpoint(self.to_text(), location, **write.lineage))
        return write.where

    def write(
        self, provider: BaseProvider, location: str, trigger: str | None = None, about: dict[str, Any] | None = None
    ) -> str:
        """Write a checkpoint with this provider, and return its location. The caller holds ``lock``.

        ``about`` names the task and the agent that triggered it.
        """
        with _Write(self, provider, location, trigger, about) as write:
            write.done(provider.checkpoint(self.to_text(trigger), location, **write.lineage))
        return write.where

    def _chain(self, checkpoint_id: str) -> None:
        self._checkpoint_id = self._parent_id = checkpoint_id

    # -- reading

    @classmethod
    def from_checkpoint(cls, config: CheckpointConfig, **_: Any) -> Self:
        """Load the state of the checkpoint ``config.restore_from``, or of the newest complete one of that location."""
        if config.restore_from is None:
            raise BadCheckpoint("CheckpointConfig.restore_from must be set: it names the checkpoint to resume from")
        asked, began, provider = str(config.restore_from), time.perf_counter(), None
        event_bus.emit(config, CheckpointRestoreStartedEvent(location=asked))
        try:
            provider = locations.provider_of(config)
            location = locations.one_of(provider, config)
            state = cls.model_validate_json(provider.from_checkpoint(location))
            state._provider, state._restored = provider, True
            state._chain(provider.extract_id(location))
        except Exception as error:
            name = type(provider).__name__ if provider else None
            event_bus.emit(config, CheckpointRestoreFailedEvent(location=asked, provider=name, error=str(error)))
            raise
        event_bus.emit(
            config,
            CheckpointRestoreCompletedEvent(
                location=location,
                provider=type(provider).__name__,
                checkpoint_id=state._checkpoint_id,
                branch=state._branch,
                parent_id=state._parent_id,
                duration_ms=(time.perf_counter() - began) * 1000,
            ),
        )
        return state

    @classmethod
    async def afrom_checkpoint(cls, config: CheckpointConfig, **_: Any) -> Self:
        """`from_checkpoint`, to be awaited."""
        import asyncio

        return await asyncio.to_thread(cls.from_checkpoint, config)

    def fork(self, branch: str | None = None) -> None:
        """Continue on another branch: ``branch``, or a generated name.

        The next checkpoint is written there, with the fork point as its parent. Raises ValueError for an invalid name.
        """
        if not branch:
            unique = uuid.uuid4().hex
            branch = f"fork/{self._checkpoint_id}_{unique[:6]}" if self._checkpoint_id else f"fork/{unique[:8]}"
        check_branch(branch)
        if branch == self._branch and self._checkpoint_id:
            raise ValueError(f"a fork needs a branch name other than {branch!r}")
        about: dict[str, Any] = {
            "branch": branch,
            "parent_branch": self._branch,
            "parent_checkpoint_id": self._checkpoint_id,
        }
        event_bus.emit(self, CheckpointForkStartedEvent(**about))
        with self._lock:
            self._branch, self._forked = branch, True
        event_bus.emit(self, CheckpointForkCompletedEvent(**about))


class _Write:
    """Context of one write, with an event before and after it: the state continues from what was written there."""

    def __init__(
        self,
        state: RuntimeState,
        provider: BaseProvider,
        location: str,
        trigger: str | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        self.where = self._id = ""
        with state.lock:
            self.lineage: dict[str, Any] = {"parent_id": state.parent_id, "branch": state.branch}
        self._state, self._provider = state, provider
        self._about: dict[str, Any] = {
            **(about or {}),
            "provider": type(provider).__name__,
            "trigger": trigger,
            **self.lineage,
        }
        self._location, self._began = location, time.perf_counter()

    def __enter__(self) -> Self:
        event_bus.emit(self._state, CheckpointStartedEvent(location=self._location, **self._about))
        return self

    def done(self, where: str) -> None:
        """It was written there."""
        self.where, self._id = where, self._provider.extract_id(where)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:  # a panic of a compiled part is none of Exception's
            reason = one_line(error)[:500] or type(error).__name__
            event_bus.emit(self._state, CheckpointFailedEvent(location=self._location, error=reason, **self._about))
            return
        with self._state.lock:
            self._state._chain(self._id)
        took = (time.perf_counter() - self._began) * 1000
        event = CheckpointCompletedEvent(location=self.where, checkpoint_id=self._id, duration_ms=took, **self._about)
        event_bus.emit(self._state, event)


def sync_checkpoint_fields(entity: Any) -> None:
    """Update an entity's public ``checkpoint_`` fields from its runtime attributes."""
    if getattr(entity, "entity_type", None) in ("agent", "crew"):
        entity.checkpoint_kickoff_event_id = entity.kickoff_event_id
    own = getattr(entity, "sync_checkpoint_fields", None)
    if callable(own):
        own()


def prepare_entities(root: Iterable[Any]) -> None:
    """Call `sync_checkpoint_fields` for each entity."""
    for entity in root:
        sync_checkpoint_fields(entity)


# Code imports them by these names, too.
_sync_checkpoint_fields, _prepare_entities = sync_checkpoint_fields, prepare_entities
