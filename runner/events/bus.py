"""The event bus: numbers each event, records it if recording is on, and calls its handlers.

`EventBus.emit` does in the emitting thread, under the state's lock, all that must be in order: ids, scope, number,
record, then the taps. Handlers come after, elsewhere (`runner.events.dispatch`).
"""

import atexit
import contextlib
import contextvars
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from runner.core.context_value import ContextValue
from runner.core.fork_safe_lock import ForkSafeLock
from runner.events import kickoff, scope
from runner.events.base import BaseEvent
from runner.events.depends import Depends, build_execution_plan
from runner.events.dispatch import Dispatcher, Handler, call, is_async, name_of
from runner.events.kickoff import BareState, Kickoff, RuntimeStateLike
from runner.events.loading import event_class
from runner.events.sinks import publish, sinks

__all__ = ["EventBus", "event_bus", "is_replaying", "on_signal", "set_audience"]

logger = logging.getLogger("runner.events")

EventKind = type[BaseEvent] | str
H = TypeVar("H", bound=Handler)

FLUSH_SECONDS = 30.0  #: how long `flush` and the end of the process wait for handlers

_ENTITIES = ("flow", "crew", "agent")

_replaying: contextvars.ContextVar[bool] = contextvars.ContextVar("runner_replaying", default=False)


_audience: contextvars.ContextVar[Callable[[str], bool] | None] = contextvars.ContextVar(
    "runner_audience", default=None
)


def set_audience(audience: Callable[[str], bool] | None) -> None:
    """From here on in this context, only call handlers for whose module's name ``audience`` returns true."""
    _audience.set(audience)


def is_in_audience(module: str) -> bool:
    """Whether handlers from a module are called in this context; see `set_audience`."""
    audience = _audience.get()
    return audience is None or audience(module)


def is_replaying() -> bool:
    """Whether the current event is a recorded one that is delivered again, so that nothing is written because of it."""
    return _replaying.get()


class EventBus:
    """Delivers events to handlers. There is one for the process: `event_bus`.

    Handlers take ``(source, event)`` or ``(source, event, state)``, and are functions or async functions. They are
    registered for an event class (including its subclasses), a type (``"task_completed"``) or ``"*"``.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._handlers: dict[EventKind, tuple[Handler, ...]] = {}
        self._found: dict[tuple[type[BaseEvent], str], tuple[Handler, ...]] = {}
        self._waits_for: dict[Handler, tuple[Depends, ...]] = {}
        self.taps: tuple[Handler, ...] = ()
        self._dispatcher = Dispatcher()
        self._armed = False
        self._keeps_last = False
        self._last: RuntimeStateLike | None = None
        self._shutting_down = False
        self.state_factory: Callable[[], RuntimeStateLike] = BareState
        """Makes the state of a kickoff once recording is armed; `runner.snapshots` puts its own here."""

    # -- who is called

    def on(
        self, *event_types: EventKind | Depends, depends_on: Depends | Sequence[Depends] | None = None
    ) -> Callable[[H], H]:
        """Decorator: call the function for these events, as in ``@event_bus.on(TaskCompletedEvent)``.

        With ``depends_on`` it is called after those handlers have finished with the event.
        """
        asked = [one for one in event_types if not isinstance(one, Depends)]
        if not asked:
            raise TypeError("event_bus.on() takes the events to listen for: a class, a type such as 'task_completed'")
        given = [depends_on] if isinstance(depends_on, Depends) else depends_on or ()
        waits_for = (*(one for one in event_types if isinstance(one, Depends)), *given)

        def decorate(handler: H) -> H:
            if waits_for:
                self._waits_for[handler] = waits_for
            for event_type in asked:
                self.register_handler(event_type, handler)
            if waits_for:
                self.validate_dependencies()
            return handler

        return decorate

    def register_handler(self, event_type: EventKind, handler: Handler) -> None:
        """Call ``handler`` for these events, once for each, however often it is registered."""
        event_type = _kind(event_type)
        with self._lock:
            known = self._handlers.get(event_type, ())
            if handler not in known:
                self._set_handlers({**self._handlers, event_type: (*known, handler)})

    def off(self, event_type: EventKind, handler: Handler) -> None:
        """Stop calling ``handler`` for these events."""
        event_type = _kind(event_type)
        with self._lock:
            left = tuple(known for known in self._handlers.get(event_type, ()) if known != handler)
            others = {kind: handlers for kind, handlers in self._handlers.items() if kind != event_type}
            self._set_handlers({**others, event_type: left} if left else others)

    def validate_dependencies(self) -> None:
        """Raise `CircularDependencyError` if handlers depend on each other."""
        known = dict.fromkeys(one for handlers in self._handlers.values() for one in handlers)
        build_execution_plan(known, self._waits_for)

    def listens(self, *event_types: str) -> bool:
        """Whether any handler would be called, in this context, for an event of one of these types."""
        if not self._handlers:
            return False
        classes = [found for kind in event_types if (found := event_class(kind)) is not None]
        wanted = {"*", BaseEvent, *event_types, *(base for found in classes for base in found.__mro__)}
        audience = _audience.get()
        asking = (handler for kind, handlers in self._handlers.items() if kind in wanted for handler in handlers)
        return any(audience is None or audience(module_of(handler)) for handler in asking)

    def drop(self, module: str) -> None:
        """Remove the handlers that are defined in a module, or in a module of that package."""

        def stays(handler: Handler) -> bool:
            return not (module_of(handler) + ".").startswith(module + ".")

        with self._lock:
            left = {kind: tuple(filter(stays, handlers)) for kind, handlers in self._handlers.items()}
            self._set_handlers({kind: handlers for kind, handlers in left.items() if handlers})
            self._waits_for = {one: others for one, others in self._waits_for.items() if stays(one)}

    @contextlib.contextmanager
    def scoped_handlers(self) -> Iterator[None]:
        """In this context, call only handlers that are registered in it; remove them at its end. Taps stay."""
        with self._lock:
            before, waited_for = self._handlers, self._waits_for
            self._set_handlers({})
            self._waits_for = {}
        try:
            yield
        finally:
            with self._lock:
                self._set_handlers(before)
                self._waits_for = waited_for

    def tap(self, function: H) -> H:
        """Call ``function`` in the emitting thread, before `emit` returns, in order, under the state's lock.

        An exception in it is logged and suppressed; a BaseException is not.
        """
        with self._lock:
            if function not in self.taps:
                self.taps = (*self.taps, function)
        return function

    def untap(self, function: Handler) -> None:
        """Remove a tap."""
        with self._lock:
            self.taps = tuple(known for known in self.taps if known != function)

    # -- what is kept

    @property
    def recording(self) -> bool:
        """Whether recording is armed."""
        return self._armed

    def enable_recording(self) -> None:
        """From now on, record each kickoff's entities and events; keep the last one's until `reset_runtime_state`."""
        self._armed = self._keeps_last = True

    def arm_recording(self) -> None:
        """From now on, record the entities and events of each kickoff while it lasts: checkpoints need them."""
        self._armed = True

    def set_runtime_state(self, state: RuntimeStateLike) -> None:
        """Record into ``state`` in this context, and continue its sequence numbers. Arms recording."""
        self._armed = True
        self.runtime_state = state
        kickoff.current().count_from(max(kickoff.current().issued, state.event_record.last_sequence()))

    def reset_runtime_state(self) -> None:
        """Drop what was recorded in this context. Recording stays armed."""
        self._last = None
        known = kickoff.peek()
        if known is not None:
            known.state = None
            known.registered = set()

    @property
    def runtime_state(self) -> RuntimeStateLike | None:
        """The state into which this context's kickoff records; between kickoffs the last one's (`enable_recording`)."""
        known = kickoff.peek()
        if known is None or (known.state is None and known.records and kickoff.depth.get() == 0):
            return self._last
        return known.state

    @runtime_state.setter
    def runtime_state(self, state: RuntimeStateLike | None) -> None:
        before = kickoff.current()
        now = Kickoff(state, before.issued, before)
        now.last_event_id = before.last_event_id
        # What is restored inside of another kickoff, or of a task on the fleet, gives way to that again.
        now.outer = before if kickoff.depth.get() or not before.records else before.outer
        now.registered = {id(entity) for entity in state.root} if state else set()
        kickoff.enter(now)

    # Names of before, by which tests of others reach inside.
    _runtime_state = runtime_state

    @property
    def _registered_entity_ids(self) -> set[int]:
        return kickoff.current().registered

    @_registered_entity_ids.setter
    def _registered_entity_ids(self, ids: set[int]) -> None:
        kickoff.current().registered = ids

    def register_entity(self, entity: Any) -> None:
        """Add a crew, flow or agent to the state, if recording is armed."""
        run = kickoff.current()
        state = self._state_of(run)
        if state is not None and id(entity) not in run.registered:
            with state.lock:
                run.registered.add(id(entity))
                state.register(entity)

    @contextlib.contextmanager
    def kickoff_scope(self) -> Iterator[bool]:
        """Context of a kickoff; yields whether it is the outermost one.

        The outermost has its own state and sequence, unless a state was set before; both end with it.
        """
        deep, before, stack = kickoff.depth.get(), kickoff.peek(), scope.event_stack()
        kickoff.depth.set(deep + 1)
        takes = before is not None and before.state is not None and not before.taken and (deep == 0 or before.outer)
        if before is not None and takes:
            before.taken = True
        if deep == 0 and (before is None or before.state is None):
            kickoff.enter(Kickoff(like=before))
        try:
            yield deep == 0
        finally:
            if deep == 0 and self._keeps_last:
                self._last = kickoff.current().state
            kickoff.depth.set(deep)
            scope.restore_event_scope(stack)
            if before is not None and takes:
                kickoff.enter(before.outer)  # a state that was set is for one kickoff
            elif deep == 0:
                kickoff.enter(before)

    def _state_of(self, run: Kickoff) -> RuntimeStateLike | None:
        if run.state is None and self._armed and run.records:
            with run.lock:
                if run.state is None:
                    run.state = self.state_factory()
        return run.state

    # -- telling

    def emit(self, source: Any, event: BaseEvent) -> "Future[None] | None":
        """Number, place and record an event, and deliver it.

        Returns a future that is done when the handlers are; None if there are none. Raises what the scope's strictness
        asks for (`EventContextConfig`).
        """
        if self._refused(event):
            return None
        with self._prepared(source, event) as state:
            return self._deliver(self._handlers_of(event), source, event, state)

    async def aemit(self, source: Any, event: BaseEvent) -> None:
        """`emit`, and wait for the handlers; async ones run on the caller's loop."""
        if self._refused(event):
            return
        with self._prepared(source, event) as state:
            handlers = self._handlers_of(event)
            delivered = self._deliver(tuple(one for one in handlers if not is_async(one)), source, event, state)
        for handler in handlers:
            if is_async(handler):
                try:
                    await call(handler, source, event, state)
                except Exception:
                    logger.exception("the event handler %s failed", name_of(handler))
        if delivered is not None:
            import asyncio

            await asyncio.wrap_future(delivered)

    def replay(self, source: Any, event: BaseEvent) -> "Future[None] | None":
        """Deliver a recorded event again unchanged: it is not numbered, placed, recorded or passed to taps again."""
        if self._refused(event):
            return None
        with ContextValue(_replaying, True):
            return self._deliver(self._handlers_of(event), source, event, self.runtime_state)

    def deliver(self, source: Any, event: BaseEvent) -> "Future[None] | None":
        """Deliver an event that was numbered and recorded elsewhere, unchanged."""
        if self._refused(event):
            return None
        return self._deliver(self._handlers_of(event), source, event, self.runtime_state)

    @property
    def busy(self) -> bool:
        """Whether handlers are running or have events pending."""
        return bool(self._dispatcher.pending)

    def flush(self, timeout: float | None = FLUSH_SECONDS) -> bool:
        """Wait until the handlers of all earlier events are done. Returns False after ``timeout`` seconds."""
        return not self._dispatcher.pending or self._dispatcher.flush(timeout)

    def shutdown(self, wait: bool = True) -> None:
        """Stop delivering events; with ``wait``, wait for running handlers first. Async ones are cancelled then."""
        if wait:
            self.flush()
        self._shutting_down = True
        self._dispatcher.close()
        with self._lock:
            self._set_handlers({})

    # -- inside

    def _refused(self, event: BaseEvent) -> bool:
        if self._shutting_down:
            logger.warning("the event bus is shut down: %s is not delivered", event.type)
        return self._shutting_down

    @contextlib.contextmanager
    def _prepared(self, source: Any, event: BaseEvent) -> Iterator[RuntimeStateLike | None]:
        """The event has all it gets, and the lock that keeps events in order is held."""
        run = kickoff.current()
        state = self._state_of(run)
        with run.guard(), state.lock if state is not None else run.lock:
            if state is not None and getattr(source, "entity_type", None) in _ENTITIES:
                self.register_entity(source)
            placed = event.parent_event_id is not None  # by whoever emits it: the scope is not touched
            if not placed:
                scope.refuse_depth(event)
            event.previous_event_id = run.last_event_id
            event.triggered_by_event_id = event.triggered_by_event_id or scope.get_triggering_event_id()
            stack = scope.event_stack() if placed else scope.place(event)
            event.emission_sequence = run.number(event)
            if not placed:
                scope.settle(event, stack)
            if event.recorded:
                run.last_event_id = event.event_id
                if state is not None:
                    state.event_record.add(event)
            for tap in self.taps:
                try:
                    call(tap, source, event, state)
                except Exception:
                    logger.exception("%s failed at %s", name_of(tap), event.type)
            if to := sinks():
                publish(event, to)
            yield state

    def _deliver(
        self, handlers: tuple[Handler, ...], source: Any, event: BaseEvent, state: RuntimeStateLike | None
    ) -> "Future[None] | None":
        if not handlers:
            return None

        def calling(handler: Handler) -> Callable[[], Any]:
            return lambda: call(handler, source, event, state)

        if self._waits_for and not self._waits_for.keys().isdisjoint(handlers):
            plan = build_execution_plan(handlers, self._waits_for)
            return self._dispatcher.submit_in_turn([[(one, calling(one)) for one in step] for step in plan])
        return self._dispatcher.submit([(handler, calling(handler)) for handler in handlers])

    def _handlers_of(self, event: BaseEvent) -> tuple[Handler, ...]:
        key = (type(event), event.type)
        found = self._found.get(key)
        if found is None:
            with self._lock:
                kinds = [kind for kind in self._handlers if kind in ("*", event.type) or _is_of(event, kind)]
                found = tuple(dict.fromkeys(handler for kind in kinds for handler in self._handlers[kind]))
                if len(self._found) < 1000:  # types are free text: a million of them are not kept
                    self._found[key] = found
        audience = _audience.get()
        return found if audience is None else tuple(handler for handler in found if audience(module_of(handler)))

    def _set_handlers(self, handlers: dict[EventKind, tuple[Handler, ...]]) -> None:
        self._handlers, self._found = handlers, {}

    def _at_exit(self) -> None:
        if not self.flush(FLUSH_SECONDS):
            logger.warning("the process exits while event handlers were still running after %g s", FLUSH_SECONDS)


def _kind(event_type: EventKind) -> EventKind:
    if isinstance(event_type, str) or (isinstance(event_type, type) and issubclass(event_type, BaseEvent)):
        return event_type
    raise TypeError(f"an event class or a type such as 'task_completed' is expected, not {event_type!r}")


def module_of(handler: Handler) -> str:
    """The name of the module in which a handler, or a hook, is defined."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return str(getattr(handler, "__module__", None) or type(handler).__module__)


def _is_of(event: BaseEvent, kind: EventKind) -> bool:
    return isinstance(kind, type) and isinstance(event, kind)


event_bus = EventBus()
"""The bus of this process."""


def on_signal(handler: H) -> H:
    """Call a handler for every signal that the process is sent and that triggers a checkpoint."""
    return event_bus.on("SIGTERM", "SIGINT", "SIGHUP", "SIGTSTP", "SIGCONT")(handler)


# Registered with the first import, it runs after what others do at the end, who may still emit.
atexit.register(event_bus._at_exit)
