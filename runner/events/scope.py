"""The scope: open events, from which each event gets its parent and its cause.

Each context has a stack of (event id, type): an event that starts something is pushed, and the event that ends it pops
it. Threads that were given a copy of the context continue from there.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any

from runner.events import kickoff
from runner.events.base import BaseEvent
from runner.events.kickoff import Stack as Stack
from runner.events.kickoff import _event_id_stack
from runner.events.pairs import SCOPE_STARTING_EVENTS, VALID_EVENT_PAIRS

__all__ = [
    "EmptyStackError",
    "EventContextConfig",
    "EventPairingError",
    "MismatchBehavior",
    "StackDepthExceededError",
    "apply_scope",
    "capture_scope",
    "event_scope",
    "event_stack",
    "get_current_parent_id",
    "get_enclosing_parent_id",
    "get_triggering_event_id",
    "handle_empty_pop",
    "handle_mismatch",
    "pop_event_scope",
    "push_event_scope",
    "restore_event_scope",
    "resume_event_scope",
    "resume_task_scope",
    "set_event_context_config",
    "set_triggering_event_id",
    "triggered_by_scope",
]

logger = logging.getLogger("runner.events")


_triggering_event_id: ContextVar[str | None] = ContextVar("runner_triggering_event_id", default=None)


def get_current_parent_id() -> str | None:
    """Return the id of the innermost open event."""
    stack = _event_id_stack.get()
    return stack[-1][0] if stack else None


def get_enclosing_parent_id() -> str | None:
    """Return the id of the open event around the innermost one."""
    stack = _event_id_stack.get()
    return stack[-2][0] if len(stack) > 1 else None


def event_stack() -> Stack:
    """Return all open events, the outermost first: pairs of id and type."""
    return _event_id_stack.get()


def restore_event_scope(stack: Stack) -> None:
    """Replace the open events of this context."""
    _event_id_stack.set(tuple([(event_id, kind) for event_id, kind in stack]))


def get_triggering_event_id() -> str | None:
    """Return the id of the event that caused the current code to run."""
    return _triggering_event_id.get()


def set_triggering_event_id(event_id: str | None) -> None:
    """Set the event that caused what runs from here on."""
    _triggering_event_id.set(event_id)


@contextmanager
def triggered_by_scope(event_id: str) -> Iterator[None]:
    """Context in which emitted events were caused by this event.

    It may be left in another context than it was entered in, as by an async generator that another task closes.
    """
    before = _triggering_event_id.get()
    _triggering_event_id.set(event_id)
    try:
        yield
    finally:
        _triggering_event_id.set(before)


class MismatchBehavior(Enum):
    """What to do about an end without a start."""

    WARN = "warn"
    RAISE = "raise"
    SILENT = "silent"


@dataclass
class EventContextConfig:
    """How strict the scope is. ``max_stack_depth=0`` means no limit."""

    max_stack_depth: int = 100
    mismatch_behavior: MismatchBehavior = MismatchBehavior.WARN
    empty_pop_behavior: MismatchBehavior = MismatchBehavior.WARN


class StackDepthExceededError(Exception):
    """Scopes are nested deeper than allowed: most likely, something that started never ends."""


class EventPairingError(Exception):
    """An event ends something that is not open."""


class EmptyStackError(Exception):
    """An event ends something while nothing is open."""


_event_context_config: ContextVar[EventContextConfig | None] = ContextVar("runner_event_context_config", default=None)
_default_config = EventContextConfig()


def set_event_context_config(config: EventContextConfig | None) -> None:
    """Set the strictness of the scope for this context; None for the defaults."""
    _event_context_config.set(config)


def _config() -> EventContextConfig:
    return _event_context_config.get() or _default_config


def push_event_scope(event_id: str, event_type: str = "") -> None:
    """Open a scope. Raises `StackDepthExceededError`."""
    stack, limit = _event_id_stack.get(), _config().max_stack_depth
    if 0 < limit <= len(stack):
        raise StackDepthExceededError(
            f"{event_type or 'an event'} would be nested more than {limit} deep: look for what starts and never ends, "
            f"innermost open is {stack[-1][1] or stack[-1][0]}"
        )
    _event_id_stack.set((*stack, (event_id, event_type)))


def pop_event_scope() -> tuple[str, str] | None:
    """Close the innermost scope and return it; None if nothing is open."""
    stack = _event_id_stack.get()
    if not stack:
        return None
    _event_id_stack.set(stack[:-1])
    return stack[-1]


@contextmanager
def event_scope(event_id: str, event_type: str = "") -> Iterator[None]:
    """Context in which an event is open."""
    before = _event_id_stack.get()
    if not any(known == event_id for known, _ in before):
        push_event_scope(event_id, event_type)
    try:
        yield
    finally:
        _event_id_stack.set(before)


def handle_empty_pop(event_type_name: str) -> None:
    """Handle an end while nothing is open: warn, or raise `EmptyStackError`."""
    _complain(
        _config().empty_pop_behavior,
        EmptyStackError(f"{event_type_name} ends something, but nothing is open: its start was never emitted here"),
    )


def handle_mismatch(event_type_name: str, popped_type: str, expected_start: str) -> None:
    """Handle an end that does not match the innermost scope: warn, or raise `EventPairingError`."""
    _complain(
        _config().mismatch_behavior,
        EventPairingError(f"{event_type_name} arrived while {popped_type} is open; it ends {expected_start}"),
    )


def _complain(behavior: MismatchBehavior, error: Exception) -> None:
    if behavior is MismatchBehavior.RAISE:
        raise error
    if behavior is MismatchBehavior.WARN:
        logger.warning("%s", error)


def place(event: BaseEvent) -> Stack:
    """Set an event's ``parent_event_id`` and start, and return the stack after the event, without applying it.

    An end closes the innermost scope that it matches and all inside it, or nothing without a match.
    """
    stack = _event_id_stack.get()
    expected = VALID_EVENT_PAIRS.get(event.type)
    if expected is None:
        event.parent_event_id = stack[-1][0] if stack else None
        return stack
    if not stack:
        handle_empty_pop(event.type)
        return stack
    if stack[-1][1] not in ("", expected):
        handle_mismatch(event.type, stack[-1][1], expected)
    at = next((i for i in reversed(range(len(stack))) if stack[i][1] in ("", expected)), None)
    if at is None:
        event.parent_event_id = stack[-1][0]
        return stack
    event.started_event_id = stack[at][0]
    event.parent_event_id = stack[at - 1][0] if at else None
    return stack[:at]


def settle(event: BaseEvent, stack: Stack) -> None:
    """Apply ``stack``, which `place` returned, with the event on top if it starts something."""
    if event.type in SCOPE_STARTING_EVENTS:
        push_event_scope(event.event_id, event.type)
    else:
        _event_id_stack.set(stack)


def refuse_depth(event: BaseEvent) -> None:
    """Raise `StackDepthExceededError` before an event that cannot be pushed is numbered."""
    before = _event_id_stack.get()
    if event.type in SCOPE_STARTING_EVENTS:
        push_event_scope(event.event_id, event.type)
        _event_id_stack.set(before)


def resume_task_scope(task_id: str) -> bool:
    """Reopen the scope of the latest unended ``task_started`` of the task, so that its end pairs with that start.

    Returns False if there is none: the task then starts over.
    """
    return resume_event_scope("task_started", task_id)


def resume_event_scope(event_type: str, task_id: str) -> bool:
    """`resume_task_scope` for another start inside a task, such as its ``agent_execution_started``."""
    known = kickoff.peek()
    if known is None or known.state is None:
        return False
    started = known.state.event_record.open_start(event_type, task_id)
    if started is None:
        return False
    push_event_scope(started, event_type)
    return True


def capture_scope() -> dict[str, Any]:
    """Return this context's scope as JSON-able data, to continue with it elsewhere."""
    known = kickoff.peek()
    return {
        "stack": [list(entry) for entry in _event_id_stack.get()],
        "triggering_event_id": _triggering_event_id.get(),
        "last_event_id": known.last_event_id if known else None,
        "emission_sequence": known.issued if known else 0,
    }


def apply_scope(captured: Mapping[str, Any]) -> None:
    """Continue in this context with a scope that was captured elsewhere.

    Numbers continue after the captured one; if several contexts do so, `use_sequence` keeps their numbers apart.
    """
    restore_event_scope(tuple((str(event_id), str(kind)) for event_id, kind in captured.get("stack") or ()))
    _triggering_event_id.set(captured.get("triggering_event_id"))
    if kickoff.current().issued < (start := int(captured.get("emission_sequence") or 0)):
        kickoff.set_emission_counter(start)
    if captured.get("last_event_id"):
        kickoff.set_last_event_id(str(captured["last_event_id"]))
