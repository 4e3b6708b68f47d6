"""Reconstructs the machine and state of a flow from its committed records. Pure.

An output's record has a part for the flow: the method's label, its changes of the state (`runner.flows.patch`), and
what the code needs to restore the value (`runner.flows.values`).
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.core.plan.expansion import Committed
from runner.flows.definition import FlowDefinition
from runner.flows.machine import MAX_METHOD_CALLS, Call, Done, Machine, method_of, turn_of
from runner.flows.patch import apply_all

PART = "flow"
"""The name of the flow's part in an output's record."""


@dataclass
class FlowPosition:
    """The machine, the state as JSON, and the calls that an edit invalidated, which run again."""

    machine: Machine
    state: dict[str, Any]
    void: set[str] = field(default_factory=set)

    def fields(self) -> dict[str, str]:
        """Return it as named texts, which the methods of a branch share."""
        found = {"machine": _text(self.machine.to_data())}
        return {**found, **{f"state:{name}": _text(value) for name, value in self.state.items()}}

    @classmethod
    def from_fields(
        cls, definition: FlowDefinition, fields: Mapping[str, str], max_method_calls: int = MAX_METHOD_CALLS
    ) -> "FlowPosition":
        """The inverse of `fields`."""
        machine = Machine.from_data(definition, json.loads(fields["machine"]), max_method_calls)
        state = {
            name.removeprefix("state:"): json.loads(text) for name, text in fields.items() if name.startswith("state:")
        }
        return cls(machine, state)


def position_after(
    definition: FlowDefinition,
    initial: Mapping[str, Any],
    history: Iterable[Committed],
    max_method_calls: int = MAX_METHOD_CALLS,
) -> FlowPosition:
    """Return a flow's position after these commits. Calls that followed from outputs edited since are void."""
    kept, void = as_edited(definition, history)
    found = FlowPosition(Machine(definition, max_method_calls), dict(initial), void)
    found.machine.begin()
    for one in kept:
        if one.key:
            found.machine.take_back(Done(one.key, method_of(one.key), part_of(one).get("signal")))
            found.state, _ = apply_all(part_of(one).get("patch", {}), found.state)
        else:
            found.state.update(one.inputs)
    return found


def as_edited(definition: FlowDefinition, history: Iterable[Committed]) -> tuple[list[Committed], set[str]]:
    """Return the history of a branch with edited outputs, and the calls that are void because of the edits."""
    kept: list[Committed] = []
    void: set[str] = set()
    for one in history:
        if one.edits:
            kept, void = _without_what_came_of(definition, kept, one.edits)
        kept.append(one)
    return kept, void


def methods_of(grows: Mapping[str, Any]) -> list[str]:
    """The methods of a flow, from the definition in a plan."""
    return list(FlowDefinition.from_data(grows).methods)


def labels_of(grows: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The labels that a person chooses from after that call, from the definition in a plan."""
    method = FlowDefinition.from_data(grows).methods.get(method_of(key))
    return method.feedback.emit if method is not None and method.feedback is not None else ()


def unused_label(grows: Mapping[str, Any], key: str, edit: Any) -> str | None:
    """Return why an edited label of a router triggers nothing; None if it does."""
    definition = FlowDefinition.from_data(grows)
    method, label = definition.methods.get(method_of(key)), str(edit).strip()
    if method is None or not method.router or method.feedback is not None or label in definition.listeners:
        return None
    labels = sorted(definition.listeners.keys() - definition.methods.keys())
    return f"nothing listens to {label[:60]!r}, which {key!r} now returns; there are listeners to {', '.join(labels)}"


def follows_from(call: Call, key: str) -> bool:
    """Whether the call with that key led to this one."""
    return call.trail.get(method_of(key), 0) >= turn_of(key)


def part_of(one: Committed) -> Mapping[str, Any]:
    """Return the flow's part of a record."""
    found: Mapping[str, Any] = one.record.get(PART, {})
    return found


def _without_what_came_of(
    definition: FlowDefinition, history: Iterable[Committed], edits: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Committed], set[str]]:
    """The history without the calls that followed from edited ones; their changes of the state are kept."""
    machine = Machine(definition, sys.maxsize)
    machine.begin()
    kept: list[Committed] = []
    void: set[str] = set()
    for one in history:
        if one.key:
            call = machine.pending.get(one.key)
            if call is None or any(follows_from(call, key) for key in edits):
                void.add(one.key)
                continue
            if one.key in edits:
                one = _edited(one, edits[one.key])
            machine.take_back(Done(one.key, method_of(one.key), part_of(one).get("signal")))
        kept.append(one)
    return kept, void


def _edited(one: Committed, edit: Mapping[str, Any]) -> Committed:
    """The record with the edited output; for a router, the edit is its label."""
    part = {**part_of(one), **edit.get(PART, {})}
    if PART not in edit and "signal" in part and part["signal"] == one.record.get("raw"):
        part["signal"] = edit.get("raw", part["signal"])
    return Committed(one.key, {**one.record, **edit, PART: part})


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
