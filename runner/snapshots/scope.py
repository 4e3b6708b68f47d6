"""The scope of a kickoff: which state it runs in, and for how long."""

import contextlib
from collections.abc import Iterator
from typing import Any

from runner.events import kickoff
from runner.events.bus import event_bus
from runner.providers.config import CheckpointConfig
from runner.snapshots.kinds import kind_of
from runner.snapshots.resolve import resolve_checkpoint
from runner.snapshots.runtime import RuntimeState
from runner.snapshots.signals import watching


def settings_of(entity: Any) -> list[CheckpointConfig]:
    """Return the checkpoint configs of an entity and, if it is a crew, of its agents."""
    found = [resolve_checkpoint(one.checkpoint) for one in (entity, *getattr(entity, "everyone", ()))]
    return [one for one in found if isinstance(one, CheckpointConfig)]


@contextlib.contextmanager
def running(entity: Any, given: Any = None) -> Iterator[RuntimeState | None]:
    """Context of a kickoff of ``entity``; yields the state to run in, None if nothing is recorded.

    Recording is armed if the entity or one of its agents has checkpoint settings, and the signals in these are watched.
    A restored entity runs in its restored state, once. A nested kickoff runs in the state of the outer one. Any other
    runs in a new state, which is dropped at the end.

    Inside a restored entity, a nested one that fits one in flight, and has the same arguments (``given``), continues as
    that one.
    """
    settings_of(entity)
    restored: RuntimeState | None = getattr(entity, "_restored", None)
    nested = kickoff.depth.get() > 0
    before = kickoff.peek()
    state: Any = None
    if restored is not None:
        entity._restored = None
        event_bus.set_runtime_state(restored)
    elif not nested and before is not None and before.state is not None and not _meant_for(entity, before.state):
        kickoff.enter(None)  # another entity was restored here, and never kicked off
    try:
        with event_bus.kickoff_scope():
            state = event_bus.runtime_state
            if nested and restored is None and isinstance(state, RuntimeState):
                _go_on_as_one_in_flight(entity, given, state)
            event_bus.register_entity(entity)
            state = event_bus.runtime_state
            found = state if isinstance(state, RuntimeState) else None
            with watching(settings_of(entity), found):
                yield found
    finally:
        if isinstance(state, RuntimeState) and (not nested or restored is not None):
            state.pins.end()
        if nested:
            kickoff.enter(before)
            _forget(entity)


def _go_on_as_one_in_flight(entity: Any, given: Any, state: RuntimeState) -> None:
    kind = kind_of(entity.entity_type)
    with state.lock:
        for i, stored in enumerate(state.root):
            if id(stored) not in state.in_flight or stored.entity_type != kind.name:
                continue
            if kind.fits(entity, stored) and state.progress[id(stored)].given == given:
                state.in_flight.discard(id(stored))
                kind.adopt(entity, stored, state)
                state.root[i] = entity
                return


def _forget(entity: Any) -> None:
    """Remove the data of a nested kickoff that has ended from the outer state."""
    run = kickoff.peek()
    if run is not None and isinstance(state := run.state, RuntimeState):
        with state.lock:
            run.registered.discard(id(entity))
            state.forget(entity)


def _meant_for(entity: Any, state: Any) -> bool:
    """Whether a state that was set before the kickoff is for this entity, which was not restored from it."""
    if getattr(state, "restored", False):
        return False
    return not state.root or any(one is entity for one in state.root)
