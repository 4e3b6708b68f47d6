"""Records what CrewAI emits on its own bus inside of a task among the run's events, under the same names.

CrewAI hands each event to the sinks of the context, in the emitting thread and in order. What the engine reports itself
(the crew's kickoff, its tasks) is left out, and so is all but an event's figures.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from crewai import Crew
from crewai.events.stream_context import add_stream_sink, reset_stream_sinks
from crewai.hooks import InterceptionPoint

from runner.adapters.crewai import crew_plan, kickoff_names
from runner.core.ledger import CallContext, CallResult, Usage, caller
from runner.engine.work import Work
from runner.events.base import BaseEvent
from runner.events.bus import event_bus
from runner.events.call_events import LLMCallCompletedEvent, LLMCallFailedEvent, LLMCallStartedEvent
from runner.journal.current_journal import active_journal
from runner.journal.journal import Journal

_CALLS: dict[str, type[BaseEvent]] = {
    "llm_call_started": LLMCallStartedEvent,
    "llm_call_completed": LLMCallCompletedEvent,
    "llm_call_failed": LLMCallFailedEvent,
}


@contextlib.contextmanager
def receiving(take: Callable[[Any, Any], None]) -> Iterator[None]:
    """While this is open, ``take`` is called with each event that is emitted in this context, and its source."""
    token = add_stream_sink(take)
    try:
        yield
    finally:
        reset_stream_sinks(token)


@contextlib.contextmanager
def observing(crew: Crew, work: Work, flow: Any = None) -> Iterator[None]:
    """Copy CrewAI's events in this context and its copies to the run's events, but for those of the ``flow`` itself."""
    observer = _CallObserver(crew, work, flow)
    with receiving(observer.take), crew_plan.hooked(InterceptionPoint.PRE_MODEL_CALL, observer.unjournaled.asked):
        yield
    if count := observer.unjournaled.count:
        calls = "1 call of a model" if count == 1 else f"{count} calls of models"
        work.note("task_log", f"{calls} bypassed the journal: not in the ledger, and repeated if the task starts over")


class _Call:
    """One model call of CrewAI, with the results that the recording transport reported for it."""

    def __init__(self, before: CallContext, seen: int = -1) -> None:
        self.before, self.seen = before, seen
        self.results: list[CallResult] = []


_calls: ContextVar[dict[str, _Call] | None] = ContextVar("runner_crewai_calls", default=None)


def _role(event: Any) -> str | None:
    """Return the agent's role without the trailing newline that YAML's ``role: >`` leaves."""
    return (event.agent_role or "").strip() or None


class _CallObserver:
    def __init__(self, crew: Crew, work: Work, flow: Any) -> None:
        self._crew, self._work, self._flow = crew, work, flow
        self._own = {id(one) for one in (crew, *crew.tasks)}
        self._parts = 0  #: kickoffs inside of the task
        self._outer: dict[str, str] = {}  #: by the event that began one, what the code around it is part of
        self.unjournaled = UnjournaledCalls(work.journal)
        self._most = {str(agent.id): agent.max_rpm for agent in crew_plan.staff(crew)}

    def take(self, source: Any, event: Any) -> None:
        """Copy one event that CrewAI emitted."""
        kind = str(event.type)
        if id(source) in self._own and kind.startswith(("task_", "crew_kickoff_")):
            return
        if self._flow is not None and source is self._flow:
            return
        if kind == "hook_dispatched" or kind.endswith("_env"):  # ours, and each job's
            return
        about = {"timestamp": event.timestamp, "agent_role": _role(event), "task_name": event.task_name}
        if kind in _CALLS:
            event_bus.emit(source, _CALLS[kind](**about, **self._of_call(kind, source, event)))
        else:
            if kind == "crew_kickoff_started":
                self._begin_part(event)
            if crew := getattr(event, "crew_name", None):
                about["crew_name"] = crew
            inner = "/".join(one for one in (kickoff_names.current.get(), event.task_name) if one)
            event_bus.emit(source, BaseEvent(type=kind, task_id=inner or None, **about))
            if kind in ("crew_kickoff_completed", "crew_kickoff_failed"):
                kickoff_names.current.set(self._outer.pop(event.started_event_id or "", ""))

    def _begin_part(self, event: Any) -> None:
        self._parts += 1
        before = self._outer[event.event_id] = kickoff_names.current.get()
        name = kickoff_names.name_of(event.inputs, event.crew_name, self._parts)
        kickoff_names.current.set(f"{before}/{name}" if before else name)

    def _of_call(self, kind: str, source: Any, event: Any) -> dict[str, Any]:
        """Return the fields of a call's event. Until its end, recorded calls are attributed to its agent."""
        found = {"model": event.model, "from_agent": _role(event), "call_id": event.call_id}
        calls = _calls.get() or {}
        if kind == "llm_call_started":
            call = _Call(caller.get(), self._work.journal.calls)
            most = self._most.get(event.agent_id or "")
            caller.set(CallContext(_role(event) or "", announced=True, on_result=call.results.append, per_minute=most))
            _calls.set({**calls, event.call_id: call})
            return found
        call = calls.get(event.call_id) or _Call(caller.get())
        caller.set(call.before)
        _calls.set({name: one for name, one in calls.items() if one is not call})
        if kind == "llm_call_failed":
            return {**found, "error": "it was not answered"}
        self.unjournaled.answered(source, len(call.results), call.seen)
        usage = Usage(*map(sum, zip(*(one.usage for one in call.results), strict=True)))
        return {
            **found,
            "usage": usage.by_name(),
            "replayed": bool(call.results) and all(one.replayed for one in call.results),
        }


class UnjournaledCalls:
    """Counts CrewAI's model calls that bypass the journal: they are not in the ledger, and are made again on a restart.

    It compares the calls that CrewAI reports with those that the journal saw. CrewAI's own models report when they have
    answered; for other models CrewAI reports when they are asked.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._answered = self._unjournaled = self._asked = 0

    def answered(self, model: Any, seen: int, before: int) -> None:
        """Note that a call was answered; the journal saw ``seen`` requests meanwhile, ``before`` until its start."""
        if _is_own(model):
            self._answered += seen
            self._unjournaled += not seen and self._journal.calls == before

    def asked(self, context: Any) -> None:
        """Note that a model is about to be asked (a hook of CrewAI's)."""
        if active_journal() in (self._journal, None):  # else it is another task's, beside this one
            self._asked += not _is_own(context.llm)

    @property
    def count(self) -> int:
        """The least number of unjournaled calls: a call that its client retried may hide another one."""
        return self._unjournaled + max(0, self._asked - max(0, self._journal.calls - self._answered))


def _is_own(model: Any) -> bool:
    return type(model).__module__.partition(".")[0] == "crewai"
