"""Flows that wait for feedback, saved by their id; another process resumes them with ``Flow.from_pending``."""

import dataclasses
import json
import logging
import sqlite3
from collections.abc import Mapping
from typing import Any

from runner.core import settings
from runner.core.errors import one_line
from runner.flows import state as states
from runner.flows.entity import FLOW
from runner.flows.feedback import HumanFeedbackPending, PendingFeedbackContext
from runner.flows.flow import Flow, created_quietly
from runner.flows.machine import Machine
from runner.flows.persistence import FlowPersistence, SQLiteFlowPersistence, persistence_of
from runner.flows.values import encode_gently
from runner.journal.current_journal import current_journal
from runner.journal.steps import identity

logger = logging.getLogger(__name__)


def keep(flow: Flow[Any], pending: HumanFeedbackPending) -> None:
    """Save a flow that has paused, where its states are saved.

    Without a persistence, a flow that a feedback provider paused is saved in the user's state folder: another process
    may get the answer. Inside a task on the fleet nothing is saved this way.
    """
    if (place := persistence_of(flow)) is not None:
        _save(flow, pending, place)
        return
    around = current_journal()
    if not pending.provided or (around is not None and around[0].can_wait):
        return
    try:
        _save(flow, pending, _users_own(create=True))
    except (OSError, RuntimeError, sqlite3.Error) as error:
        logger.warning(
            "flow %s waits and was not saved for other processes (%s): resume it here, or give it persistence=",
            flow.flow_name, one_line(error),
        )  # fmt: skip


def _save(flow: Flow[Any], pending: HumanFeedbackPending, place: FlowPersistence) -> None:
    context = dataclasses.replace(pending.context, flow=FLOW.describe(flow, None))
    place.save_pending_feedback(flow.flow_id, context, states.dump(flow.committed_state, flow.leave_out))
    flow.persistence = place


def _users_own(*, create: bool = False) -> SQLiteFlowPersistence:
    folder = settings.state_dir()
    if create:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return SQLiteFlowPersistence(folder / "paused_flows.db")


def forget(flow: Flow[Any]) -> None:
    """The question was answered."""
    if (place := persistence_of(flow)) is not None:
        place.clear_pending_feedback(flow.flow_id)


def from_pending(
    of: type[Flow[Any]], flow_id: str, persistence: FlowPersistence | None, options: Mapping[str, Any]
) -> Flow[Any]:
    """Return the waiting flow of this id. Raises `ValueError` if there is none."""
    place = persistence or persistence_of(of) or _users_own()
    found = place.load_pending_feedback(flow_id)
    if found is None:  # an older version kept them in the working directory
        place = persistence or SQLiteFlowPersistence()
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
    """Only the method that asked and its output are known: another product may have saved it."""
    if context.method_name not in flow.flow_definition().methods:
        flow.wait_for(context)
        return
    flow._machine = Machine(flow.flow_definition(), flow.max_method_calls)
    call = flow._machine.only(context.method_name)
    context = dataclasses.replace(context, call=call.key, step=f"{identity('?', (context.message,), {})}#1")
    kept = {**encode_gently(context.method_output), "before": {}, "after": {}, "gone": []}
    flow._steps[call.key] = {"=body": json.dumps(kept)}
    flow.wait_for(context)
