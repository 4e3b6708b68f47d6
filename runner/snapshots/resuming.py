"""Closes or continues the events that were open when a checkpoint was written, so that every start has one end."""

from typing import Any

from runner.events import load_event
from runner.events.bus import event_bus
from runner.events.pairs import SCOPE_STARTING_EVENTS, VALID_EVENT_PAIRS
from runner.events.record import EventNode, EventRecord
from runner.events.scope import Stack, event_stack, push_event_scope, restore_event_scope
from runner.snapshots.runtime import RuntimeState

_FAILURES = {start: end for end, start in VALID_EVENT_PAIRS.items() if end.endswith(("_failed", "_error"))}


def resume_start(event_type: str, task_id: str) -> bool:
    """Continue under the latest open start event of this type for a task, if there is one. See `resume_task_scope`."""
    state = event_bus.runtime_state
    started = state.event_record.latest_open(event_type, task_id) if state is not None else None
    if started is None or any(event_id == started for event_id, _ in event_stack()):
        return False
    push_event_scope(started, event_type)
    return True


def is_open(state: RuntimeState | None, event_id: str | None) -> bool:
    """Whether an event is recorded as started and not ended."""
    node = state.event_record.get(event_id) if state is not None and event_id else None
    return node is not None and not node.neighbors("completed_by")


def close_interrupted(source: Any, task_id: str, *, but: frozenset[str]) -> None:
    """Emit a failure for every call that a task had open when it was interrupted, but for the types in ``but``."""
    state = event_bus.runtime_state
    if state is None:
        return
    stack, record = event_stack(), state.event_record
    for node in reversed(record.all_nodes()):
        event = node.event
        if event.task_id != task_id or event.type not in SCOPE_STARTING_EVENTS:
            continue
        if event.type in but and not _is_inside(record, node, but):
            continue
        if node.neighbors("completed_by") or event.type not in _FAILURES:
            continue
        restore_event_scope(_stack_of(record, node))
        ended = load_event({"type": _FAILURES[event.type], "error": "interrupted", **_about(event)})
        event_bus.emit(source, ended)
    restore_event_scope(stack)


def _is_inside(record: EventRecord, node: EventNode, but: frozenset[str]) -> bool:
    """Whether it began inside another event of the same task whose type is not in ``but``."""
    task_id, parent = node.event.task_id, node.event.parent_event_id
    while parent and (outer := record.get(parent)) is not None and outer.event.task_id == task_id:
        if outer.event.type not in but:
            return True
        parent = outer.event.parent_event_id
    return False


def _stack_of(record: EventRecord, node: EventNode | None) -> Stack:
    """The stack right after a start event."""
    found: list[tuple[str, str]] = []
    while node is not None:
        found.append((node.event.event_id, node.event.type))
        node = record.get(node.event.parent_event_id) if node.event.parent_event_id else None
    return tuple(reversed(found))


def _about(event: Any) -> dict[str, Any]:
    names = ("task_id", "task_name", "agent_id", "agent_role", "model", "tool_name")
    return {name: value for name in names if (value := getattr(event, name, None)) is not None}
