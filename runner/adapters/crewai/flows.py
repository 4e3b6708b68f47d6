"""Runs CrewAI flows: each execution of a method is a task, with the state machine and merging of native flows.

CrewAI's flow provides its methods and its state; which methods run, and when, is decided here by its definition. Crews
that a method kicks off are made of recorded calls.
"""

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from crewai import CrewOutput, TaskOutput
from crewai.flow import ConsoleProvider, Flow, HumanFeedbackResult
from crewai.flow import HumanFeedbackPending as TheirPending
from crewai.flow import PendingFeedbackContext as TheirContext
from crewai.flow.flow_wrappers import FlowMethod
from crewai.lite_agent_output import LiteAgentOutput
from pydantic import BaseModel

from runner.adapters.crewai import crew_plan, event_routing, execute
from runner.adapters.crewai.flow_event_filter import Ending, FlowEventFilter
from runner.adapters.crewai.human_feedback import Labelling, Lessons
from runner.core.errors import BadCrew
from runner.core.plan.expansion import Expand
from runner.engine.work import Work
from runner.flows import flow as ours
from runner.flows import state as states
from runner.flows import values
from runner.flows.adapter import FlowAdapter, Growing, created
from runner.flows.definition import Condition, Feedback, FlowDefinition, Method
from runner.flows.execution import Execution, Outcome, current
from runner.flows.feedback import HumanFeedbackPending, PendingFeedbackContext
from runner.flows.feedback import HumanFeedbackResult as OurResult
from runner.flows.history import FlowPosition, as_edited, part_of
from runner.flows.typed import Models
from runner.providers.config import CheckpointConfig


class Facade(ours.Flow[Any]):
    """A CrewAI flow, behind the interface of our own flows."""

    theirs: Any
    event_filter: FlowEventFilter  #: while a method is at work

    def __init__(self, theirs: Any) -> None:
        owner: Any = type(theirs)
        self.theirs = theirs
        self.own_definition = translated(owner)
        self._state = states.twin(theirs.state)
        with ours.created_quietly():
            super().__init__()
        self.name = theirs.name or self.own_definition.name
        self.has_terminal = False
        self.max_method_calls = theirs.max_method_calls

    def flow_definition(self) -> FlowDefinition:  # type: ignore[override]  # for a class, too
        """Return the flow's methods, and what each waits for."""
        return self.own_definition

    def function_of(self, at: Execution) -> Callable[..., Any]:
        """Return the method without CrewAI's wrapper, bound to the CrewAI flow, with its state set."""
        at.state = self.set_theirs(at.state)
        return types.MethodType(_plain(type(self.theirs), at.method.name), self.theirs)

    def set_theirs(self, state: states.State) -> states.State:
        """Copy a state into the CrewAI flow's own state object, and return that."""
        live: states.State = self.theirs.state
        if state is not live:
            gone = tuple(name for name in states.fields(live) if name not in states.fields(state))
            states.put(live, states.Patch(states.fields(state), gone))
        return live

    def typed_by(self, method: str) -> Callable[..., Any] | None:
        """Return the function whose return annotation gives the type of the method's output."""
        return _plain(type(self.theirs), method)

    def _request_human_feedback(
        self,
        message: str,
        output: Any,
        metadata: dict[str, Any] | None = None,  # noqa: ARG002 - CrewAI's name
        emit: list[str] | None = None,
        method_name: str = "",  # noqa: ARG002 - CrewAI's name
    ) -> str | None:
        self.event_filter.asked(output, message, emit)
        return None

    def _collapse_to_outcome(self, answer: str, outcomes: list[str], llm: Any, default: str | None = None) -> str:
        assert isinstance(llm, Labelling)
        return llm.label(self.theirs, answer, outcomes, default)

    def _review_output(self, at: Execution, output: Any) -> Any:
        """Apply to the output what earlier feedback taught, if the method learns."""
        lessons = self._lessons(at)
        return output if lessons is None else lessons.review(self.theirs, at.method.name, output)

    def _learn_from(self, at: Execution, output: Any, answer: str) -> None:
        """Store what the feedback teaches, if the method learns."""
        if (lessons := self._lessons(at)) is not None and answer.strip():
            at.journal.step(
                "lessons", lambda said: lessons.learn(self.theirs, at.method.name, output, said), (answer,), {}
            )

    def _lessons(self, at: Execution) -> Lessons | None:
        asked = type(self.theirs).flow_definition().methods[at.method.name].human_feedback
        return Lessons(asked) if asked is not None and asked.learn else None


class CrewAIFlowAdapter(FlowAdapter):
    """Plans CrewAI flows, given as a class or an instance, and performs their methods."""

    name = "crewai-flow"
    disposable = True

    def accepts(self, thing: object) -> bool:
        """Whether this is a flow with methods that is not one of CrewAI's own, such as an agent's executor."""
        owner: Any = thing if isinstance(thing, type) else type(thing)
        if not issubclass(owner, Flow) or owner.__module__.partition(".")[0] == "crewai":
            return False
        return bool(owner.flow_definition().methods)

    def source(self, crew: Any, key: str) -> object:  # noqa: ARG002 - the port's name
        """Return the object that events name as their source: the flow."""
        return self._seen(crew)

    def retry(self, crew: Any, key: str) -> tuple[int, float]:  # noqa: ARG002 - the port's names
        """Return no retries: CrewAI has none for methods."""
        return 0, 0.0

    def _made(self, crew: Any) -> Facade:
        if not isinstance(crew, type):
            return Facade(crew)
        with event_routing.made_quietly():
            return Facade(created(crew))

    def _config(self, crew: Any) -> CheckpointConfig | None:
        return crew_plan.checkpoints(self._seen(crew).theirs)

    def _seen(self, crew: Any) -> Facade:
        """Return an instance that is only inspected and never executed."""
        if id(crew) not in _seen:
            _seen[id(crew)] = (crew, self._made(crew))
        return _seen[id(crew)][1]

    def _definition(self, crew: Any) -> FlowDefinition:
        return translated(crew if isinstance(crew, type) else type(crew))

    def _keeps(self, flow: ours.Flow[Any]) -> bool:
        return flow.theirs.persistence is not None  # type: ignore[attr-defined]  # a flow of this adapter has theirs

    def _models(self, flow: ours.Flow[Any]) -> Models:
        """Return the models that the author's modules define, and the output classes of CrewAI's crews and agents."""
        space = type(flow.theirs).__module__.partition(".")[0]  # type: ignore[attr-defined]  # a flow of this adapter has theirs
        found = Models(dict(_GIVEN), dict(_MADE))
        for name, module in list(sys.modules.items()):
            if name == space or name.startswith(f"{space}."):
                for one in list(vars(module).values()):
                    if isinstance(one, type) and issubclass(one, BaseModel) and not _is_theirs(one):
                        found.classes[f"{one.__module__.removeprefix(space)}:{one.__qualname__}"] = one
        return found

    def _done(self, flow: ours.Flow[Any], execution: Execution, work: Work, position: FlowPosition) -> Expand:
        assert isinstance(flow, Facade)
        theirs = flow.theirs
        _remember_feedback(flow, work)
        execution.argument = _theirs(execution.argument)
        theirs.input_provider = _Asking()
        flow.event_filter = FlowEventFilter(theirs, flow.own_definition.name, work)
        with execute.at_work(execute.NO_CREW, work, theirs), flow.event_filter.open():
            try:
                growing = super()._done(flow, execution, work, position)
                assert isinstance(growing, Growing)
                flow.event_filter.finished(_signal(growing.outcome), execution.state)
            except Exception as error:
                if work.journal.cancel_scope.stopping is None:  # else it is interrupted, and no failure
                    flow.event_filter.failed(error)
                raise
        return Ending(growing, flow, self._models(flow), _theirs(growing.outcome.output))

    def _perform(self, flow: ours.Flow[Any], execution: Execution, work: Work) -> Outcome:
        assert isinstance(flow, Facade)
        flow.function_of(execution)
        with flow.event_filter.at_work(execution):
            try:
                outcome = super()._perform(flow, execution, work)
            finally:
                if work.journal.cancel_scope.stopping is None:
                    flow.theirs._drain_memory_writes()  # the process ends with the method; CrewAI's with the flow
        asked = execution.method.feedback
        if asked is not None and asked.provider is None and outcome.feedback is not None:
            flow.event_filter.answered(outcome.feedback.feedback)
        return outcome


_seen: dict[int, tuple[object, Facade]] = {}
"""By the id of a flow or its class, both."""

CREWAI_FLOW = CrewAIFlowAdapter()


@functools.cache
def translated(owner: Any) -> FlowDefinition:
    """Translate the definition of a CrewAI flow class to ours. Raises `BadCrew` for a flow that cannot be run."""
    definition = owner.flow_definition()
    if definition.conversational is not None:
        raise BadCrew(f"{definition.name} is a conversation that never ends; such a flow cannot be a run")
    return FlowDefinition(definition.name, {str(name): _method(name, one) for name, one in definition.methods.items()})


def _method(name: str, one: Any) -> Method:
    listens = one.listen if one.listen is not None else one.start if not isinstance(one.start, bool) else None
    return Method(
        str(name),
        start=one.is_start,
        when=None if listens is None else _condition(listens),
        router=bool(one.router),
        emit=tuple(one.emit or ()),
        feedback=None if one.human_feedback is None else _feedback(one.human_feedback),
        entry=one.start is True and listens is not None,
    )


def _condition(given: Any) -> Condition:
    if isinstance(given, str):
        return Condition("or", (str(given),))
    ((kind, parts),) = given.items()
    found = (str(one) if isinstance(one, str) else _condition(one) for one in parts)
    return Condition("and" if kind == "and" else "or", tuple(found))


def _feedback(asked: Any) -> Feedback:
    is_asked = asked.provider is not None and not isinstance(asked.provider, ConsoleProvider)
    provider = _Provider(asked.provider) if is_asked else None
    emit = tuple(asked.emit or ())
    return Feedback(
        asked.message,
        emit,
        Labelling(asked.llm) if emit else None,
        asked.default_outcome,
        asked.metadata or {},
        provider,
    )


class _Provider:
    """Calls a CrewAI feedback provider for one of our flows."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def request_feedback(self, context: PendingFeedbackContext, flow: Facade) -> Any:
        """Return the provider's feedback. Raises `HumanFeedbackPending` where it says that the flow is to wait."""
        names = set(TheirContext.__dataclass_fields__) & set(context.__dataclass_fields__)
        try:
            return self._theirs.request_feedback(
                TheirContext(**{name: getattr(context, name) for name in names}), flow.theirs
            )
        except TheirPending as pending:
            flow.event_filter.paused(context)
            raise HumanFeedbackPending(context, dict(pending.callback_info or {})) from None


class _Asking:
    """Answers ``self.ask(...)`` through the run, so no worker waits for the person."""

    def request_input(self, message: str, flow: Any, metadata: dict[str, Any] | None = None) -> str | None:  # noqa: ARG002 - CrewAI's names
        """Return the answer. Raises `InputRequired` while there is none."""
        execution = current.get()
        return None if execution is None else execution.ask(message, metadata, pause=True)


def _plain(owner: Any, name: str) -> Callable[..., Any]:
    found: Any = getattr(owner, name)
    while isinstance(found, FlowMethod):
        found = found.unwrap()
    return found  # type: ignore[no-any-return]  # whatever was wrapped


def _theirs(argument: Any) -> Any:
    """Convert the argument of a method that listens to feedback to CrewAI's own class."""
    if not isinstance(argument, OurResult):
        return argument
    return HumanFeedbackResult(**{one.name: getattr(argument, one.name) for one in dataclasses.fields(argument)})


def _signal(outcome: Outcome) -> Any:
    """Return the result of a method as CrewAI reports it: the chosen outcome if a person was asked to choose one."""
    if outcome.feedback is not None and outcome.feedback.outcome is not None:
        return outcome.feedback.outcome
    return _theirs(outcome.output)


def _remember_feedback(flow: Facade, work: Work) -> None:
    """Restore ``human_feedback_history`` and ``last_human_feedback``, which methods may read."""
    if work.line is None or not any(method.feedback for method in flow.own_definition.methods.values()):
        return
    history, _ = as_edited(flow.own_definition, work.line.history())
    parts = [part_of(one) for one in history if one.key]
    said = [_theirs(values.decode(part["feedback"], None)) for part in parts if "feedback" in part]
    flow.theirs.human_feedback_history = said
    flow.theirs.last_human_feedback = said[-1] if said else None


def _is_theirs(owner: type) -> bool:
    return owner.__module__.partition(".")[0] in ("crewai", "pydantic")


def _output(owner: Any, data: Mapping[str, Any]) -> Any:
    """An output of CrewAI's of this class, of its JSON, without the models in it."""
    tasks = [{**one, "pydantic": None} for one in data.get("tasks_output") or ()]
    more = {"tasks_output": tasks} if owner is CrewOutput else {}
    return owner.model_validate({**data, "pydantic": None, **more})


#: What CrewAI's crews and agents give, by the names under which it is stored; its models are put back after that.
_GIVEN: dict[str, type] = {
    "crewai_crew_output": CrewOutput,
    "crewai_task_output": TaskOutput,
    "crewai_agent_output": LiteAgentOutput,
}
_MADE = {name: functools.partial(_output, owner) for name, owner in _GIVEN.items()}

for _name, _owner in _GIVEN.items():
    values.known(_name, _owner, _MADE[_name])
