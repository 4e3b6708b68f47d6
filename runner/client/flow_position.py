"""Reads where a run of a growing plan stands and what runs next, to resume or fork it, without the crew's code."""

from collections.abc import Mapping
from typing import Any

from runner.core.errors import OutputGone
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Committed, Shared
from runner.flows.definition import FlowDefinition
from runner.flows.history import FlowPosition, follows_from, position_after
from runner.providers.redis.dynamic_plan import GrowingBranch

NO_LIMIT = 2**31


def position_at(plan: Plan, branch: GrowingBranch, upto: int | None = None, *, replanned: bool = False) -> FlowPosition:
    """Where the branch stands; at a position if one is given. ``replanned``: by this plan, not the one it ran by.

    Raises `OutputGone` if commits before that position, or of its parents, are not in the store any more.
    """
    definition = FlowDefinition.from_data(plan.grows or {})
    try:
        history = branch.history(upto)
        shared = branch.shared() if upto is None and not replanned else Shared()
    except OutputGone:
        if upto is not None:
            raise
        history, shared = branch.history(forget_lost=True), Shared()  # what is shared knows of what is gone
    if shared.version:
        return FlowPosition.from_fields(definition, shared.fields, NO_LIMIT)
    return position_after(definition, branch.initial_state(), history, NO_LIMIT)


def position_with(
    plan: Plan,
    branch: GrowingBranch,
    upto: int | None,
    inputs: Mapping[str, Any],
    edits: Mapping[str, Mapping[str, Any]],
) -> FlowPosition:
    """Where a branch would begin that left this one at a position, with inputs merged over and outputs replaced."""
    history: list[Committed] = [*branch.history(upto), Committed("", inputs=inputs, edits=edits)]
    return position_after(FlowDefinition.from_data(plan.grows or {}), branch.initial_state(), history, NO_LIMIT)


def ready(plan: Plan, position: FlowPosition) -> list[PlannedTask]:
    """Return the tasks that are ready to run there."""
    return [plan.by_key[key] for key in position.machine.pending]


def untouched(position: FlowPosition, edits: Mapping[str, Any]) -> frozenset[str]:
    """The tasks to run there that do not follow from an edited output."""
    calls = position.machine.pending.values()
    return frozenset(call.key for call in calls if not any(follows_from(call, key) for key in edits))
