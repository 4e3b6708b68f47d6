"""Crews and agents as data, and back.

What is code (functions, tools, models, guardrails) is not data: it stays in the crew file, and is put together with the
data when a checkpoint is restored.
"""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_jsonable_python

from runner.agents import Agent
from runner.core import live_objects
from runner.core import output as outputs
from runner.core.errors import BadCheckpoint, BadInput
from runner.core.output import TaskOutput
from runner.core.plan.dependencies import EDITED, EVERYTHING, ReadSet
from runner.crews.context import ConditionalTask, Task
from runner.crews.crew import Crew, Process
from runner.snapshots.progress import Progress, TaskProgress

# -- values


def jsonable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that are JSON. The others have to be given again on a restore."""
    kept = {}
    for name, value in values.items():
        with contextlib.suppress(PydanticSerializationError, ValueError, RecursionError):
            kept[str(name)] = to_jsonable_python(value)
    return kept


def describe_output(output: TaskOutput, *, skipped: bool = False) -> dict[str, Any]:
    """Return an output as data: its text, or its JSON if that is equivalent."""
    stored = outputs.record(output)
    if output.agent:
        stored["agent"] = output.agent
    if skipped:
        stored["skipped"] = True
    return stored


def build_output(data: Mapping[str, Any], key: str, description: str) -> TaskOutput:
    """Build an output from its data; the inverse of `describe_output`."""
    return outputs.from_record(data, name=key, description=description, agent=str(data.get("agent") or ""))


def describe_model(llm: Any) -> dict[str, Any] | None:
    """Return a model as data: its name and temperature. The crew file has its key, address and options."""
    if llm is None:
        return None
    found: dict[str, Any] = {"model": str(getattr(llm, "model", type(llm).__qualname__))}
    temperature = getattr(llm, "temperature", None)
    return {**found, "temperature": temperature} if isinstance(temperature, int | float) else found


def name_of(tool: Any) -> str:
    """Return a tool's name."""
    for name in (getattr(tool, "name", None), getattr(tool, "__name__", None)):
        if isinstance(name, str):
            return name
    return type(tool).__qualname__


# -- agents


class AgentKind:
    """Snapshots of an agent, on its own or as one of a crew."""

    name = "agent"

    def describe(self, entity: Agent, state: Any) -> dict[str, Any]:
        """Return the agent as data, with its conversation if it was asked something."""
        progress: Progress | None = state.progress.get(id(entity)) if state is not None else None
        data: dict[str, Any] = {
            "entity_type": "agent",
            "id": str(entity.id),
            "role": entity.role,
            "goal": entity.goal,
            "backstory": entity.backstory,
            "llm": describe_model(entity.llm),
            "tools": [name_of(tool) for tool in entity.tools],
        }
        event_id = progress.kickoff_event_id if progress else entity.checkpoint_kickoff_event_id
        if event_id:
            data["checkpoint_kickoff_event_id"] = event_id
        return {**data, **(_describe_progress(progress) if progress else {})}

    def build(self, data: dict[str, Any], state: Any) -> Agent:
        """Build the agent. It has the name of its model, which cannot be called, and no tools."""
        model = data.get("llm")
        agent = Agent.model_validate(
            {
                **_known(data, "id", "role", "goal", "backstory", "checkpoint_kickoff_event_id"),
                "llm": model.get("model") if isinstance(model, Mapping) else model,
            },
            context=live_objects.AS_DATA,
        )
        agent.kickoff_event_id = agent.checkpoint_kickoff_event_id
        if state is not None and (progress := _build_progress(data)):
            progress.kickoff_event_id = agent.checkpoint_kickoff_event_id
            state.progress[id(agent)] = progress
        return agent

    def living(self, cls: type[Agent]) -> Iterator[Agent]:
        """Return the agents that exist in this process."""
        return live_objects.newest_first(cls)

    def fits(self, code: Agent, stored: Agent) -> bool:
        """Whether a living agent has the stored one's role and goal."""
        return (code.role, code.goal) == (stored.role, stored.goal)

    def graft(self, code: Agent, stored: Agent, state: Any, *, sure: bool) -> Agent:
        """Return the living agent, continued from the stored one."""
        if not sure and not self.fits(code, stored):
            raise BadCheckpoint(f"the checkpoint's agent is {stored.role!r}, not {code.role!r}")
        agent = code.model_copy(update={"id": stored.id})
        agent.checkpoint_kickoff_event_id = agent.kickoff_event_id = stored.checkpoint_kickoff_event_id
        _move(state, stored, agent)
        live_objects.remember(agent)
        return agent

    def adopt(self, code: Agent, stored: Agent, state: Any) -> None:
        """Continue the stored agent in the living one."""
        code.id = stored.id
        _move(state, stored, code)


# -- crews


class CrewKind:
    """Snapshots of a crew: its tasks, and their outputs."""

    name = "crew"

    def describe(self, entity: Crew, state: Any) -> dict[str, Any]:
        """Return the crew as data, as it is in this state's kickoff of it; without one, as it stands."""
        progress: Progress | None = state.progress.get(id(entity)) if state is not None else None
        if progress is None:
            done = {
                key: task.output for key, task in zip(entity.task_keys, entity.all_tasks, strict=True) if task.output
            }
            progress = Progress(
                inputs=dict(entity.checkpoint_inputs or {}),
                kickoff_event_id=entity.checkpoint_kickoff_event_id,
                outputs=done,
            )
        keys = {id(task): key for key, task in zip(entity.task_keys, entity.all_tasks, strict=True)}
        return {
            "entity_type": "crew",
            "id": str(entity.id),
            "name": entity.name,
            "process": entity.process.value,
            "agents": [AGENT.describe(agent, None) for agent in entity.everyone],
            "tasks": [_describe_task(task, keys, progress) for task in entity.all_tasks],
            "given": progress.given,
            "checkpoint_inputs": jsonable(progress.inputs),
            "checkpoint_kickoff_event_id": progress.kickoff_event_id,
        }

    def build(self, data: dict[str, Any], state: Any) -> Crew:
        """Build the crew from its data. Its tasks have no code to run."""
        agents = {str(one.get("id")): AGENT.build(one, None) for one in data.get("agents") or []}
        tasks: dict[str, Task] = {}
        progress = Progress(
            inputs=dict(data.get("checkpoint_inputs") or {}),
            given=data.get("given"),
            kickoff_event_id=data.get("checkpoint_kickoff_event_id"),
        )
        for i, one in enumerate(data.get("tasks") or [], 1):
            key = str(one.get("key") or one.get("name") or f"task_{i}")
            kind = ConditionalTask if one.get("conditional") else Task
            tasks[key] = kind.model_validate(
                {
                    **_known(one, "id", "name", "description", "expected_output", "async_execution", "output_file"),
                    "agent": agents.get(str(one.get("agent"))),
                },
                context=live_objects.AS_DATA,
            )
            _read_task(one, key, tasks[key], progress)
        for key, one in zip(tasks, data.get("tasks") or [], strict=True):
            if one.get("context") is not None:
                tasks[key].context = [tasks[other] for other in one["context"] if other in tasks]
        crew = Crew.model_validate(
            {
                **_known(data, "id", "name"),
                "process": data.get("process") or Process.sequential,
                "tasks": list(tasks.values()),
                "agents": list(agents.values()),
                "checkpoint_inputs": progress.inputs,
                "checkpoint_kickoff_event_id": progress.kickoff_event_id,
            },
            context=live_objects.AS_DATA,
        )
        crew.kickoff_event_id = progress.kickoff_event_id
        if state is not None:
            state.progress[id(crew)] = progress
        return crew

    def living(self, cls: type[Crew]) -> Iterator[Crew]:
        """Return the crews that exist in this process."""
        return live_objects.newest_first(cls)

    def fits(self, code: Crew, stored: Crew) -> bool:
        """Whether a living crew has the stored one's tasks, by key; of tasks without a name, by their texts too."""
        same = code.task_keys == stored.task_keys and (
            code.name is None or stored.name is None or code.name == stored.name
        )
        return same and all(
            mine.name or mine.description == theirs.description
            for mine, theirs in zip(code.all_tasks, stored.all_tasks, strict=True)
        )

    def graft(self, code: Crew, stored: Crew, state: Any, *, sure: bool) -> Crew:
        """Return the living crew, in which the stored one's finished tasks are done."""
        then = dict(zip(stored.task_keys, stored.all_tasks, strict=True))
        if then and not (self.fits(code, stored) or (sure and set(then) & set(code.task_keys))):
            raise BadCheckpoint(
                f"the checkpoint is of a crew with the tasks {_names(then)}; this one has {_names(code.task_keys)}"
            )
        agents = {id(agent): agent.model_copy() for agent in code.everyone}
        tasks = {id(task): task.model_copy() for task in code.all_tasks}
        crew = code.model_copy(
            update={
                "id": stored.id,
                "agents": [agents[id(agent)] for agent in code.agents],
                "tasks": [tasks[id(task)] for task in code.tasks],
                "checkpoint_inputs": copy.deepcopy(stored.checkpoint_inputs),  # it may be edited
                "checkpoint_kickoff_event_id": stored.checkpoint_kickoff_event_id,
            }
        )
        crew.planner = tasks[id(code.planner)] if code.planner is not None else None
        for key, task in zip(code.task_keys, crew.all_tasks, strict=True):
            task.agent = agents.get(id(task.agent), task.agent)
            if not task.context_is_default and task.context:
                task.context = [tasks.get(id(other), other) for other in task.context]
            past = then.get(key)
            task.output = _as_declared(key, task, past.output) if past and past.output else None
            if past:
                task.id = past.id
        _same_agents(crew, stored)
        crew.kickoff_event_id = stored.checkpoint_kickoff_event_id
        crew.file_keys()
        live_objects.remember(crew)
        _move(state, stored, crew)
        crew.adopt()
        return crew

    def adopt(self, code: Crew, stored: Crew, state: Any) -> None:
        """Continue the stored crew in the living one."""
        code.id = stored.id
        for mine, theirs in zip(code.all_tasks, stored.all_tasks, strict=True):
            mine.id, mine.output = theirs.id, theirs.output
        _same_agents(code, stored)
        _move(state, stored, code)


def _as_declared(key: str, task: Task, output: TaskOutput) -> TaskOutput:
    """Copy an output, since a person may edit it; with the model that the code declares, if it still fits."""
    found = output.model_copy(deep=True)
    with contextlib.suppress(BadInput):
        found.pydantic = outputs.fitted(key, task.output_model(), found.json_dict)
    return outputs.named(found, task.names)


AGENT = AgentKind()
CREW = CrewKind()


def _describe_task(task: Task, keys: Mapping[int, str], progress: Progress) -> dict[str, Any]:
    key = keys[id(task)]
    data: dict[str, Any] = {
        "key": key,
        "id": str(task.id),
        "name": task.name,
        "description": task.description,
        "expected_output": task.expected_output,
        "agent": str(task.agent.id) if task.agent else None,
        "context": None if task.context_is_default else [keys.get(id(one), "") for one in task.context or []],
    }
    if task.async_execution:
        data["async_execution"] = True
    if task.output_file:
        data["output_file"] = task.output_file
    if isinstance(task, ConditionalTask):
        data["conditional"] = True
    if task.run is not None:
        data["code"] = True
    output = progress.outputs.get(key)
    data["output"] = describe_output(output, skipped=key in progress.skipped) if output else None
    if key in progress.used:
        data.update(_describe_used(progress.used[key]))
    flying = progress.tasks.get(key)
    if flying and output is None:
        data["steps"] = dict(flying.steps)
        data["messages"] = [dict(message) for message in flying.messages]
    return data


def _read_task(data: Mapping[str, Any], key: str, task: Task, progress: Progress) -> None:
    found = data.get("output")
    if isinstance(found, Mapping):
        task.output = build_output(found, key, task.description)
        progress.outputs[key] = task.output
        if found.get("skipped"):
            progress.skipped.add(key)
        progress.used[key] = _build_used(data)
    flying = TaskProgress(dict(data.get("steps") or {}), [dict(message) for message in data.get("messages") or []])
    if flying:
        progress.tasks[key] = flying


def _describe_used(used: ReadSet) -> dict[str, Any]:
    """Return what a task used as data: ``reads`` beyond its declared context, ``ins`` of the inputs."""
    if used.edited:
        return {"edited": True}
    found = {"reads": used.tasks, "ins": used.inputs}
    return {name: EVERYTHING if EVERYTHING in what else sorted(what) for name, what in found.items() if what}


def _build_used(data: Mapping[str, Any]) -> ReadSet:
    if data.get("edited"):
        return EDITED
    reads, ins = (
        [what] if isinstance(what, str) else what for what in (data.get("reads") or (), data.get("ins") or ())
    )
    return ReadSet(frozenset(reads), frozenset(ins))


def _describe_progress(progress: Progress) -> dict[str, Any]:
    flying = progress.tasks.get("kickoff") or TaskProgress()
    output = progress.outputs.get("kickoff")
    return {
        "asked": progress.given,
        "messages": [dict(message) for message in flying.messages],
        "steps": dict(flying.steps),
        "output": describe_output(output) if output else None,
    }


def _build_progress(data: Mapping[str, Any]) -> Progress | None:
    if "asked" not in data:
        return None
    progress = Progress(given=data["asked"])
    progress.tasks["kickoff"] = TaskProgress(dict(data.get("steps") or {}), list(data.get("messages") or []))
    if data.get("output"):
        progress.outputs["kickoff"] = build_output(data["output"], "kickoff", "")
    return progress


def _known(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: data[name] for name in names if data.get(name) is not None}


def _same_agents(crew: Crew, stored: Crew) -> None:
    """Give the agents the ids under which the recorded events know them."""
    past: dict[tuple[str, str], list[UUID]] = {}
    for agent in stored.everyone:
        past.setdefault((agent.role, agent.goal), []).append(agent.id)
    for agent in crew.everyone:
        known = past.get((agent.role, agent.goal))
        if known:
            agent.id = known.pop(0)


def _move(state: Any, stored: Any, entity: Any) -> None:
    """Make the progress of ``stored`` that of ``entity``."""
    if state is not None and id(stored) in state.progress:
        state.progress[id(entity)] = state.progress.pop(id(stored))


def _names(keys: Any) -> str:
    listed = [repr(key) for key in keys]
    return ", ".join(listed[:6]) + (f" and {len(listed) - 6} more" if len(listed) > 6 else "") if listed else "none"
