"""Flows on the fleet: each execution of a method is a task, and its commit adds the tasks that it triggers."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from runner.core import output as outputs
from runner.core.compatibility import TRIGGER_PAYLOAD
from runner.core.errors import BadCrew, BadInput, InputRequired, OutputGone, TaskError
from runner.core.plain_text import of_class
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Expand, Expansion, Shared
from runner.crews.crew import CrewOutput
from runner.engine.adapter import GrowingAdapter
from runner.engine.work import Work
from runner.events import flow_events as events
from runner.events.base import BaseEvent
from runner.flows import state as states
from runner.flows import typed, values
from runner.flows.definition import MARK, FlowDefinition
from runner.flows.execution import Execution, Outcome, passed_on
from runner.flows.feedback import AnswerRefused, HumanFeedbackResult
from runner.flows.flow import Flow, created_quietly
from runner.flows.history import PART, FlowPosition, part_of, position_after
from runner.flows.machine import Call, method_of
from runner.flows.patch import apply_all, diff_all, format_conflict
from runner.flows.persistence import persistence_of
from runner.flows.typed import Models
from runner.flows.values import decode, encode
from runner.providers.config import CheckpointConfig, resolve

#: What a flow calls the events that trigger checkpoints, and what the fleet calls them.
_TRIGGERS = {
    "method_execution_started": "task_started",
    "method_execution_finished": "task_completed",
    "method_execution_failed": "task_failed",
    "flow_started": "crew_kickoff_started",
    "flow_finished": "crew_kickoff_completed",
}


_WORDS: dict[str, Any] = {
    "crew_kickoff_started": events.FlowStartedEvent,
    "crew_kickoff_completed": events.FlowFinishedEvent,
    "crew_kickoff_failed": events.FlowFailedEvent,
    "task_started": events.MethodExecutionStartedEvent,
    "task_completed": events.MethodExecutionFinishedEvent,
    "task_failed": events.MethodExecutionFailedEvent,
    "task_asked": events.MethodExecutionPausedEvent,
}
_RELATIVES = ("event_id", "emission_sequence", "parent_event_id", "previous_event_id", "started_event_id", "timestamp")


class FlowAdapter(GrowingAdapter):
    """Plans flows and performs their methods. A flow is a class of flows or an instance."""

    name = "flow"

    def accepts(self, thing: object) -> bool:
        """Whether it is a flow with methods."""
        owner = thing if isinstance(thing, type) else type(thing)
        return issubclass(owner, Flow) and any(
            hasattr(value, MARK) for base in owner.__mro__ for value in vars(base).values()
        )

    def plan(self, crew: Any, name: str) -> Plan:  # noqa: ARG002 - the port's name
        """Return the entry points, and the definition by which the plan grows. Raises `BadCrew`."""
        definition = self._definition(crew)
        if not definition.starts:
            raise BadCrew(f"flow {definition.name} has no method with @start(): it has nothing to start with")
        ready = tuple(PlannedTask(method.name, timeout=method.timeout) for method in definition.starts)
        return Plan(crew=self._made(crew).flow_name, tasks=ready, grows=definition.to_data())

    def checkpoints(self, crew: Any) -> CheckpointConfig | None:
        """Return the checkpoint settings that the flow's ``checkpoint`` gives, with the fleet's event names."""
        config = self._config(crew)
        if config is None:
            return None
        return config.model_copy(update={"on_events": [self.trigger(event) for event in config.on_events]})

    def trigger(self, event_type: str) -> str:
        """Convert an event of methods to one of tasks."""
        return _TRIGGERS.get(event_type, event_type)

    def initial_state(self, crew: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the initial state of a run. Raises `BadInput`."""
        flow = self._made(crew)
        if "id" in inputs and self._keeps(flow):
            raise BadInput(
                "an id among the inputs resumes what @persist kept in one process: on the fleet the run keeps the "
                "state, and `runner fork` starts from it"
            )
        states.give(flow.committed_state, inputs)
        try:
            return typed.dump(flow.committed_state, _refuse, self._models(flow))
        except TaskError as error:
            raise BadInput(str(error)) from None

    def perform(self, crew: Any, work: Work) -> str:  # noqa: ARG002 - the port's name
        """Not used: `expand` performs the tasks of a dynamic plan."""
        raise TaskError(f"{work.key!r} is a method of a flow: it runs in `grow`")

    def expand(self, crew: Any, work: Work) -> Expand:
        """Run one method on the current state. The result says how the plan grows."""
        assert work.line is not None
        flow, shared = self._made(crew), work.line.shared()
        position = _position(flow, work, shared)
        call = position.machine.pending.get(work.key)
        if call is None:
            raise TaskError(f"the code of flow {flow.flow_name} changed: it no longer reaches {work.key!r}")
        models = self._models(flow)
        typed.load(flow.committed_state, position.state, models)
        return self._done(flow, _execution(flow, work, call, models), work, position)

    def _done(self, flow: Flow[Any], execution: Execution, work: Work, position: FlowPosition) -> Expand:
        """Run the method and return its changes."""
        models = self._models(flow)
        outcome = self._perform(flow, execution, work)
        base = typed.aligned(position.state, typed.dump(execution.base, _refuse, models))
        mine = typed.aligned(base, typed.dump(execution.state, _refuse, models))
        new = {name: value for name, value in base.items() if name not in position.state}
        patch = diff_all(base, mine)
        record = _record(execution.call, outcome, patch, models)
        return Growing(flow, work, outcome, position.machine.finished, base, new, patch, record)

    def format_event(self, crew: Any, key: str, event: BaseEvent) -> BaseEvent:
        """Convert events of tasks to those of methods, and events of crews to those of flows."""
        kind = _WORDS.get(event.type)
        if kind is None:
            return event
        known = {name: value for name in _RELATIVES if (value := getattr(event, name)) is not None}
        about: dict[str, Any] = {"flow_name": self._definition(crew).name, "method_name": method_of(key)}
        output = getattr(event, "output", None)
        if output is not None:
            about["result"] = output.raw if output.json_dict is None else output.json_dict
        found: BaseEvent = kind(**known, **about, error=getattr(event, "error", ""))
        return found

    def retry(self, crew: Any, key: str) -> tuple[int, float]:
        """Return the retry options of the method's decorator."""
        method = self._definition(crew).methods.get(method_of(key))
        return (method.max_retries, method.retry_delay) if method else (0, 1.0)

    def models(self, crew: Any) -> dict[str, type[BaseModel]]:
        """Return the models in the methods' return annotations."""
        flow = self._made(crew)
        found = ((name, values.returned(flow.typed_by(name))) for name in self._definition(crew).methods)
        return {name: one for name, one in found if isinstance(one, type) and issubclass(one, BaseModel)}

    # -- what another kind of flows does otherwise

    def _made(self, crew: Any) -> Flow[Any]:
        """Create a flow object for one task, so that no attribute of one method's ``self`` reaches the next."""
        with created_quietly():  # an author's ``__copy__`` may create one, too
            flow: Flow[Any] = created(crew) if isinstance(crew, type) else copy.copy(crew)
        if not isinstance(crew, type):
            flow.__dict__.pop("_lock", None)
            flow._reset()
            flow._state = states.twin(crew.committed_state)
        flow.has_terminal = False
        return flow

    def _config(self, crew: Any) -> CheckpointConfig | None:
        return resolve(crew.checkpoint)

    def _definition(self, crew: Any) -> FlowDefinition:
        found: FlowDefinition = crew.flow_definition()
        return found

    def _keeps(self, flow: Flow[Any]) -> bool:
        """Whether it has ``@persist``."""
        return persistence_of(flow) is not None

    def _models(self, flow: Flow[Any]) -> Models:  # noqa: ARG002 - for others
        """The models that keep their type, although no annotation names it."""
        return Models()

    def _perform(self, flow: Flow[Any], execution: Execution, work: Work) -> Outcome:  # noqa: ARG002 - for others
        return _perform(flow, execution)


FLOW = FlowAdapter()


@dataclass(frozen=True)
class Growing:
    """The changes of a finished method, merged into the state that is current when they are stored."""

    flow: Flow[Any]
    work: Work
    outcome: Outcome
    began: int
    base: Mapping[str, Any]
    new: Mapping[str, Any]
    patch: Mapping[str, Any]
    record: dict[str, Any]

    def __call__(self, shared: Shared) -> Expansion:
        """Merge the changes, and advance the machine."""
        there = _position(self.flow, self.work, shared)
        # Fields that the code has and the stored state has not, as after a change of the code, are not a change.
        there.state, paths = apply_all(self.patch, {**self.new, **there.state}, self.base)
        paths = [path for path in paths if path.partition(".")[0] != typed.KEY]  # it follows from the values
        notes = (("flow_state_conflict", self._described(paths, there.machine.finished)),) if paths else ()
        triggered = there.machine.finish(self.work.key, self.outcome.signal)
        fields = there.fields()
        return Expansion(
            json.dumps(self.record, ensure_ascii=False),
            tuple(_planned(self.flow, one) for one in triggered),
            {name: text for name, text in fields.items() if shared.fields.get(name) != text},
            tuple(name for name in shared.fields if name not in fields),
            notes,
        )

    def _described(self, paths: list[str], finished: int) -> str:
        assert self.work.line is not None
        history = [one for one in self.work.line.history() if one.key]
        since = history[len(history) - (finished - self.began) :]
        changed = [(method_of(one.key), part_of(one).get("patch", {})) for one in since]
        return format_conflict(paths, method_of(self.work.key), changed)


def created(flow_class: type) -> Any:
    """Create the flow of a class. Raises `BadCrew` where it takes arguments."""
    try:
        return flow_class()
    except TypeError as error:
        raise BadCrew(
            f"{flow_class.__name__} cannot be created without arguments ({error}): add "
            f"`flow = {flow_class.__name__}(...)` to the file, and name that"
        ) from None


def _position(flow: Flow[Any], work: Work, shared: Shared) -> FlowPosition:
    """The flow's position; if a new branch has not stored it yet, computed from the commits before the branch."""
    definition, limit = flow.flow_definition(), flow.max_method_calls
    if shared.version:
        return FlowPosition.from_fields(definition, shared.fields, limit)
    assert work.line is not None
    return position_after(definition, work.line.initial_state(), work.line.history(), limit)


def _execution(flow: Flow[Any], work: Work, call: Call, models: Models) -> Execution:
    method = flow.flow_definition().methods[call.method]
    execution = Execution(flow, method, call, _argument(flow, work, call, models), work.inputs.get(TRIGGER_PAYLOAD))
    execution.journal, flow._at_work[call.key] = work.journal, execution
    return execution


def _argument(flow: Flow[Any], work: Work, call: Call, models: Models) -> Any:
    """The output that triggered the call, typed by the method that returned it."""
    if not call.by:
        return states.MISSING
    assert work.line is not None
    record = work.line.records([call.by]).get(call.by)
    if record is None:
        raise OutputGone([call.by])
    part = record.get(PART, {})
    said = decode(part["feedback"], None) if "feedback" in part else None
    if said is not None:
        flow.last_human_feedback, flow.human_feedback_history = said, [said]
    stored = {"output": part["value"] if "value" in part else record.get("json", record.get("raw"))}
    if "kind" in part:
        stored["kind"] = part["kind"]
    output = models.put_back(decode(stored, flow.typed_by(method_of(call.by))), part.get("models"))
    return passed_on(said, call, output)


def _perform(flow: Flow[Any], execution: Execution) -> Outcome:
    try:
        return execution.do()
    except (InputRequired, AnswerRefused) as stop:
        if execution.call.key not in flow._asked and isinstance(stop, InputRequired):
            raise  # a crew inside of the method asks
        context = stop.context if isinstance(stop, AnswerRefused) else flow._asked[execution.call.key].context
        refused = str(stop) if isinstance(stop, AnswerRefused) else ""
        feedback = execution.method.feedback
        has_model = feedback is not None and feedback.llm is not None
        about = {"refused": refused, "has_model": has_model}
        raise InputRequired(context.step, context.message, {**context.to_dict(), **about}) from None


def _record(call: Call, outcome: Outcome, patch: Mapping[str, Any], models: Models) -> dict[str, Any]:
    """The output as it is stored, with the flow's part: see `runner.flows.history`."""
    try:
        encoded = encode(outcome.output)
    except TypeError as error:
        raise TaskError(
            f"method {call.method!r} returned something that is not JSON ({error}): "
            "return text, a dict, a list or a pydantic model"
        ) from None
    part: dict[str, Any] = {}
    if patch:
        part["patch"] = patch
    if outcome.signal is not None:
        part["signal"] = outcome.signal
    if "kind" in encoded:
        part["kind"] = encoded["kind"]
    if held := [one for one in models.within(outcome.output) if one[0] or "kind" not in encoded]:
        part["models"] = held
    if outcome.feedback is not None:
        part["feedback"] = encode(outcome.feedback)
    value = encoded["output"]
    stored: dict[str, Any] = json.loads(outputs.dump(*_texts(outcome.output, value, "kind" in encoded)))
    if not isinstance(value, str | dict | list):
        part["value"] = value
    return {**stored, PART: part} if part else stored


def _texts(output: Any, value: Any, is_known: bool) -> tuple[str, Any]:
    """The text to show, and the JSON if there is more to it."""
    data = value if isinstance(value, dict | list) else None
    if isinstance(output, CrewOutput) or (is_known and isinstance(getattr(output, "raw", None), str)):
        return output.raw, data
    if isinstance(output, HumanFeedbackResult):
        return output.feedback, data
    if isinstance(value, str):
        return value, None
    return "" if value is None else json.dumps(value, ensure_ascii=False), data


def _planned(flow: Flow[Any], call: Call) -> PlannedTask:
    return PlannedTask(call.key, timeout=flow.flow_definition().methods[call.method].timeout)


def _refuse(name: str, value: Any) -> None:
    raise TaskError(
        f"the field {name!r} of the state is {of_class(value)}, which is not JSON: "
        "on the fleet, a state holds text, numbers, lists, dicts and pydantic models"
    )
