"""Restores an entity from a checkpoint: data from the store, code from this process."""

from typing import Any

from runner.core.errors import BadCheckpoint
from runner.core.plain_text import with_article
from runner.events import kickoff
from runner.events.bus import event_bus
from runner.providers.base import CheckpointNotFound
from runner.providers.config import CheckpointConfig, config_of
from runner.snapshots import locations
from runner.snapshots.kinds import Kind, kind_of
from runner.snapshots.runtime import RuntimeState


def apply_checkpoint(entity: Any, config: CheckpointConfig | None) -> Any:
    """Apply ``kickoff(from_checkpoint=config)`` to an entity.

    With a ``restore_from``, returns the restored entity, to be kicked off instead. Without one, or if it is the run's
    own location and empty, returns None, and makes the config the entity's own.
    """
    if config is None:
        return None
    config = config_of(config)
    if config.restore_from is None or locations.is_new(config):
        entity.checkpoint = config.going_on()
        return None
    restored = type(entity).from_checkpoint(config, code=entity)
    if getattr(getattr(restored, "checkpoint", None), "restore_from", config) is not None:
        restored.checkpoint = config.going_on()
    return restored


def take_up(crew: Any) -> Any:
    """Return the unfinished crew at its own ``checkpoint.restore_from``; None to start at the beginning.

    The setting is used once, so a program that has it resumes after a crash, and otherwise starts.
    """
    config = crew.checkpoint
    if not isinstance(config, CheckpointConfig) or config.restore_from is None:
        return None
    crew.checkpoint = config.going_on()
    before = kickoff.peek()
    try:
        restored = restore(type(crew), config, code=crew)
    except CheckpointNotFound:
        return None
    if all(task.output is not None for task in restored.tasks):
        kickoff.enter(before)
        return None
    return restored


def restore(
    cls: type[Any], config: CheckpointConfig, *, code: Any = None, fork: bool = False, branch: str | None = None
) -> Any:
    """Return the entity of ``cls``'s kind in the checkpoint that ``config`` names, ready to resume.

    ``code`` is the living entity that provides the code; default: the newest living one of ``cls`` that fits. Without
    any, the entity has only its data. Raises `BadCheckpoint`.
    """
    kind = kind_of(cls.entity_type)
    state = RuntimeState.from_checkpoint(config_of(config))
    of_kind = [entity for entity in state.root if entity.entity_type == kind.name]
    if not of_kind:
        held = ", ".join(sorted({with_article(entity.entity_type) for entity in state.root})) or "nothing"
        raise BadCheckpoint(f"the checkpoint {config.restore_from} holds no {kind.name}; it holds {held}")
    stored = _chosen(kind, cls, of_kind, code)
    entity = _with_code(kind, cls, stored, code, state)
    # What was kicked off inside of it comes after it; what it was kicked off in is not resumed.
    after = next(i for i, one in enumerate(state.root) if one is stored) + 1
    inner = [one for one in state.root[after:] if id(one) in state.progress]
    state.root[:] = [entity, *inner]
    state.in_flight.update(map(id, inner))
    entity.checkpoint = locations.going_on_at(config, state.branch, entity.checkpoint)
    if fork:
        state.fork(branch)
    state.provider = entity.checkpoint.provider
    entity._restored = state
    event_bus.set_runtime_state(state)
    return entity


def _chosen(kind: Kind, cls: type[Any], stored: list[Any], code: Any) -> Any:
    """The stored entity to restore: one that fits the code at hand, else the first."""
    living = [code] if code is not None else list(kind.living(cls))
    return next((one for one in stored if any(kind.fits(thing, one) for thing in living)), stored[0])


def _with_code(kind: Kind, cls: type[Any], stored: Any, code: Any, state: RuntimeState) -> Any:
    if code is not None:
        return kind.graft(code, stored, state, sure=True)
    living = next((thing for thing in kind.living(cls) if kind.fits(thing, stored)), None)
    return kind.graft(living, stored, state, sure=False) if living is not None else stored
