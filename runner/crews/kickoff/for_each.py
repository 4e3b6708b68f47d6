"""Other ways to kick off: for each of several inputs, from a task of the last kickoff on, in a thread."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

from runner.core.output import UsageMetrics
from runner.crews.crew import Crew, CrewOutput
from runner.crews.kickoff.crews import kickoff
from runner.snapshots.progress import Progress
from runner.snapshots.scope import settings_of
from runner.snapshots.signals import watching

T = TypeVar("T")


def copied(crew: Crew) -> Crew:
    """Copy a crew with its tasks and agents, so that the copies can be kicked off concurrently."""
    agents = {
        id(agent): agent.model_copy(update={"id": uuid4()}) for agent in [*crew.everyone, crew.manager_agent] if agent
    }
    tasks = {id(task): task.model_copy(update={"id": uuid4(), "output": None}) for task in crew.tasks}
    for task in tasks.values():
        task.agent = agents.get(id(task.agent), task.agent)
        if task.context:
            task.__dict__["context"] = [tasks.get(id(one), one) for one in task.context]
    found = crew.model_copy(update={"id": uuid4(), "tasks": list(tasks.values())})
    found.agents = [agents[id(agent)] for agent in crew.agents]
    found.manager_agent = agents.get(id(crew.manager_agent))
    found.planner = None
    return found


def kickoff_for_each(crew: Crew, inputs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Kick off a copy of the crew for each input in turn: see `Crew.kickoff_for_each`."""
    crew.for_each_outputs = []
    outputs: list[Any] = []
    for one in inputs:
        try:
            outputs.append(copied(crew).kickoff(dict(one)))
        except BaseException as error:  # also who interrupts it has paid for these
            _keep(crew, [*outputs, *[None] * (len(inputs) - len(outputs))], error)
            raise
    return outputs if crew.stream else _summed(crew, outputs)


async def kickoff_for_each_async(crew: Crew, inputs: Sequence[Mapping[str, Any]]) -> list[CrewOutput]:
    """Kick off all copies concurrently.

    If some fail, the first error is raised after all have ended; the outputs of the others are in
    ``crew.for_each_outputs``.
    """
    crew.for_each_outputs = []
    kickoffs = [copied(crew).kickoff_async(dict(one)) for one in inputs]
    ends = await asyncio.gather(*kickoffs, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            _keep(crew, [None if isinstance(one, BaseException) else one for one in ends], end)
            raise end
    return _summed(crew, [end for end in ends if not isinstance(end, BaseException)])


def _keep(crew: Crew, outputs: list[Any], error: BaseException) -> None:
    """Keep what was done although ``error`` is raised, and say in it where."""
    done = [one for one in outputs if one is not None]
    crew.for_each_outputs = outputs
    if not crew.stream:  # a subclass's kickoff may return anything, and ``error`` is what is raised
        _summed(crew, [one for one in done if isinstance(one, CrewOutput)])
    note = f"kickoff_for_each: the outputs of {len(done)} of {len(outputs)} inputs are in crew.for_each_outputs"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def replay(crew: Crew, task: str | UUID, inputs: Mapping[str, Any] | None) -> CrewOutput:
    """Run a task of the last kickoff again, and those after it. Raises `ValueError` if an earlier output is missing."""
    task = str(task)
    keys = [str(one.id) for one in crew.all_tasks]
    names = crew.task_keys
    if task not in keys and task not in names:
        raise ValueError(f"Task with id {task} not found in the crew's tasks: it has {', '.join(names)}")
    first = keys.index(task) if task in keys else names.index(task)
    progress = Progress(inputs=dict(crew.checkpoint_inputs or {}))
    for name, one in list(zip(names, crew.all_tasks, strict=True))[:first]:
        if one.output is None:
            raise ValueError(f"replay() takes the outputs of the last kickoff, and task {name!r} has none")
        progress.outputs[name] = one.output
    for one in crew.all_tasks[first:]:
        one.output = None
    return kickoff(crew, inputs, progress=progress)


async def in_thread(entity: Any, function: Callable[..., T], *args: Any, config: Any = None) -> T:
    """Call ``function(*args)`` in a thread; watch signals that trigger checkpoints from here.

    Only the main thread can watch them. ``config`` is a checkpoint's that is given beside that of the entity.
    """
    with watching([*settings_of(entity), *([config] if config is not None else [])], quiet=True):
        return await asyncio.to_thread(function, *args)


def _summed(crew: Crew, outputs: list[CrewOutput]) -> list[CrewOutput]:
    total = UsageMetrics()
    for output in outputs:
        total.include(output.token_usage)
    crew.usage_metrics = total
    return outputs
