"""Relays the events of a task in flight: to its crew's handlers in this process, and to the run's stream.

The store itself records when a task is claimed, committed or failed. Events that the task's code emits are appended to
the run's events as they come, numbered in the run's one sequence: type, relatives and task, without content. Nothing is
recorded in this process.
"""

import contextlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runner.bundles import loader
from runner.bundles.isolation import PREFIX
from runner.core import output as outputs
from runner.core.jobs import Claim, event_id_of
from runner.core.ledger import Usage
from runner.engine.ports import ClaimedTask
from runner.events import kickoff, scope
from runner.events.base import BaseEvent
from runner.events.bus import event_bus, module_of, set_audience
from runner.events.call_events import (
    CallDivergedEvent,
    LLMCallCompletedEvent,
    LLMCallFailedEvent,
    LLMCallStartedEvent,
    ToolUsageEvent,
)
from runner.events.pairs import PAIRS
from runner.events.sinks import sinks
from runner.events.work_events import (
    CrewKickoffCompletedEvent,
    CrewKickoffFailedEvent,
    CrewKickoffStartedEvent,
    TaskCompletedEvent,
    TaskFailedEvent,
    TaskStartedEvent,
)
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.providers.records import DeferredEvent

CHUNKS = frozenset({"llm_stream_chunk", "llm_thinking_chunk"})
"""High-volume events: handlers receive them, the run does not record them."""

OURS = ("task_", "crew_kickoff_", "run_", "job_", "write_")
"""The prefixes of the types that the store itself records of runs and their tasks."""

OF_AGENTS = ("agent_execution_", "llm_call_", "tool_usage_")
"""The prefixes of the types that nothing but handlers looks at in this process."""

_AS_TOLD = {"cached_tokens": "cached_prompt_tokens", "cache_write_tokens": "cache_creation_tokens"}
"""What events call some of a call's tokens, where the ledger has other names."""

HANDLERS_WAIT = 5.0  #: seconds that a finished task waits for its crew's handlers
REMEMBERED = 10_000  #: how many of its events a task can name as relatives


EventFormat = Callable[[Any, str, BaseEvent], BaseEvent]
"""An event of the store, as a kind of crew calls it: from the crew, the task's key, and the event."""


class TaskEvents:
    """The events of one claim."""

    def __init__(self, claim: Claim, task: ClaimedTask, cancel_scope: CancelScope) -> None:
        self._claim, self._task, self._cancel_scope = claim, task, cancel_scope
        self._run, self._key = claim.job.run_id, claim.job.task
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._closed = False
        self._last = claim.scope.claim
        self._numbers: OrderedDict[str, int | DeferredEvent] = OrderedDict()
        at = claim.scope
        self._open: list[tuple[str, str]] = []  # what is open around the task's own events, the outermost first
        for number, kind in (
            *((at.branch, "crew_kickoff_started"), (at.task, "task_started"), (at.agent, "agent_execution_started")),
        ):
            if (event_id := event_id_of(self._run, number)) is not None:
                self._numbers[event_id] = number
                self._open.append((event_id, kind))
        self._source: Any = None
        self._crew: Any = None
        self._format_event: EventFormat | None = None

    def begin(self) -> None:
        """Set the task's scope and numbering in this context; only its crew's handlers receive its events."""
        own = loader.namespace_of(self._claim.bundle)
        set_audience(lambda module: not module.startswith(PREFIX) or f"{module}.".startswith(f"{own}."))
        kickoff.begin(self._number, self._guard, tuple(self._open), event_id_of(self._run, self._last))

    def wants(self, *types: str) -> bool:
        """Whether a handler, or the run's checkpoints, need events of these types."""
        return bool(self._claim.scope.triggers.intersection((*types, "*"))) or event_bus.listens(*types)

    # -- what the store reports, delivered here

    def started(self, crew: Any, source: Any, format_event: EventFormat | None = None) -> None:
        """The task is claimed and its code loaded; ``format_event`` renames the event for the crew's kind."""
        self._crew, self._source, self._format_event = crew, source, format_event
        if format_event is None and not event_bus.listens("crew_kickoff_started", "task_started", "task_resumed"):
            return
        at = self._claim.scope
        if at.first:
            self._emit(crew, CrewKickoffStartedEvent(**self._about_crew(at.branch)))
        if at.claim == at.task:
            self._emit(source, TaskStartedEvent(**self._about(at.task, parent=at.branch)))
        else:
            self._emit(source, BaseEvent(type="task_resumed", **self._about(at.claim, parent=at.task)))

    def completed(self, record: Callable[[], Mapping[str, Any]]) -> None:
        """The task is committed. ``record`` returns its output, if a handler receives it."""
        if self._format_event is None and not event_bus.listens("task_completed", "crew_kickoff_completed"):
            return
        ended, over = self._task.end_events
        output = outputs.from_record(record(), name=self._key)
        self._emit(self._source, TaskCompletedEvent(output=output, **self._ending(ended)))
        if over:
            at = self._claim.scope.branch
            self._emit(self._crew, CrewKickoffCompletedEvent(output=output, **self._about_crew(over, started=at)))

    def failed(self, reason: str) -> None:
        """The task failed for good."""
        if self._crew is None:
            return  # its code never came, nor did its handlers
        ended, over = self._task.end_events
        self._emit(self._source, TaskFailedEvent(error=reason, **self._ending(ended)))
        if over:
            at = self._claim.scope.branch
            self._emit(self._crew, CrewKickoffFailedEvent(error=reason, **self._about_crew(over, started=at)))

    def asked(self) -> None:
        """The task waits for a person."""
        self._emit(self._source, BaseEvent(type="task_asked", **self._about(0, parent=self._claim.scope.task)))

    def close(self) -> None:
        """Stop writing: what handlers emit from here on stays in this process."""
        with self._lock:
            self._closed = True

    def settle(self) -> None:
        """Wait for the handlers, because the process may be asked to end."""
        event_bus.flush(HANDLERS_WAIT)

    # -- inside

    def _number(self, event: BaseEvent) -> int:
        """Append an event of the task's code to the run's events, and set its number and id."""
        with self._lock:
            if self._closed or event.type in CHUNKS:
                return self._last
            parent, started, cause = (
                self._numbers.get(one or "", 0)
                for one in (event.parent_event_id, event.started_event_id, event.triggered_by_event_id)
            )
        kind = event.type[:200]
        if not kind.isprintable():
            kind = "".join(filter(str.isprintable, kind))
        ours = kind.startswith(OURS)  # a nested crew emits events of its own tasks
        inner = event.task_id or getattr(event, "crew_name", None) or "?"
        opens = kind in PAIRS and event.parent_event_id == scope.get_current_parent_id()
        triggers = self._claim.scope.triggers
        about: dict[str, Any] = {
            "more": _figures(event),
            "parent": parent,
            "started": started,
            "cause": cause,
            "ends": _interrupted(kind) if opens else "",
        }
        again = isinstance(event, LLMCallCompletedEvent) and event.replayed  # an earlier attempt wrote its checkpoint
        trigger = kind if not ours and not again and triggers.intersection((kind, "*")) else ""
        if not trigger and kind.startswith(OF_AGENTS) and not _is_heard(event):
            told = self._task.defer_event(kind, self._key, **about)
            with self._lock:
                self._remember(event.event_id, told)
                return self._last
        # Not under the lock: the store may be away, and others that share this thread would wait for it for ever.
        number = self._task.append_event(
            kind, f"{self._key}/{inner}"[:400] if ours else self._key, trigger=trigger, **about
        )
        with self._lock:
            self._last = max(self._last, number)
            event.event_id = event_id_of(self._run, number) or ""
            self._remember(event.event_id, number)
            event.parent_event_id = self._id(event.parent_event_id)
            event.started_event_id = self._id(event.started_event_id)
            event.triggered_by_event_id = self._id(event.triggered_by_event_id)
        event.previous_event_id = event_id_of(self._run, number - 1)
        return number

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """A stop does not interrupt an event, nor is it delayed for long."""
        if threading.get_ident() != self._thread:
            yield
            return
        with self._cancel_scope.write:
            yield
        if not self._cancel_scope.in_call and not self._closed:
            self._cancel_scope.check()

    def _remember(self, event_id: str, number: int | DeferredEvent) -> None:
        self._numbers[event_id] = number
        if len(self._numbers) > REMEMBERED:
            self._numbers.popitem(last=False)

    def _id(self, event_id: str | None) -> str | None:
        """The id that an event has in the store."""
        told = self._numbers.get(event_id or "")
        return event_id_of(self._run, told.sequence or 0) if isinstance(told, DeferredEvent) else event_id

    def _emit(self, source: Any, event: BaseEvent) -> None:
        with self._cancel_scope.write:
            event_bus.deliver(source, self._format_event(self._crew, self._key, event) if self._format_event else event)

    def _ending(self, number: int) -> dict[str, Any]:
        return self._about(number, parent=self._claim.scope.branch, started=self._claim.scope.task)

    def _about(self, number: int, *, parent: int = 0, started: int = 0) -> dict[str, Any]:
        return {**self._relatives(number, parent, started), "task_id": self._key, "task_name": self._key}

    def _about_crew(self, number: int, *, started: int = 0) -> dict[str, Any]:
        return {**self._relatives(number, 0, started), "crew_name": self._claim.crew, "crew": self._crew}

    def _relatives(self, number: int, parent: int, started: int) -> dict[str, Any]:
        found = {
            "emission_sequence": number or None,
            "event_id": event_id_of(self._run, number),
            "parent_event_id": event_id_of(self._run, parent),
            "started_event_id": event_id_of(self._run, started),
            "previous_event_id": event_id_of(self._run, number - 1),
        }
        return {name: value for name, value in found.items() if value is not None}


def _is_heard(event: BaseEvent) -> bool:
    """Whether something in this process may look at an event, or its id."""
    if not type(event).__module__.startswith("runner.") or sinks() or event_bus.listens(event.type):
        return True
    return any(not module_of(tap).startswith("runner.") for tap in event_bus.taps)


def _figures(event: BaseEvent) -> dict[str, Any]:
    """Return the metadata of an event: a model call's model, agent, tokens and divergence, a tool call's name."""
    if isinstance(event, CallDivergedEvent):
        return {"call": event.call, **({"step": event.step[:200]} if event.step else {})}
    if isinstance(event, ToolUsageEvent):
        return {"tool": event.tool_name} if re.fullmatch(r"[\w .:/-]{1,100}", event.tool_name) else {}
    if not isinstance(event, LLMCallStartedEvent | LLMCallCompletedEvent | LLMCallFailedEvent):
        return {}
    agent = getattr(event.from_agent, "role", event.from_agent)
    found: dict[str, Any] = {
        "model": str(event.model or "")[:200],
        "agent": agent[:200] if isinstance(agent, str) else "",
    }
    if isinstance(event, LLMCallCompletedEvent):
        usage = event.usage or {}
        counts = (usage.get(_AS_TOLD.get(name, name), usage.get(name)) for name in Usage._fields)
        found |= Usage(*(count if isinstance(count, int) else 0 for count in counts)).by_name()
        found |= {"replayed": 1} if event.replayed else {}
    return found


def _interrupted(kind: str) -> str:
    """The type that ends an interrupted event of this type."""
    ends = PAIRS[kind]
    return next((end for end in ends if end.endswith(("_failed", "_error"))), ends[0])
