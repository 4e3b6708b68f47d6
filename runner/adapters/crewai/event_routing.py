"""Routes events on CrewAI's bus: to CrewAI's own handlers, those of the crew's code, both, or none.

CrewAI reports a kickoff in each process that does a part of it. Scopes and records are kept all the same.
"""

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import Any, Self

from crewai.events import crewai_event_bus

from runner.bundles.reading import being_read
from runner.core.context_value import ContextValue
from runner.engine.work import Work

_BOOKKEEPERS = frozenset({"crewai", "crewai_core", "crewai_tools", "runner"})
_DISPATCH = ("emit", "_call_handlers", "_acall_handlers")
_PATIENCE = 30.0  #: seconds that a handler is waited for: as long as CrewAI waits for it at the end


class Recipients(Enum):
    """Which handlers receive an event."""

    ALL = "all"
    CREWAI = "crewai"
    CODE = "code"
    NONE = "none"


class EventRouting:
    """Routes CrewAI's events while it is `open`. A subclass's `emit` decides for each."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._bus: dict[str, Callable[..., Any]] = {
            name: found for name in _DISPATCH if (found := _of_bus(name)) is not None
        }
        self._who: dict[str, Recipients] = {}  # by event, where it is not all
        self._received: set[str] = set()  # the events that the code's handlers received

    @contextlib.contextmanager
    def open(self) -> Iterator[Self]:
        """While this is open, the bus emits through `emit`: in this context; everywhere if no other one is open."""
        if len(self._bus) < len(_DISPATCH):  # another CrewAI: all handlers receive everything
            yield self
            return
        with _patching:
            if not _open:
                _before.update((name, found) for name, found in vars(crewai_event_bus).items() if name in _DISPATCH)
                vars(crewai_event_bus).update({name: partial(_dispatch, name, one) for name, one in self._bus.items()})
            _open.append(self)
        token = _here.set(self)
        try:
            yield self
        finally:
            _here.reset(token)
            with _patching:
                _open.remove(self)
                if not _open:
                    for name in _DISPATCH:
                        vars(crewai_event_bus).pop(name, None)
                    vars(crewai_event_bus).update(_before)
                    _before.clear()

    def emit(self, source: Any, event: Any) -> Any:
        """Emit an event as CrewAI would."""
        return self._bus["emit"](source, event)

    def was_received(self, mark: str) -> bool:
        """Whether the code's handlers received it in an earlier attempt of the task."""
        return self._work.journal.get_marker(self._on_branch(mark)) is not None

    def route(self, source: Any, event: Any, who: Recipients, mark: str = "") -> Any:
        """Emit an event to these handlers and wait for them. That the code's handlers ran is kept under ``mark``."""
        if who is not Recipients.ALL:
            self._who[event.event_id] = who
        calls: list[concurrent.futures.Future[Any]] = []
        with ContextValue(_calls, calls):
            future = self._bus["emit"](source, event)
        concurrent.futures.wait([*calls, *([] if future is None else [future])], _PATIENCE)
        if mark and event.event_id in self._received:
            self._work.journal.set_marker(self._on_branch(mark), True)
        return future

    def _on_branch(self, mark: str) -> str:
        """Make a marker's name unique to the branch: a fork of a task in flight continues its journal."""
        return f"{mark} {self._work.branch}"

    def dispatch(self, name: str, source: Any, event: Any, *rest: Any) -> Any:
        """Do what the bus does by the method of this name, with those of the handlers that the event is routed to."""
        if name == "emit":
            return self.emit(source, event)
        handlers, *more = rest
        return self._bus[name](source, event, self._among(event, handlers), *more)

    def _among(self, event: Any, handlers: Any) -> Any:
        who = self._who.get(event.event_id, Recipients.ALL)
        code = frozenset(one for one in handlers if not is_bookkeeper(one))
        if code and who in (Recipients.ALL, Recipients.CODE):
            self._received.add(event.event_id)
        wanted = {
            Recipients.ALL: frozenset(handlers),
            Recipients.CREWAI: frozenset(handlers) - code,
            Recipients.CODE: code,
        }
        return wanted.get(who, frozenset())


_here: ContextVar[EventRouting | None] = ContextVar("runner_crewai_routing", default=None)
_open: list[EventRouting] = []  # of the tasks that this process does now
_before: dict[str, Any] = {}  # what the bus itself had in the place of its methods
_patching = threading.Lock()


def _of_bus(name: str) -> Callable[..., Any] | None:
    """Return a method of the bus: the outer routing's where one is open around this one, else the bus's own."""
    if (outer := _here.get()) is not None:
        return partial(outer.dispatch, name)
    with _patching:
        found = getattr(crewai_event_bus, name, None)
        return found.args[1] if isinstance(found, partial) and found.func is _dispatch else found


def _dispatch(name: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the method of this context's routing; in a thread without one, of the only one that is open."""
    open_now = list(_open)
    routing = _here.get() or (open_now[0] if len(open_now) == 1 else None)
    return (original if routing is None else partial(routing.dispatch, name))(*args, **kwargs)


_quiet: ContextVar[bool] = ContextVar("runner_crewai_made_quietly", default=False)


_calls: ContextVar[list[concurrent.futures.Future[Any]] | None] = ContextVar("runner_crewai_calls", default=None)


def made_quietly() -> ContextValue[bool]:
    """While this is set, flows created in this context are not reported: each process of a run creates its own."""
    return ContextValue(_quiet, True)


def watch() -> None:
    """From here on, flows that are created while a file is read are not reported either, and no handler is left behind.

    CrewAI keeps no future of an event's functions if coroutines receive it, too: its process joins their threads.
    """
    start: Any = getattr(crewai_event_bus, "_ensure_executor_initialized", None)
    if start is not None and "_ensure_executor_initialized" not in vars(crewai_event_bus):
        vars(crewai_event_bus)["_ensure_executor_initialized"] = partial(_start_tracked, start)
    emit: Any = getattr(crewai_event_bus, "emit", None)
    if emit is None or "emit" in vars(crewai_event_bus):
        return

    def unless_quiet(source: Any, event: Any) -> Any:
        if event.type == "flow_created" and (_quiet.get() or being_read() is not None):
            return None
        return emit(source, event)

    vars(crewai_event_bus)["emit"] = unless_quiet


def _start_tracked(start: Callable[[], None]) -> None:
    """Start the bus's threads, once; CrewAI's `flush`, and who routes an event, wait for each call in them."""
    start()
    bus: Any = crewai_event_bus
    executor = getattr(bus, "_sync_executor", None)
    if executor is None or "submit" in vars(executor) or not hasattr(bus, "_track_future"):
        return
    submit = executor.submit

    def tracked(*call: Any, **named: Any) -> Any:
        future = bus._track_future(submit(*call, **named))
        if (calls := _calls.get()) is not None:
            calls.append(future)
        return future

    vars(executor)["submit"] = tracked


def is_bookkeeper(handler: Any) -> bool:
    """Whether a handler belongs to CrewAI or to the runner, and not to the crew's code."""
    return str(getattr(handler, "__module__", "")).partition(".")[0] in _BOOKKEEPERS
