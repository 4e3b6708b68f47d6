"""From a checkpoint to something that can be kicked off: data from the store, code from the code at hand."""

from typing import Any

from runner.config import CheckpointConfig
from runner.errors import BadCheckpoint
from runner.events.bus import event_bus
from runner.state import locations
from runner.state.kinds import Kind, kind_of
from runner.state.runtime import RuntimeState


def apply_checkpoint(entity: Any, config: CheckpointConfig | None) -> Any:
    """What ``kickoff(from_checkpoint=config)`` means for an entity.

    With a ``restore_from``: the restored entity, to be kicked off instead. Without: None, and the config is the
    entity's own from now on.
    """
    if config is None:
        return None
    if config.restore_from is None:
        entity.checkpoint = config
        return None
    restored = type(entity).from_checkpoint(config, code=entity)
    if getattr(getattr(restored, "checkpoint", None), "restore_from", config) is not None:
        restored.checkpoint = config.going_on()
    return restored


def restore(
    cls: type[Any], config: CheckpointConfig, *, code: Any = None, fork: bool = False, branch: str | None = None
) -> Any:
    """The entity of ``cls``'s kind in the checkpoint that ``config`` names, ready to go on.

    ``code`` is the living entity to take the code from; without it, the newest living one of ``cls`` that fits. An
    entity for which there is none has its data only. Raises `BadCheckpoint`.
    """
    kind = kind_of(cls.entity_type)
    state = RuntimeState.from_checkpoint(config)
    of_kind = [entity for entity in state.root if entity.entity_type == kind.name]
    if not of_kind:
        held = ", ".join(sorted({f"a {entity.entity_type}" for entity in state.root})) or "nothing"
        raise BadCheckpoint(f"the checkpoint {config.restore_from} holds no {kind.name}; it holds {held}")
    entity = _with_code(kind, cls, of_kind, code, state)
    state.root[:] = [entity]
    for other in [known for known in state.progress if known != id(entity)]:
        del state.progress[other]
    entity.checkpoint = locations.going_on_at(config, state.branch)
    if fork:
        state.fork(branch)
    state.provider = entity.checkpoint.provider
    entity._restored = state
    event_bus.set_runtime_state(state)
    return entity


def _with_code(kind: Kind, cls: type[Any], stored: list[Any], code: Any, state: RuntimeState) -> Any:
    if code is not None:
        fitting = next((one for one in stored if kind.fits(code, one)), stored[0])
        return kind.graft(code, fitting, state, sure=True)
    for one in stored:
        living = next((thing for thing in kind.living(cls) if kind.fits(thing, one)), None)
        if living is not None:
            return kind.graft(living, one, state, sure=False)
    return stored[0]
