"""Converts a flow to data and back: its state, its methods' outputs, and what is still to run.

A checkpoint holds the *log*; the machine is replayed over it with the code at hand to find what runs next.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from runner.core import live_objects
from runner.core.errors import BadCheckpoint
from runner.flows import state as states
from runner.flows.definition import FlowDefinition
from runner.flows.feedback import HumanFeedbackPending, PendingFeedbackContext
from runner.flows.flow import Flow, created_quietly
from runner.flows.machine import Done, key_of, replay
from runner.flows.schema import describe as describe_initial
from runner.flows.schema import rebuild
from runner.flows.values import decode, encode_gently
from runner.providers.base import CheckpointNotFound
from runner.providers.config import CheckpointConfig
from runner.snapshots import Progress, restore


class FlowKind:
    """Flows, for `runner.snapshots`. ``code`` is a flow, or a class of flows."""

    name = "flow"

    def describe(self, entity: Flow[Any], state: Any) -> dict[str, Any]:  # noqa: ARG002 - the protocol's name
        """The flow as it stands: whole methods only, for each works on its own copy of the state."""
        with entity._lock:
            begun = entity._machine is not None
            pending = entity._machine.pending if entity._machine else {}
            return {
                "entity_type": "flow",
                "name": entity.name,
                "flow_name": entity.flow_name,
                "methods": list(entity.flow_definition().methods) or entity.stored_methods,
                "initial_state": describe_initial(entity.initial_state),
                "checkpoint_completed_methods": sorted(entity._completed_methods) or None,
                "checkpoint_method_outputs": [_describe_entry(one) for one in entity._method_outputs] or None,
                "checkpoint_method_counts": dict(entity._method_execution_counts) or None,
                "checkpoint_state": states.dump(entity.committed_state, entity.leave_out),
                "checkpoint_kickoff_event_id": entity.kickoff_event_id,
                "inputs": to_jsonable_python(entity.inputs, fallback=str),
                "given": entity.given,
                "begun": begun,
                "steps": {key: dict(steps) for key, steps in entity._steps.items() if steps and key in pending},
                "asked": {key: one.context.to_dict() for key, one in entity._asked.items()},
            }

    def build(self, data: dict[str, Any], state: Any) -> Flow[Any]:
        """A flow without methods, with all its data."""
        with created_quietly():
            flow: Flow[Any] = Flow(name=data.get("name"))
        flow.initial_state = rebuild(data.get("initial_state"))
        flow._state = dict(data.get("checkpoint_state") or {}) or states.create(None, None)
        flow.stored = data
        _take(flow, data, None)
        if state is not None:
            state.progress[id(flow)] = Progress(given=flow.given)
        return flow

    def living(self, cls: type[Any]) -> Iterator[Any]:
        """The classes that are ``cls`` or made of it, the newest first."""
        yield from (found for found in live_objects.newest_first(cls) if isinstance(found, type))

    def fits(self, code: Any, stored: Flow[Any]) -> bool:
        """Whether the code's flow has the stored one's name and all of its finished methods."""
        definition: FlowDefinition = code.flow_definition()
        name = code.flow_name if isinstance(code, Flow) else definition.name
        return name == stored_name(stored) and stored.completed_methods <= definition.methods.keys()

    def adopt(self, code: Flow[Any], stored: Flow[Any], state: Any) -> None:
        """A flow that is kicked off inside of what was restored continues as the one that was in flight there."""
        self.graft(code, stored, state, sure=True)

    def graft(self, code: Any, stored: Flow[Any], state: Any, *, sure: bool) -> Flow[Any]:
        """The code's flow with the stored one's data: a given flow itself continues; of a class, one is created."""
        if not sure and not self.fits(code, stored):
            raise BadCheckpoint(f"the checkpoint's flow is {stored_name(stored)}, not {code}")
        flow = _made(code) if isinstance(code, type) else code
        missing = sorted(stored.completed_methods - flow.flow_definition().methods.keys())
        if missing:
            raise BadCheckpoint(
                f"the checkpoint's flow {stored_name(stored)} did {', '.join(missing)}, "
                f"which {flow.flow_name} does not have: use the flow that the checkpoint was written by"
            )
        flow._reset()
        fresh = states.create(flow.initial_state, flow.declared_state())
        states.load(fresh, _known(stored.stored, flow))
        flow._state = fresh
        _take(flow, stored.stored, flow)
        outputs = [entry for entry in flow._method_outputs if isinstance(entry, dict) and "key" in entry]
        if stored.stored.get("begun", bool(outputs)):
            log = (Done(one["key"], one["method"], one.get("signal")) for one in outputs)
            flow._machine = replay(flow.flow_definition(), log, flow.max_method_calls)
        flow._is_restored = True
        if state is not None and id(stored) in state.progress:
            state.progress[id(flow)] = state.progress.pop(id(stored))
        return flow


FLOW = FlowKind()


def stored_name(flow: Flow[Any]) -> str:
    """Return the name of the flow in a checkpoint."""
    return str(flow.stored.get("flow_name") or flow.stored.get("name") or "Flow")


def take_up(flow: Flow[Any], config: CheckpointConfig) -> None:
    """Resume what the newest checkpoint of a location left unfinished. Without one, nothing changes."""
    before = flow._state
    flow.checkpoint = config.going_on()
    try:
        restore(type(flow), config, code=flow)
    except CheckpointNotFound:
        return
    if flow._machine is None or not flow._machine.pending:
        flow._reset()
        flow._restored, flow._state = None, before


def _made(code: type[Flow[Any]]) -> Flow[Any]:
    try:
        with created_quietly():
            return code()
    except TypeError as error:
        raise BadCheckpoint(
            f"{code.__name__} cannot be created without arguments ({error}): "
            f"create one and pass it the checkpoint, as in flow.kickoff(from_checkpoint=...)"
        ) from None


def _describe_entry(entry: Any) -> Any:
    if not (isinstance(entry, dict) and "key" in entry):
        return to_jsonable_python(entry, fallback=repr)
    found = {"method": entry["method"], "key": entry["key"], **encode_gently(entry["output"])}
    if "signal" in entry:
        found["signal"] = entry["signal"]
    if "feedback" in entry:
        found["feedback"] = encode_gently(entry["feedback"])
    return found


def _take(flow: Flow[Any], data: Mapping[str, Any], code: Flow[Any] | None) -> None:
    """Restore what happened from data, typed by the code's annotations if there is code."""
    turns: dict[str, int] = {}
    definition = code.flow_definition() if code is not None else None
    for one in data.get("checkpoint_method_outputs") or []:
        if not (isinstance(one, Mapping) and "method" in one and "output" in one):
            flow._method_outputs.append(one)
            continue
        method = str(one["method"])
        turns[method] = turns.get(method, 0) + 1
        entry: dict[str, Any] = {"method": method, "key": one.get("key") or key_of(method, turns[method])}
        entry["output"] = decode(one, getattr(code, method, None))
        if "feedback" in one:
            entry["feedback"] = decode(one["feedback"], None)
            flow.human_feedback_history.append(entry["feedback"])
            flow.last_human_feedback = entry["feedback"]
        if "signal" in one:
            entry["signal"] = one["signal"]
        elif "key" not in one and one["output"] is not None and _is_router(definition, method):
            entry["signal"] = str(one["output"])  # as it may have been written: without the label
        flow._method_outputs.append(entry)
        if method:
            flow._entries[entry["key"]] = entry
    flow._completed_methods = {str(name) for name in data.get("checkpoint_completed_methods") or ()}
    flow._method_execution_counts = dict(data.get("checkpoint_method_counts") or {})
    flow._steps = {key: dict(steps) for key, steps in (data.get("steps") or {}).items()}
    flow._asked = {
        key: HumanFeedbackPending(PendingFeedbackContext.from_dict(one))
        for key, one in (data.get("asked") or {}).items()
    }
    flow.inputs = copy.deepcopy(dict(data.get("inputs") or {}))
    flow.given = copy.deepcopy(data.get("given") or {})
    flow.kickoff_event_id = data.get("checkpoint_kickoff_event_id")


def _is_router(definition: FlowDefinition | None, method: str) -> bool:
    return definition is not None and method in definition.methods and definition.methods[method].router


def _known(data: Mapping[str, Any], flow: Flow[Any]) -> Mapping[str, Any]:
    """The stored state; of a flow that was never begun, what the code begins with too."""
    stored = data.get("checkpoint_state") or {}
    return stored if stored else states.dump(flow.committed_state, flow.leave_out)
