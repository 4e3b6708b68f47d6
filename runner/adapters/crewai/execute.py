"""Performs one task of a CrewAI crew by CrewAI's own ``kickoff``, with all earlier tasks marked as done.

Only what CrewAI makes public is used: a task with an ``output`` is not done again if ``checkpoint_kickoff_event_id`` is
set, and the crew's list of tasks ends with the one to do.
"""

import contextlib
import json
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crewai import Crew, Task
from crewai.crews.utils import enable_agent_streaming
from crewai.tasks.conditional_task import ConditionalTask
from crewai.utilities.string_utils import interpolate_only

from runner.adapters.crewai import (
    call_observer,
    callbacks,
    crew_plan,
    human_input,
    kickoff_hooks,
    knowledge,
    tools,
    usage,
    values,
)
from runner.adapters.crewai.caches import Caches
from runner.adapters.crewai.crew_event_filter import KickoffEventFilter
from runner.adapters.crewai.crew_plan import AFTER, BEFORE, SKIPPED
from runner.adapters.crewai.tool_state import ToolStateCarrier
from runner.adapters.crewai.values import PriorOutputs
from runner.core import output as outputs
from runner.core.errors import TaskError, UnknownTask
from runner.core.interpolation import placeholders
from runner.crews import planning
from runner.crews.callback_state import is_closing
from runner.engine.work import Work

NO_CREW = types.SimpleNamespace(tasks=(), agents=(), manager_agent=None)
"""In place of a task's own crew, where it has none."""


def perform(crew: Crew, work: Work) -> str:
    """Perform one task, or what comes before or after all of them. Returns what is to be stored."""
    _quiet(crew)
    if crew.max_rpm:
        work.journal.limit("crew", crew.max_rpm)
    work.uses.watch({})
    with at_work(crew, work) as carried, KickoffEventFilter(crew, work).open() as kickoff_events:
        try:
            return _perform(crew, work, carried, kickoff_events)
        except Exception as error:
            kickoff_events.failed(error)
            raise


@contextlib.contextmanager
def at_work(crew: Any, work: Work, flow: Any = None) -> Iterator[ToolStateCarrier]:
    """While this is open, what CrewAI does in this context is recorded as a task of the run.

    That is its calls, tool uses, questions and callbacks. ``crew`` is `NO_CREW` if the task kicks off what it makes
    itself, ``flow`` the flow whose method it is.
    """
    with (
        call_observer.observing(crew, work, flow),
        tools.journaled(crew, work) as carried,
        human_input.asking(work),
        callbacks.recorded_inside(crew, work.journal),
    ):
        yield carried


def _perform(crew: Crew, work: Work, carried: ToolStateCarrier, kickoff_events: KickoffEventFilter) -> str:
    knowledge.add_what_was_read()
    if work.key == BEFORE:
        return kickoff_hooks.begin(crew, work)
    inputs = kickoff_hooks.inputs(crew, work)
    if work.key == planning.KEY:
        return kickoff_hooks.make_plan(crew, work, inputs, kickoff_events)
    tasks = crew_plan.by_key(crew)
    kept = Caches(crew, work)
    carried.take_up(work)
    with _output_file_inside(tasks.get(work.key), inputs) as wanted:
        stored = json.loads(_one_of(crew, tasks, work, inputs, kickoff_events))
        beside = {
            "files": {} if wanted else None,  # what was written comes over this
            "usage": usage.of(crew, work),
            "cached": kept.added,
            "tool_state": carried.left,
        }
    beside = {name: found for name, found in beside.items() if found or (name == "files" and found is not None)}
    return json.dumps({**stored, **beside}, ensure_ascii=False)


@contextlib.contextmanager
def _output_file_inside(task: Task | None, inputs: Mapping[str, Any] | None) -> Iterator[bool]:
    """While open, the task's ``output_file``, if it has one (yielded), is kept below the working directory.

    Open it before placeholders are filled in. Raises `TaskError` if the file would be elsewhere.
    """
    if task is None or not task.output_file:
        yield False
        return
    given = task.output_file
    name = given.lstrip("/")  # as CrewAI has it of paths without a name of an input in them
    folder = Path.cwd().resolve()
    path = interpolate_only(name, dict(inputs)) if inputs else name
    file = (folder / path).resolve()
    if not file.is_relative_to(folder) or file == folder:
        raise TaskError(f"the output file {path[:200]!r} points outside its folder")
    task.output_file = name
    try:
        yield True
    finally:
        task.output_file = given


def _one_of(
    crew: Crew,
    tasks: dict[str, Task],
    work: Work,
    inputs: Mapping[str, Any] | None,
    kickoff_events: KickoffEventFilter,
) -> str:
    if work.key in tasks:
        _note_inputs(crew, tasks[work.key], work)
    earlier = PriorOutputs(crew, tasks, work, inputs)
    if work.key == AFTER:
        usage.sum_up(crew, work)
        return kickoff_hooks.end(crew, work, inputs, earlier)
    if work.key not in tasks:
        raise UnknownTask(work.key)
    task = tasks[work.key]
    before = list(tasks)[: list(tasks).index(work.key)]
    if isinstance(task, ConditionalTask) and not _is_wanted(task, work, earlier.output(before[-1])):
        work.note("task_skipped", "its condition does not hold")
        kickoff_events.skipped(inputs)
        return json.dumps({**outputs.stored("", None), SKIPPED: True})
    return _one(crew, tasks, work, inputs, earlier)


def _one(
    crew: Crew, tasks: dict[str, Task], work: Work, inputs: Mapping[str, Any] | None, earlier: PriorOutputs
) -> str:
    task = tasks[work.key]
    before = list(tasks)[: list(tasks).index(work.key)]
    # A task that runs beside others is told only of what its context names: as in a kickoff from the beginning.
    crew.tasks = [task] if task.async_execution else [*earlier.tasks(before), task]
    if before and len(crew.tasks) == 1:
        earlier.tasks(before)
        if task.allow_crewai_trigger_context is None:
            task.allow_crewai_trigger_context = False  # it is the first in this list, and not in the crew's
    for one in crew.tasks:
        one.async_execution = False
    _leave_out_skipped(task, tasks, work)
    _leave_time_to_us(crew, task)
    crew.after_kickoff_callbacks = [one for one in crew.after_kickoff_callbacks if is_closing(one)]
    callbacks.record_those_of_task(crew, task, work.journal, earlier)
    with kickoff_hooks.planned_for(crew, task, work):
        kickoff_hooks.kickoff(crew, work, inputs)
    return values.dump(task.output)


def _leave_out_skipped(task: Task, tasks: dict[str, Task], work: Work) -> None:
    """Remove skipped tasks from the task's context, since in one process they would have no output."""
    if not isinstance(task.context, list):
        return
    named = {id(one) for one in task.context if isinstance(one, ConditionalTask)}
    keys = [key for key, one in tasks.items() if id(one) in named]
    records = work.stored_with(keys) if keys else {}
    skipped = {id(tasks[key]) for key, record in records.items() if record.get(SKIPPED)}
    task.context = [one for one in task.context if id(one) not in skipped]


def _leave_time_to_us(crew: Crew, task: Task) -> None:
    """Remove the agent's time limit, which the plan has. CrewAI would let the call end and discard its result."""
    agent: Any = crew_plan.performer(crew, task)
    if crew_plan.limit(crew, task) is not None:
        agent.max_execution_time = None


def _is_wanted(task: ConditionalTask, work: Work, previous: Any) -> bool:
    """Whether the task's condition holds for the output before it. It runs once: the answer is recorded."""
    said = work.journal.get_marker("condition")
    if said is None:
        said = task.should_execute(previous)
        work.journal.set_marker("condition", said)
    task.condition = lambda _: said
    return bool(said)


def _quiet(crew: Crew) -> None:
    """Switch off what CrewAI does once per run: checkpoints, rate limits and streaming."""
    crew.checkpoint = False
    for one in (crew, *crew_plan.staff(crew)):
        if hasattr(one, "checkpoint"):
            one.checkpoint = False
        if pace := getattr(one, "_rpm_controller", None):  # the run counts the calls of all its processes, really made
            pace.max_rpm = None
            pace.stop_rpm_counter()
    if crew.stream:  # the requests as they would be; the pieces are not used
        enable_agent_streaming(crew.agents)
        crew.stream = False


def _note_inputs(crew: Crew, task: Task, work: Work) -> None:
    """Record as used the inputs that the texts of the task and its agents contain."""
    told = crew_plan.task_texts(task)
    alone = crew.process.value == "sequential" and not getattr(task.agent, "allow_delegation", False)
    for agent in [task.agent] if alone else [task.agent, crew.manager_agent, *crew.agents]:
        told += crew_plan.agent_texts(agent) if agent is not None else []
    names = set(placeholders(told)) | {"crewai_trigger_payload", "crew_chat_messages"}
    for name in names if BEFORE not in work.plan.by_key else ():
        work.uses.input(name)
