"""Flows that wait for a person's word, kept by their id: another process takes them up by ``Flow.from_pending``."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from runner.flows import state as states
from runner.flows.entity import FLOW
from runner.flows.feedback import HumanFeedbackPending, PendingFeedbackContext
from runner.flows.flow import Flow, created_quietly
from runner.flows.machine import Machine
from runner.flows.persistence import FlowPersistence, SQLiteFlowPersistence, persistence_of
from runner.flows.values import encode_gently
from runner.journal.values import identity


def keep(flow: Flow[Any], pending: HumanFeedbackPending) -> None:
    """A flow has paused: keep it where its states are kept; without such a place, in a file if a provider paused it."""
    place = persistence_of(flow) or (SQLiteFlowPersistence() if pending.provided else None)
    if place is not None:
        flow.persistence = place
        context = dataclasses.replace(pending.context, flow=FLOW.describe(flow, None))
        place.save_pending_feedback(flow.flow_id, context, states.dump(flow.committed_state, flow.leave_out))


def forget(flow: Flow[Any]) -> None:
    """It has its answer."""
    if (place := persistence_of(flow)) is not None:
        place.clear_pending_feedback(flow.flow_id)


def from_pending(
    of: type[Flow[Any]], flow_id: str, persistence: FlowPersistence | None, options: Mapping[str, Any]
) -> Flow[Any]:
    """The flow of that id as it waits. Raises `ValueError` where none does."""
    place = persistence or persistence_of(of) or SQLiteFlowPersistence()
    found = place.load_pending_feedback(flow_id)
    if found is None:
        raise ValueError(f"No pending feedback found for flow_id: {flow_id}")
    state, context = found
    with created_quietly():
        flow = of(**{"persistence": place, **options})
    kept = context.flow or {"flow_name": flow.flow_name, "checkpoint_state": dict(state), "begun": False}
    FLOW.graft(flow, FLOW.build(kept, None), None, sure=bool(not context.flow))
    if not context.flow:
        _wait_in(flow, context)
    return flow


def _wait_in(flow: Flow[Any], context: PendingFeedbackContext) -> None:
    """All that is known is which method asked, and what it had returned: another product kept it, perhaps."""
    if context.method_name not in flow.flow_definition().methods:
        flow.wait_for(context)
        return
    flow._machine = Machine(flow.flow_definition(), flow.max_method_calls)
    call = flow._machine.only(context.method_name)
    context = dataclasses.replace(context, call=call.key, step=f"{identity('?', (context.message,), {})}#1")
    kept = {**encode_gently(context.method_output), "before": {}, "after": {}, "gone": []}
    flow._steps[call.key] = {"=body": json.dumps(kept)}
    flow.wait_for(context)
