"""Reads a stored state for display. Pure; also reads states that other programs wrote in the same form.

No objects are built from it, and nothing in it is trusted: a malformed checkpoint shows less, and is not an error.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from runner.client.checkpoints.model import SKIPPED, Checkpoint, Details, EntityView, TaskView
from runner.core.compatibility import VERSION_KEY
from runner.core.diff import DONE, PENDING
from runner.core.stored_output import load
from runner.providers.base import CheckpointTorn


def parse(text: str, name: str) -> dict[str, Any]:
    """Parse a stored state. Raises `CheckpointTorn`."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise CheckpointTorn(f"checkpoint {name} is torn or not JSON ({error}): choose another one") from None
    if not isinstance(data, dict) or not isinstance(data.get("entities"), list):
        raise CheckpointTorn(f"checkpoint {name} is not a state: it has no entities; choose another one")
    return data


def details(data: Mapping[str, Any], checkpoint: Checkpoint) -> Details:
    """Return the details of a stored state."""
    entities: list[EntityView] = []
    tasks: list[TaskView] = []
    inputs: dict[str, Any] = {}
    state: dict[str, Any] = {}
    found = [entity for entity in data["entities"] if isinstance(entity, Mapping)]
    for entity in found:
        own = list(tasks_of(entity))
        entities.append(_entity(entity, own))
        prefix = f"{name_of(entity)}/" if len(found) > 1 else ""
        tasks += [_prefixed(task, prefix) for task in own]
        inputs |= inputs_of(entity)
        state |= _mapping(entity.get("checkpoint_state"))
        if entity.get("asked") and kind_of(entity) == "agent":
            state["asked"] = entity["asked"]
    record = _mapping(data.get("event_record"))
    return Details(
        checkpoint=replace(checkpoint, trigger=str(data.get("trigger") or checkpoint.trigger)),
        entities=tuple(entities),
        inputs=inputs,
        tasks=tuple(tasks),
        state=state,
        version=str(data.get(VERSION_KEY) or ""),
        events=len(_mapping(record.get("nodes"))),
    )


def kind_of(entity: Mapping[str, Any]) -> str:
    """Return the kind (crew, flow or agent), as stated or else as its fields suggest."""
    said = entity.get("entity_type")
    return str(said) if said else "crew" if "tasks" in entity else "agent" if "role" in entity else "flow"


def name_of(entity: Mapping[str, Any]) -> str:
    """Return its name."""
    names = (entity.get("name"), entity.get("flow_name"), entity.get("role"), kind_of(entity))
    return " ".join(str(next(filter(None, names))).split())


def inputs_of(entity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of its kickoff."""
    return dict(_mapping(entity.get("checkpoint_inputs") or entity.get("inputs")))


def tasks_of(entity: Mapping[str, Any]) -> Iterator[TaskView]:
    """Yield a crew's tasks, or a flow's methods."""
    roles = {str(one.get("id")): str(one.get("role") or "") for one in _list(entity.get("agents"))}
    for number, task in enumerate(tasks_in(entity), 1):
        yield _task(task, key_of(task, number), roles)
    if kind_of(entity) == "flow":
        yield from _methods(entity)
    elif kind_of(entity) == "agent" and "asked" in entity:
        output = _mapping(entity.get("output"))
        yield TaskView("kickoff", DONE if output else PENDING, text_of(output) if output else None, editable=False)


def tasks_in(entity: Any) -> list[Mapping[str, Any]]:
    """Return a crew's tasks as they are stored."""
    return _list(_mapping(entity).get("tasks"))


def key_of(task: Mapping[str, Any], number: int) -> str:
    """Return what identifies a task: its key, else its name, else its number."""
    return str(task.get("key") or task.get("name") or f"task_{number}")


def text_of(output: Mapping[str, Any]) -> str:
    """Return an output as text."""
    try:
        return load(output)[0]
    except (TypeError, ValueError):
        return json.dumps(output, ensure_ascii=False, default=str)


def _task(task: Mapping[str, Any], key: str, roles: Mapping[str, str]) -> TaskView:
    agent = task.get("agent")
    # Other writers of the form keep the whole agent in each task.
    role = str(agent.get("role") or "") if isinstance(agent, Mapping) else roles.get(str(agent), "")
    description = str(task.get("description") or "")
    output = task.get("output")
    if isinstance(output, Mapping):
        status = SKIPPED if output.get("skipped") else DONE
        is_json = isinstance(load(output)[1] if "json" in output else output.get("json_dict"), dict | list)
        return TaskView(key, status, text_of(output), description, role, editable=status == DONE, is_json=is_json)
    begun = task.get("steps") or task.get("messages")
    return TaskView(key, "running" if begun else PENDING, None, description, role)


def _methods(flow: Mapping[str, Any]) -> Iterator[TaskView]:
    """Yield the completed methods, in their order, then the others; one may wait for a person's answer."""
    outputs = {
        str(one["method"]): _method_text(one)  # of a method that was done again, the last
        for one in _list(flow.get("checkpoint_method_outputs"))
        if one.get("method")
    }
    done = flow.get("checkpoint_completed_methods")
    for name in dict.fromkeys([*outputs, *(map(str, done) if isinstance(done, list) else ())]):
        yield TaskView(name, DONE, outputs.get(name), editable=False)
    asked = {str(one.get("method_name")): str(one.get("message") or "") for one in _mapping(flow.get("asked")).values()}
    methods = flow.get("methods")
    for name in map(str, methods) if isinstance(methods, list) else ():
        if name in asked:
            yield TaskView(name, "waiting", description=asked[name], editable=False)
        elif name not in outputs and name not in (done or ()):
            yield TaskView(name, PENDING, editable=False)


def _method_text(entry: Mapping[str, Any]) -> str:
    if "lost" in entry:
        return f"({entry['lost']}: not JSON, so not in the checkpoint)"
    output = entry.get("output")
    if isinstance(output, Mapping) and "raw" in output:
        return text_of(output)
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)


def _entity(entity: Mapping[str, Any], tasks: list[TaskView]) -> EntityView:
    kind = kind_of(entity)
    done = sum(task.status in (DONE, SKIPPED) for task in tasks)
    total = len(tasks) if kind == "crew" or "methods" in entity or "asked" in entity else None
    return EntityView(kind, name_of(entity), done, total)


def _prefixed(task: TaskView, prefix: str) -> TaskView:
    return replace(task, key=prefix + task.key, editable=False) if prefix else task


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
