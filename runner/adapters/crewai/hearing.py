"""What handlers in the crew's own code hear of its kickoff: once that it began and once that it ended.

Each task is a kickoff of CrewAI's, which tells of itself on CrewAI's bus. CrewAI's own handlers hear all of it, and its
scopes are kept. All others hear that it began with the branch's first task, and that it is done with its last one and
the crew's output. That they heard it is in the task's journal: a task that begins anew does not tell them again.
"""

import concurrent.futures
import contextlib
from collections.abc import Iterator
from typing import Any

from crewai import Crew, Task
from crewai.events import crewai_event_bus
from crewai.tasks.conditional_task import ConditionalTask

from runner.adapters.crewai import planned, usage
from runner.adapters.crewai.planned import AFTER, BEFORE, SKIPPED
from runner.adapters.crewai.seen import Earlier
from runner.work import Work

STARTED, COMPLETED, FAILED = "crew_kickoff_started", "crew_kickoff_completed", "crew_kickoff_failed"

_BOOKKEEPERS = frozenset({"crewai", "crewai_core", "crewai_tools", "runner"})
_DISPATCH = ("emit", "_call_handlers", "_acall_handlers")
_PATIENCE = 30.0  #: seconds that a handler is waited for: as long as CrewAI waits for it at the end


@contextlib.contextmanager
def as_one_kickoff(crew: Crew, work: Work) -> Iterator["Hearing"]:
    """While this is open, kickoffs of this very crew are told as parts of one. Those of others are told as they are."""
    hearing = Hearing(crew, work)
    if not all(hasattr(crewai_event_bus, name) for name in _DISPATCH):  # another CrewAI: each kickoff is told
        yield hearing
        return
    for name, instead in zip(_DISPATCH, (hearing.emit, hearing.call, hearing.acall), strict=True):
        setattr(crewai_event_bus, name, instead)
    try:
        yield hearing
    finally:
        for name in _DISPATCH:
            delattr(crewai_event_bus, name)  # the bus's own are its class's


class Hearing:
    """What of a task's kickoff is told to whom."""

    def __init__(self, crew: Crew, work: Work) -> None:
        self._crew, self._work = crew, work
        self._tasks: dict[str, Task] = planned.by_key(crew)
        self._bus = {name: getattr(crewai_event_bus, name, None) for name in _DISPATCH}
        self._quiet: set[str] = set()  # the events that only CrewAI's own hear of
        self._heard: set[str] = set()  # those that others heard of
        self._over = False

    def no_more(self) -> None:
        """How the kickoff ends from here on is ours, and told to nobody."""
        self._over = True

    def emit(self, source: Any, event: Any) -> Any:
        """CrewAI's own."""
        emit: Any = self._bus["emit"]
        if source is not self._crew or event.type not in (STARTED, COMPLETED, FAILED):
            return emit(source, event)
        if not self._is_told(event.type):
            self._quiet.add(event.event_id)
        elif event.type == COMPLETED:
            self._make_whole(event)
        future = emit(source, event)
        if future is not None:
            concurrent.futures.wait([future], _PATIENCE)
        if event.event_id in self._heard and event.type != FAILED:
            self._work.journal.keep(self._mark(event.type), True)
        return future

    def call(self, source: Any, event: Any, handlers: Any, *rest: Any) -> Any:
        """CrewAI's own, for those who are to hear of it."""
        call: Any = self._bus["_call_handlers"]
        return call(source, event, self._among(event, handlers), *rest)

    def acall(self, source: Any, event: Any, handlers: Any, *rest: Any) -> Any:
        """The same for coroutines."""
        call: Any = self._bus["_acall_handlers"]
        return call(source, event, self._among(event, handlers), *rest)

    def _among(self, event: Any, handlers: Any) -> Any:
        others = [one for one in handlers if not _is_bookkeeper(one)]
        if event.event_id in self._quiet:
            return frozenset(handlers) - frozenset(others)
        if others:
            self._heard.add(event.event_id)
        return handlers

    def _is_told(self, kind: str) -> bool:
        if kind == FAILED:
            return not self._over
        here = self._is_first() if kind == STARTED else self._is_last()
        return here and self._work.journal.kept(self._mark(kind)) is None

    def _mark(self, kind: str) -> str:
        """By branch: a fork of a task in flight takes up its journal."""
        return f"{kind} {self._work.branch}"

    def _own(self) -> list[str]:
        """What kicks the crew off on this branch, in the plan's order."""
        return [task.key for task in (self._work.part or self._work.plan).tasks if task.key != BEFORE]

    def _is_first(self) -> bool:
        own = self._own()
        before = own[: own.index(self._work.key)]
        if not all(isinstance(self._tasks.get(key), ConditionalTask) for key in before):
            return False
        beside = self._work.beside(before) if before else {}
        return all(beside.get(key, {}).get(SKIPPED) for key in before)

    def _is_last(self) -> bool:
        return self._own()[-1] == self._work.key

    def _make_whole(self, event: Any) -> None:
        """The crew's output and tokens, also of what was done elsewhere."""
        key = self._work.key
        if key == AFTER:  # it knows
            return
        names = list(self._tasks)
        later = names[names.index(key) + 1 :]  # a fork keeps them
        kept = Earlier(self._crew, self._tasks, self._work, None)
        kept.over = True
        outputs = (kept.tasks([name])[0].output for name in reversed(later))
        event.output = next((output for output in outputs if output is not None and output.raw), event.output)
        total = usage.of_all(self._work, [*self._work.plan.earlier(key), *later])
        total.add_usage_metrics(self._crew.token_usage)
        self._crew.token_usage = total
        event.total_tokens = total.total_tokens


def _is_bookkeeper(handler: Any) -> bool:
    return str(getattr(handler, "__module__", "")).partition(".")[0] in _BOOKKEEPERS
