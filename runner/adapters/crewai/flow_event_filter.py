"""Delivers events to handlers in the code of a CrewAI flow, as CrewAI's own engine would.

That engine does not run here: the events of the flow and its methods are emitted here instead, each once, whatever
dies, and to the handlers of the flow's code alone. The same scopes are open around what the methods do.
"""

import contextlib
import contextvars
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from crewai.events import crewai_event_bus
from crewai.events.types import flow_events as events
from crewai.flow.flow_context import current_flow_method_name
from pydantic import BaseModel

from runner.adapters.crewai.event_routing import EventRouting, Recipients
from runner.core.context_value import ContextValue
from runner.core.errors import BadFlow
from runner.core.plan.expansion import Expansion, Shared
from runner.engine.work import Work
from runner.flows import state as states
from runner.flows import typed
from runner.flows.execution import Execution
from runner.flows.history import FlowPosition
from runner.flows.typed import Models

_ASKED = ("flow_input_requested", "flow_input_received")


class FlowEventFilter(EventRouting):
    """Decides which handlers receive the events of one execution of a flow's method."""

    def __init__(self, flow: Any, name: str, work: Work) -> None:
        super().__init__(work)
        self._flow, self._name = flow, name
        self._method = ""
        self._times: Counter[str] = Counter()

    def emit(self, source: Any, event: Any) -> Any:
        """Emit an event; the code's handlers receive each request of the method for input once, despite restarts."""
        if source is not self._flow or event.type not in _ASKED:
            return super().emit(source, event)
        self._times[event.type] += 1
        mark = f"{event.type} {self._times[event.type]}"
        return self.route(source, event, Recipients.CREWAI if self.was_received(mark) else Recipients.ALL, mark)

    @contextlib.contextmanager
    def at_work(self, execution: Execution) -> Iterator[None]:
        """While this is open, the method is at work in the flow's event scope and its own; both starts are reported."""
        self._method = execution.method.name
        if self._work.opens and not self._flow.suppress_flow_events:
            self._once(events.FlowCreatedEvent(flow_name=self._name))
        started = events.FlowStartedEvent(flow_name=self._name, inputs=dict(self._work.inputs) or None)
        self._once(started, self._id("flow"), here=self._work.opens)
        given = () if execution.method.start else execution.arguments()
        if not self._flow.suppress_flow_events:
            params = {f"_{number}": one for number, one in enumerate(given)}
            begun = events.MethodExecutionStartedEvent(**self._about(execution.state), params=params)
            self._once(begun, self._id(self._work.key))
        with ContextValue(current_flow_method_name, self._method):
            yield

    def asked(self, output: Any, message: str, emit: list[str] | None) -> None:
        """Report that a person is asked for feedback on the method's output."""
        self._once(events.HumanFeedbackRequestedEvent(**self._named(), output=output, message=message, emit=emit))

    def answered(self, feedback: str) -> None:
        """Report the person's feedback."""
        self._once(events.HumanFeedbackReceivedEvent(**self._named(), feedback=feedback))

    def paused(self, context: Any) -> None:
        """Report that a feedback provider pauses the flow until there is feedback."""
        for kind in (events.MethodExecutionPausedEvent, events.FlowPausedEvent):
            about = {name: getattr(context, name) for name in ("flow_id", "message", "emit")}
            if kind is events.FlowPausedEvent or not self._flow.suppress_flow_events:
                self._once(kind(**self._about(self._flow.state), **about))

    def finished(self, result: Any, state: Any) -> None:
        """Report that the method finished, and wait until all of its events are delivered."""
        if not self._flow.suppress_flow_events:
            self._once(events.MethodExecutionFinishedEvent(**self._about(state), result=result))
        crewai_event_bus.flush()  # the process ends, and what else the method emitted is delivered

    def failed(self, error: Exception) -> None:
        """Report that the method failed, and the flow with it. A resumed run may report it again."""
        if self._method and not self._flow.suppress_flow_events:
            self.route(self._flow, events.MethodExecutionFailedEvent(**self._named(), error=error), Recipients.CODE)
        crewai_event_bus.flush()
        self.broken(error)

    def broken(self, error: Exception) -> None:
        """Report that the flow failed outside of a method, for instance because it loops for ever."""
        self.route(self._flow, events.FlowFailedEvent(flow_name=self._name, error=error), Recipients.CODE)

    def over(self, result: Any) -> None:
        """Report that the flow finished. The same process commits that next."""
        state = as_reported(self._flow.state)
        self.route(
            self._flow, events.FlowFinishedEvent(flow_name=self._name, result=result, state=state), Recipients.CODE
        )

    def _once(self, event: Any, event_id: str = "", *, here: bool = True) -> None:
        """Deliver an event to the code's handlers if it is reported ``here``, and new: ``event_id`` stays the same."""
        if event_id:
            event.event_id = event_id
        is_reported = here and not self.was_received(event.type)
        self.route(self._flow, event, Recipients.CODE if is_reported else Recipients.NONE, event.type)

    def _about(self, state: Any) -> dict[str, Any]:
        return {**self._named(), "state": as_reported(state)}

    def _named(self) -> dict[str, str]:
        return {"flow_name": self._name, "method_name": self._method}

    def _id(self, name: str) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._work.run_id} {self._work.branch} {name}"))


@dataclass(frozen=True)
class Ending:
    """The output of a finished method. If no other method is left, the flow's end is reported before this is stored."""

    growing: Any
    flow: Any
    models: Models
    result: Any
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    reported: list[str] = field(default_factory=list)

    @property
    def record(self) -> dict[str, Any]:
        """The method's output as it is stored."""
        found: dict[str, Any] = self.growing.record
        return found

    def __call__(self, shared: Shared) -> Expansion:
        """Compute the flow's next tasks and state from the fields that the run shares."""
        try:
            expansion: Expansion = self.growing(shared)
        except Exception as error:
            self._report(self.flow.event_filter.broken, error)
            raise
        fields = {name: text for name, text in {**shared.fields, **expansion.put}.items() if name not in expansion.gone}
        there = FlowPosition.from_fields(self.flow.own_definition, fields)
        if not there.machine.pending:
            with contextlib.suppress(BadFlow):  # what does not fit its type is reported as the method left it
                typed.load(self.flow.committed_state, there.state, self.models)
                self.flow.set_theirs(self.flow.committed_state)
            self._report(self.flow.event_filter.over, self.result)
        return expansion

    def _report(self, report: Callable[[Any], None], about: Any) -> None:
        def reporting() -> None:
            with self.flow.event_filter.open():
                report(about)

        if not self.reported:
            self.reported.append(report.__name__)
            self.context.run(reporting)


def as_reported(state: Any) -> dict[str, Any]:
    """A flow's state, as events have it."""
    if not isinstance(state, BaseModel):
        return dict(states.twin(state))
    try:
        return state.model_dump(mode="json")
    except Exception:  # of a type that is not JSON
        return state.model_dump()
