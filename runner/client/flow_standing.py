"""Where a run of a plan that grows stands, read from the store, and what is to run there: for who resumes and forks.

The machine needs no code for it: the plan holds the definition, the outputs hold the rest.
"""

from collections.abc import Mapping
from typing import Any

from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Committed
from runner.flows.definition import FlowDefinition
from runner.flows.history import Standing, follows_from, standing_after
from runner.providers.redis.dynamic_plan import GrowingBranch

NO_LIMIT = 2**31


def standing_at(plan: Plan, branch: GrowingBranch, upto: int | None = None, *, replanned: bool = False) -> Standing:
    """Where the branch stands; at a position if one is given. ``replanned``: by this plan, not the one it ran by."""
    definition = FlowDefinition.from_data(plan.grows or {})
    if upto is None and not replanned and (shared := branch.shared()).version:
        return Standing.from_fields(definition, shared.fields, NO_LIMIT)
    return standing_after(definition, branch.initial_state(), branch.history(upto), NO_LIMIT)


def standing_with(
    plan: Plan,
    branch: GrowingBranch,
    upto: int | None,
    inputs: Mapping[str, Any],
    edits: Mapping[str, Mapping[str, Any]],
) -> Standing:
    """Where a branch would begin that left this one at a position, with inputs merged over and outputs replaced."""
    history: list[Committed] = [*branch.history(upto), Committed("", inputs=inputs, edits=edits)]
    return standing_after(FlowDefinition.from_data(plan.grows or {}), branch.initial_state(), history, NO_LIMIT)


def ready(plan: Plan, standing: Standing) -> list[PlannedTask]:
    """The tasks that are to run there."""
    return [plan.by_key[key] for key in standing.machine.pending]


def untouched(standing: Standing, edits: Mapping[str, Any]) -> frozenset[str]:
    """The tasks to run there that do not follow from an edited output."""
    calls = standing.machine.pending.values()
    return frozenset(call.key for call in calls if not any(follows_from(call, key) for key in edits))
