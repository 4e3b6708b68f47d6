"""What CrewAI does once for a kickoff, and not for each task: its callbacks, and its planner."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from crewai import Crew, Task
from crewai.hooks import HookAborted, InterceptionPoint, register_hook, unregister_hook

from runner import output as outputs
from runner import planning
from runner.adapters.crewai import planned, values
from runner.adapters.crewai.planned import BEFORE
from runner.adapters.crewai.seen import Earlier
from runner.errors import TaskError
from runner.used import EVERYTHING
from runner.work import Work


def begin(crew: Crew, work: Work) -> str:
    """Let the callbacks look at the inputs; what they make of them is what all tasks get."""
    work.uses.input(EVERYTHING)
    inputs: Any = dict(work.inputs)
    for callback in crew.before_kickoff_callbacks:
        inputs = callback(inputs)
    return outputs.dump(*outputs.from_value({"inputs": inputs}))


def inputs(crew: Crew, work: Work) -> dict[str, Any] | None:
    """What the tasks work on: the run's inputs, or what the callbacks made of them. None if nobody gave any."""
    crew.before_kickoff_callbacks = []
    if BEFORE not in work.plan.by_key:
        return dict(work.inputs) or None
    return found["inputs"] if isinstance(found := _stored(work, BEFORE), dict) and "inputs" in found else None


def make_plan(crew: Crew, work: Work, inputs: Mapping[str, Any] | None) -> str:
    """Have CrewAI's planner plan, and stop before the first task. What it adds to each task is stored."""
    keys = planned.by_key(crew)
    begun: dict[str, str] = {}
    if inputs:
        for task in crew.tasks:
            task.interpolate_inputs_and_add_conversation_history(dict(inputs))
    before = {key: task.description for key, task in keys.items()}
    work.uses.input(EVERYTHING)

    def stop(context: Any) -> None:
        if any(context.task is task for task in crew.tasks):  # the planner is a task, too
            begun.update({key: task.description for key, task in keys.items()})
            raise HookAborted("planned")

    with _hooked(InterceptionPoint.PRE_STEP, stop):
        try:
            kickoff(crew, work, inputs)
        except HookAborted:
            if not begun:
                raise
    return outputs.dump(*outputs.from_value({key: begun[key][len(before[key]) :] for key in keys}))


@contextlib.contextmanager
def planned_for(crew: Crew, task: Task, work: Work) -> Iterator[None]:
    """While this is open, the task is told what the planner said of it."""
    crew.planning = False
    plan = _stored(work, planning.KEY).get(work.key) if planning.KEY in work.plan.by_key else None

    def add(context: Any) -> None:
        if context.task is task:
            task.description += str(plan)

    with _hooked(InterceptionPoint.PRE_STEP, add) if plan else contextlib.nullcontext():
        yield


def end(crew: Crew, work: Work, inputs: Mapping[str, Any] | None, earlier: Earlier) -> str:
    """All tasks are done: the crew's output, as its callbacks leave it."""
    crew.planning = False
    earlier.tasks(planned.by_key(crew))
    for task in crew.tasks:
        task.async_execution = False
    result = kickoff(crew, work, inputs)
    return values.dump(result) if hasattr(result, "raw") else outputs.dump(*outputs.from_value(result))


def kickoff(crew: Crew, work: Work, inputs: Mapping[str, Any] | None) -> Any:
    """CrewAI's own; tasks that have an output are not done."""
    crew.checkpoint_kickoff_event_id = work.run_id
    return crew.kickoff(inputs=None if inputs is None else dict(inputs))


def _stored(work: Work, key: str) -> dict[str, Any]:
    """What an earlier part of the kickoff found out."""
    work.uses.task(key)
    found = work.given.get(key) or work.fetch([key])[key]
    if not isinstance(found.json_dict, dict):
        raise TaskError(f"the output of {key!r} is no JSON object")
    return found.json_dict


@contextlib.contextmanager
def _hooked(point: InterceptionPoint, hook: Any) -> Iterator[None]:
    register_hook(point, hook)
    try:
        yield
    finally:
        unregister_hook(point, hook)
