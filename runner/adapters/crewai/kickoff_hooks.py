"""What CrewAI does once per kickoff instead of once per task: callbacks, hooks and the planner."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from crewai import Crew, Task
from crewai.hooks import HookAborted, InterceptionPoint, dispatch, unregister_hook
from crewai.hooks.contexts import ExecutionStartContext, InputContext

from runner.adapters.crewai import callbacks, crew_plan, values
from runner.adapters.crewai.crew_event_filter import KickoffEventFilter
from runner.adapters.crewai.crew_plan import AFTER, AT_BEGINNING, AT_END, BEFORE
from runner.adapters.crewai.values import PriorOutputs
from runner.core import output as outputs
from runner.core.plan.dependencies import EVERYTHING
from runner.crews import callback_state, kickoff_callbacks, planning
from runner.engine.work import Work


def begin(crew: Crew, work: Work) -> str:
    """Run the hooks and ``before_kickoff`` callbacks, and return the inputs that they leave, which all tasks get.

    Attributes that the callbacks set on their own objects are stored with them.
    """
    work.uses.input(EVERYTHING)
    given = dict(work.inputs) or None
    start = ExecutionStartContext(crew=crew, inputs={} if given is None else given, payload=given)
    dispatch(InterceptionPoint.EXECUTION_START, start)
    own = callback_state.owners(crew)
    inputs, state = kickoff_callbacks.before(crew.before_kickoff_callbacks, own, start.payload, work)
    last = InputContext(crew=crew, inputs={} if inputs is None else inputs, payload=inputs)
    dispatch(InterceptionPoint.INPUT, last)
    found = {"inputs": kickoff_callbacks.json_inputs(last.payload), **({"self": state} if state else {})}
    return outputs.dump(*outputs.from_value(found))


def inputs(crew: Crew, work: Work) -> dict[str, Any] | None:
    """Return the tasks' inputs, None for none, and restore the attributes that callbacks set on their objects."""
    own = callback_state.owners(crew)
    crew.before_kickoff_callbacks = []
    for point, hook in crew_plan.own_hooks(*AT_BEGINNING, *(AT_END if work.key != AFTER else ())):
        unregister_hook(point, hook)
    if BEFORE not in work.plan.by_key:
        return dict(work.inputs) or None
    changed, state = kickoff_callbacks.changed(work)
    own.put(state)
    return changed


def make_plan(crew: Crew, work: Work, inputs: Mapping[str, Any] | None, kickoff_events: KickoffEventFilter) -> str:
    """Have CrewAI's planner plan, and stop before the first task. Returns what it adds to each task, to be stored."""
    keys = crew_plan.by_key(crew)
    begun: dict[str, str] = {}
    if inputs:
        for task in crew.tasks:
            task.interpolate_inputs_and_add_conversation_history(dict(inputs))
    before = {key: task.description for key, task in keys.items()}
    work.uses.input(EVERYTHING)

    def stop(context: Any) -> None:
        if any(context.task is task for task in crew.tasks):  # the planner is a task, too
            begun.update({key: task.description for key, task in keys.items()})
            kickoff_events.no_more()
            raise HookAborted("planned")

    crew.after_kickoff_callbacks = []
    with crew_plan.hooked(InterceptionPoint.PRE_STEP, stop):
        try:
            kickoff(crew, work, inputs)
        except HookAborted:
            if not begun:
                raise
    return outputs.dump(*outputs.from_value({key: begun[key][len(before[key]) :] for key in keys}))


@contextlib.contextmanager
def planned_for(crew: Crew, task: Task, work: Work) -> Iterator[None]:
    """While this is open, the task's description includes what the planner added."""
    crew.planning = False
    plan = kickoff_callbacks.stored(work, planning.KEY).get(work.key) if planning.KEY in work.plan.by_key else None

    def add(context: Any) -> None:
        if context.task is task:
            task.description += str(plan)

    with crew_plan.hooked(InterceptionPoint.PRE_STEP, add) if plan else contextlib.nullcontext():
        yield


def end(crew: Crew, work: Work, inputs: Mapping[str, Any] | None, earlier: PriorOutputs) -> str:
    """After all tasks: run the ``after_kickoff`` callbacks and return the crew's output, to be stored."""
    crew.planning = False
    earlier.tasks(crew_plan.by_key(crew))
    for task in crew.tasks:
        task.async_execution = False
    callbacks.record_those_of_end(crew, work.journal)
    result = kickoff(crew, work, inputs)
    return values.dump(result) if hasattr(result, "raw") else outputs.dump(*outputs.from_value(result))


def kickoff(crew: Crew, work: Work, inputs: Mapping[str, Any] | None) -> Any:
    """Kick the crew off. Tasks that have an output are not performed again."""
    crew.checkpoint_kickoff_event_id = work.run_id
    return crew.kickoff(inputs=None if inputs is None else dict(inputs))
