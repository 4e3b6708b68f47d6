"""Writes automatic checkpoints: a tap on the event bus that runs while the triggering event is still the latest one."""

import logging
from typing import Any

from runner.core.errors import Stop, one_line
from runner.events.base import BaseEvent
from runner.events.bus import event_bus, is_replaying
from runner.events.system_events import CheckpointPrunedEvent
from runner.providers import inflight
from runner.providers.base import retain
from runner.providers.config import CheckpointConfig
from runner.snapshots.resolve import find_checkpoint
from runner.snapshots.runtime import RuntimeState

logger = logging.getLogger("runner.snapshots")


def write_if_asked(source: Any, event: BaseEvent, state: Any) -> None:
    """Write a checkpoint if the config that applies to ``event`` asks for it."""
    if not isinstance(state, RuntimeState) or event.type.startswith("checkpoint_") or is_replaying():
        return
    config = find_checkpoint(source)
    if config is None:
        return
    if config.wants(event.type):
        write_now(state, config, event)


def write_now(state: RuntimeState, config: CheckpointConfig, event: BaseEvent) -> None:
    """Write a checkpoint because of ``event``, and prune. A failure does not end the run. The caller holds the lock."""
    about = {
        "task_id": event.task_id,
        "task_name": event.task_name,
        "agent_id": event.agent_id,
        "agent_role": event.agent_role,
    }
    try:
        with inflight.marking_ahead():
            where = state.write(config.provider, config.location, event.type, about)
            state.pins.move(config, state.branch, state.checkpoint_id or "", where)
    except (KeyboardInterrupt, SystemExit, GeneratorExit, Stop):
        raise
    except BaseException as error:  # a panic of a compiled part is none of Exception's
        logger.warning("no checkpoint was written at %s; the run continues: %s", event.type, _line(error))
        return
    logger.info("checkpoint %s written at %s", state.checkpoint_id, event.type)
    if config.max_checkpoints is not None:
        _prune(state, config, config.max_checkpoints, about)


def _prune(state: RuntimeState, config: CheckpointConfig, most: int, about: dict[str, Any]) -> None:
    head = state.checkpoint_id or ""
    try:
        removed = retain(config.provider, config.location, most, branch=state.branch, head=head)
    except Exception as error:
        logger.warning("old checkpoints in %s could not be pruned: %s", config.location, _line(error))
        return
    event = CheckpointPrunedEvent(
        location=config.location,
        provider=type(config.provider).__name__,
        branch=state.branch,
        parent_id=state.parent_id,
        removed_count=removed,
        max_checkpoints=most,
        **about,
    )
    event_bus.emit(state, event)


def install() -> None:
    """Enable automatic checkpoints in this process."""
    event_bus.state_factory = lambda: RuntimeState(root=[])
    event_bus.tap(write_if_asked)


def _line(error: BaseException) -> str:
    return one_line(error)[:300] or type(error).__name__
