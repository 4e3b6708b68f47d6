"""Forks a run: decides which tasks run again, applies a person's edits, and creates the branch."""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from runner.client import flow_position
from runner.client.reading import shapes
from runner.core import output as outputs
from runner.core import stored_output
from runner.core.errors import BadInput, Conflict
from runner.core.inputs import MOST_NESTED, given_as_json, nested_too_deep, refuse_unknown
from runner.core.plan import Plan, branching
from runner.core.plan.dependencies import EVERYTHING
from runner.flows.edits import Given, edited
from runner.flows.history import PART, labels_of, methods_of, unused_label
from runner.flows.machine import method_of
from runner.providers.records import Committed, Position, Regrown
from runner.providers.redis import forks, history
from runner.providers.redis.connection import Client
from runner.providers.redis.dynamic_plan import GrowingBranch

Edit = str | dict[str, Any] | list[Any]


def fork(
    client: Client,
    run_id: str,
    *,
    checkpoint: str | None,
    source: str | None,
    branch: str | None,
    inputs: Mapping[str, Any],
    edits: Mapping[str, Edit],
) -> tuple[str, Position]:
    """Create the branch; returns its name and where it left. See `Client.fork`."""
    if branch is not None:
        branching.check_name(branch)
    inputs = given_as_json(inputs)
    for _ in range(20):
        where = forks.position(client, run_id, checkpoint=checkpoint, branch=source, outputs=edits)
        refuse_unknown(where.plan.takes, inputs, f"run {run_id}")
        changed = branching.changed_inputs(where.inputs, inputs)
        edited = _edited(where, edits)
        regrown, rerun, kept = None, frozenset[str](), frozenset[str]()
        if where.plan.grows:
            regrown = _regrown(client, where, changed, edited)
            kept = regrown.kept
            if changed and not regrown.ready:
                raise BadInput(
                    "inputs are merged into the flow's state at the fork, and no method is left to run there: "
                    "name an earlier --checkpoint, edit a method's output with --edit, or submit the flow again"
                )
        else:
            what = frozenset(edited), frozenset(changed)
            again = branching.invalidated(where.plan, where.used, *what)
            rerun = frozenset(where.plan.by_key.keys() - where.done.keys() | again)
            kept = branching.resumable(where.plan, rerun - again, *what)
        name = branch or branching.fork_name(where.checkpoint)
        answer = forks.create(
            client,
            where,
            name,
            rerun=rerun,
            kept=kept,
            edits=edited,
            overrides=where.overrides | changed,
            regrown=regrown,
        )
        if answer == "forked":
            return name, replace(where, to_do=len(regrown.ready) if regrown else len(rerun))
        if answer == "taken" and branch is not None:
            raise Conflict(f"run {run_id} already has a branch {name!r}: choose another name")
        if answer == "no bundle":
            raise Conflict(f"the code of run {run_id} is no longer in the store: submit the crew again")
    raise Conflict(f"run {run_id} kept changing while it was being forked: try again")


def warnings(client: Client, where: Position, inputs: Iterable[str], edits: Mapping[str, Edit]) -> tuple[str, ...]:
    """Return a sentence for each input of a fork that nothing reads, and each label that nothing listens to.

    Tasks that were never done may read any input: then it is only named if it looks like another one's name, misspelt.
    """
    if where.plan.grows:
        leads = (unused_label(where.plan.grows, task, edit) for task, edit in edits.items())
        return tuple(f"warning: {one}" for one in leads if one is not None)
    given = [name for name in inputs if name not in where.plan.inputs]
    if not given:
        return ()
    done = [one for line in history.commit_log(client, where.run_id, where.branch) for one in history.in_order(line)]
    known = {one.task for one in done if not one.used.edited}
    read = frozenset[str]().union(*(one.used.inputs for one in done))
    found = []
    for name in given:
        near = difflib.get_close_matches(name, sorted({*where.inputs, *where.plan.inputs, *read} - {name}), n=1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        misspelt = near and name not in where.inputs and name not in read
        if misspelt and EVERYTHING in read:  # a task that is handed all of them may take this one, or pass over it
            found.append(f"warning: the run had no input {name!r}{hint}")
        elif (misspelt or known.issuperset(where.plan.by_key)) and read.isdisjoint((name, EVERYTHING)):
            found.append(f"warning: no task reads the input {name!r}{hint}")
    return tuple(found)


def _regrown(client: Client, where: Position, inputs: Mapping[str, Any], edits: Mapping[str, str]) -> Regrown:
    """How a branch of a plan that grows begins there."""
    line = GrowingBranch(client, where.run_id, where.branch)
    edited = {task: json.loads(text) for task, text in edits.items()}
    position = flow_position.position_with(where.plan, line, where.seq, inputs, edited)
    kept = frozenset() if inputs else flow_position.untouched(position, edited)
    return Regrown(flow_position.ready(where.plan, position), frozenset(position.void), inputs, kept)


def _edited(where: Position, edits: Mapping[str, Edit]) -> dict[str, str]:
    """The edits that change something, as they are stored. Raises `BadInput`."""
    if not edits:
        return {}
    known = methods_of(where.plan.grows) if where.plan.grows else where.plan.by_key
    branching.refuse_unknown(known, map(method_of, edits) if where.plan.grows else edits, where.run_id)
    for task in edits:
        if task not in where.done:
            at = f"at checkpoint {where.checkpoint}" if where.checkpoint else "yet"
            raise BadInput(f"task {task!r} is not committed {at}: only the output of a finished task can be edited")
    found = {}
    for task, edit in edits.items():
        before = where.outputs[task]
        try:
            record = _of_method(where.plan, task, edit, before) if where.plan.grows else _of_task(task, edit, before)
            deep = nested_too_deep(record)
        except RecursionError:  # text that was to be JSON
            deep = True
        if deep:
            raise BadInput(f"the edit of task {task!r} is nested too deeply: more than {MOST_NESTED} lists and objects")
        if record is not None:
            if before.json is not None:
                key = method_of(task) if where.plan.grows else task
                shapes.refuse_misfit(where.shapes, key, before.json, stored_output.load(record)[1])
            found[task] = outputs.to_text(record)
    return found


def _of_task(task: str, edit: Edit, before: Committed) -> dict[str, Any] | None:
    """The record of an edited output; None if the edit changes nothing. Raises `BadInput`."""
    now = outputs.revised(task, before.record, edit)
    raw, data = stored_output.load(now)
    same = raw == before.raw if data is None else branching.alike(data, before.json)
    return None if same else now


def _of_method(plan: Plan, task: str, edit: Edit, before: Committed) -> dict[str, Any] | None:
    """The same of what a flow's method gave."""
    was = Given(before.raw, before.json, before.flow)
    now = edited(task, was, edit, labels_of(plan.grows or {}, task))
    return None if now is was else {**outputs.stored(now.raw, now.json), **({PART: now.part} if now.part else {})}
