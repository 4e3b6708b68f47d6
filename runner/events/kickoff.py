"""Per-context state of events: the current kickoff.

All contexts of one outermost kickoff share its state, sequence and last event; concurrent kickoffs do not see each
other. A context variable holds them, so every copy of the context uses the same counter.
"""

import contextlib
import itertools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

from runner.core import waiting
from runner.core.fork_safe_lock import ForkSafeLock
from runner.events.base import BaseEvent
from runner.events.record import EventRecord

__all__ = [
    "BareState",
    "Kickoff",
    "RuntimeStateLike",
    "current",
    "get_emission_sequence",
    "get_last_event_id",
    "get_next_emission_sequence",
    "reset_emission_counter",
    "reset_last_event_id",
    "set_emission_counter",
    "set_last_event_id",
    "use_sequence",
]


class RuntimeStateLike(Protocol):
    """The interface of a state for the bus. ``lock`` is reentrant; ``register`` adds an entity once."""

    @property
    def root(self) -> list[Any]:
        """The entities."""

    @property
    def event_record(self) -> EventRecord:
        """The recorded events."""

    @property
    def lock(self) -> Any:
        """Held while an event is prepared, recorded and tapped."""

    def register(self, entity: Any) -> None:
        """Add a crew, flow or agent."""


class BareState:
    """Entities and events without a way to store them: the state if `runner.snapshots` is not installed."""

    def __init__(self) -> None:
        self.root: list[Any] = []
        self.event_record = EventRecord()
        self.lock = ForkSafeLock()

    def register(self, entity: Any) -> None:
        """Add a crew, flow or agent."""
        if not any(known is entity for known in self.root):
            self.root.append(entity)


Stack = tuple[tuple[str, str], ...]
Source = Callable[[BaseEvent], int]
Guard = Callable[[], contextlib.AbstractContextManager[None]]


_first_use = ForkSafeLock()


class Kickoff:
    """One outermost kickoff; outside any, the context's own. ``like`` provides source and guard."""

    __slots__ = (
        *("_lock", "_numbers", "guard", "issued", "last_event_id"),
        *("outer", "records", "registered", "source", "state", "taken"),
    )

    def __init__(self, state: RuntimeStateLike | None = None, start: int = 0, like: "Kickoff | None" = None) -> None:
        self._lock: ForkSafeLock | waiting.TaskLock | None = None
        self.state = state
        self.source: Source | None = like.source if like else None
        self.guard: Guard = like.guard if like else contextlib.nullcontext
        self.records = True  #: whether a state is made for it where recording is armed
        self.last_event_id: str | None = None
        self.registered: set[int] = set()
        self.outer: Kickoff | None = None  #: what a state that was set in the middle of it gives way to
        self.taken = False  #: whether the kickoff that it was set for has begun
        self._numbers = itertools.count(start + 1)
        self.issued = start

    @property
    def lock(self) -> ForkSafeLock | waiting.TaskLock:
        """Held while an event is prepared and numbered, which may call the store; created for the first event."""
        if self._lock is None:
            with _first_use:
                self._lock = self._lock or (waiting.TaskLock() if waiting.shared else ForkSafeLock())
        return self._lock

    def count_from(self, start: int) -> None:
        """Continue numbering after ``start``."""
        self._numbers = itertools.count(start + 1)
        self.issued = start

    def next(self) -> int:
        """Return the next number of its own counter."""
        self.issued = next(self._numbers)
        return self.issued

    def number(self, event: BaseEvent) -> int:
        """Return the event's number: from the source, if there is one."""
        if self.source is None:
            return self.next()
        self.issued = self.source(event)
        return self.issued


_current: ContextVar[Kickoff | None] = ContextVar("runner_kickoff", default=None)
_event_id_stack: ContextVar[Stack] = ContextVar("runner_event_id_stack", default=())  #: see `scope`
depth: ContextVar[int] = ContextVar("runner_kickoff_depth", default=0)


def current() -> Kickoff:
    """Return this context's kickoff, and create it if there is none."""
    kickoff = _current.get()
    if kickoff is None:
        kickoff = Kickoff()
        _current.set(kickoff)
    return kickoff


def peek() -> Kickoff | None:
    """Return this context's kickoff; None if there is none."""
    return _current.get()


def enter(kickoff: Kickoff | None) -> None:
    """Make ``kickoff`` that of this context and of later copies of it."""
    _current.set(kickoff)


def use_sequence(source: Source, *, guard: Guard | None = None, records: bool = True) -> None:
    """From now on, events of this context and its copies get their numbers from ``source``.

    It is called with the event, its relatives set, under the kickoff's lock; it may set ``event_id``. Each event is
    emitted inside ``guard()``, and recorded here only with ``records``.
    """
    before = peek()
    kickoff = Kickoff(before.state, before.issued, before) if before is not None else Kickoff()
    kickoff.source = source
    kickoff.guard = guard or kickoff.guard
    kickoff.records = records
    if before is not None:
        kickoff.last_event_id, kickoff.registered = before.last_event_id, before.registered
    enter(kickoff)


def begin(source: Source, guard: Guard, stack: Stack, last_event_id: str | None) -> None:
    """Start a task on the fleet in this context: events get their numbers from ``source``, inside ``guard()``.

    They are not recorded here. The first has the innermost event of ``stack`` as parent, and follows ``last_event_id``.
    """
    run = Kickoff()
    run.source, run.guard, run.records, run.last_event_id = source, guard, False, last_event_id
    _current.set(run)
    _event_id_stack.set(stack)


def get_next_emission_sequence() -> int:
    """Take and return the next number of this context's kickoff."""
    return current().next()


def get_emission_sequence() -> int:
    """Return the latest number."""
    return current().issued


def reset_emission_counter() -> None:
    """Start again at 1."""
    set_emission_counter(0)


def set_emission_counter(start: int) -> None:
    """Continue after ``start``, in this context and in later copies of it."""
    before = current()
    kickoff = Kickoff(before.state, start, before)
    kickoff.records = before.records
    kickoff.last_event_id = before.last_event_id
    kickoff.registered = before.registered
    enter(kickoff)


def get_last_event_id() -> str | None:
    """Return the id of the latest event of this kickoff."""
    return current().last_event_id


def set_last_event_id(event_id: str) -> None:
    """Make the next event follow this one."""
    current().last_event_id = event_id


def reset_last_event_id() -> None:
    """Make the next event follow none."""
    current().last_event_id = None
