"""Records a crew's callbacks as steps, so they do not run again when a task resumes elsewhere."""

import contextlib
import functools
import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

from crewai import Crew, Task
from crewai.crews.crew_output import CrewOutput
from crewai.hooks import InterceptionPoint
from pydantic import BaseModel

from runner.adapters.crewai import crew_plan, values
from runner.adapters.crewai.values import PriorOutputs
from runner.core import output as outputs
from runner.core.waiting import result_of
from runner.crews import callback_state
from runner.crews.callback_state import is_closing
from runner.journal.current_journal import active_journal
from runner.journal.journal import Journal
from runner.journal.object_state import ObjectState

Callback = Callable[..., Any]


def record_those_of_task(crew: Crew, task: Task, journal: Journal, earlier: PriorOutputs) -> None:
    """Record the callbacks of a task and of its agents' steps. After the last, reading ``earlier`` is no use."""
    own, common = task.callback, crew.task_callback
    first, second = own or common, common if own and common != own else None
    task.callback = _of_output("callback", first, journal) if first else None

    def last(output: Any) -> None:
        if second is not None:
            called(_of_output("task_callback", second, journal), output)
        earlier.over = True

    crew.task_callback = last
    record_those_of_steps(crew, journal)


def record_those_of_steps(crew: Crew, journal: Journal) -> None:
    """Record the ``step_callback`` of the crew and of each of its agents."""
    for agent in crew_plan.staff(crew):
        if callback := getattr(agent, "step_callback", None):
            agent.step_callback = _of_step("step_callback", callback, journal)
    if crew.step_callback:
        crew.step_callback = _of_step("step_callback", crew.step_callback, journal)


def record_those_of_end(crew: Crew, journal: Journal) -> None:
    """Record the ``after_kickoff`` callbacks of the crew."""
    crew.after_kickoff_callbacks = [
        one if is_closing(one) else _of_result("after_kickoff", one, journal) for one in crew.after_kickoff_callbacks
    ]


@contextlib.contextmanager
def recorded_inside(own: Any, journal: Journal) -> Iterator[None]:
    """While open, also record callbacks of crews that a method, tool or callback kicks off; ``own`` is the task's."""

    def begins(context: Any) -> None:
        crew = getattr(context, "crew", None)
        is_here = active_journal() in (journal, None)  # else it is another task's, beside this one
        if isinstance(crew, Crew) and crew is not own and is_here:
            _record_all(crew, journal)

    with crew_plan.hooked(InterceptionPoint.EXECUTION_START, begins):
        yield


def _record_all(crew: Crew, journal: Journal) -> None:
    """Record all callbacks of a crew, each once: it may be kicked off again, or copied in between."""
    whose = callback_state.owners(crew)
    crew.before_kickoff_callbacks = [
        _of_inputs("before_kickoff", one, whose, journal) for one in crew.before_kickoff_callbacks
    ]
    common = crew.task_callback
    crew.task_callback = _of_output("task_callback", common, journal) if common else None
    for task in crew.tasks:
        if task.callback is not None:
            is_common = task.callback == common  # then CrewAI calls it once
            task.callback = crew.task_callback if is_common else _of_output("callback", task.callback, journal)
    record_those_of_steps(crew, journal)
    record_those_of_end(crew, journal)


def called(callback: Callback, *arguments: Any) -> Any:
    """Call a callback and return its result, awaited if it is a coroutine."""
    return result_of(callback(*arguments))


def _once(wrap: Callable[..., Callback]) -> Callable[..., Callback]:
    """Leave callbacks alone that are wrapped already."""

    @functools.wraps(wrap)
    def wrapped(name: str, callback: Callback, *rest: Any) -> Callback:
        if getattr(callback, "of_the_journal", False):
            return callback
        found = wrap(name, callback, *rest)
        found.__dict__["of_the_journal"] = True
        return found

    return wrapped


@_once
def _of_output(name: str, callback: Callback, journal: Journal) -> Callback:
    """Wrap a callback that receives a task's output. What it changes in that output is recorded."""

    def stand(output: Any) -> tuple[Any, Any]:
        return output.raw, values.json_of(output)

    def change(output: Any, before: tuple[Any, Any]) -> Any:
        after = stand(output)
        return None if after == before else {"raw": after[0], "json": after[1]}

    if inspect.iscoroutinefunction(callback):

        async def recorded_async(output: Any) -> None:
            async def call(*_: Any) -> Any:
                before = stand(output)
                await callback(output)
                return change(output, before)

            _apply(output, await journal.step(name, call, (output.raw,), {}, counted=False))

        return recorded_async

    def recorded(output: Any) -> None:
        def call(*_: Any) -> Any:
            before = stand(output)
            called(callback, output)
            return change(output, before)

        _apply(output, journal.step(name, call, (output.raw,), {}, counted=False))

    return recorded


@_once
def _of_step(name: str, callback: Callback, journal: Journal) -> Callback:
    """Wrap a callback that receives a step of an agent."""
    if inspect.iscoroutinefunction(callback):

        async def await_it(step: Any) -> None:
            await callback(step)

        return lambda step: journal.step(name, await_it, (step,), {}, counted=False)

    def call(step: Any) -> None:
        callback(step)

    return lambda step: journal.step(name, call, (step,), {}, counted=False)


@_once
def _of_inputs(name: str, callback: Callback, whose: ObjectState, journal: Journal) -> Callback:
    """Wrap a callback that receives the crew's inputs and returns them, changed or not; recorded if they are JSON."""

    def recorded(inputs: Any) -> Any:
        live: list[Any] = []

        def call(*_: Any) -> Any:
            before = whose.seen()
            live.append(callback(inputs))
            left, _lost = whose.changed(before)
            return {"inputs": live[0], "state": left} if _is_json(live[0]) else None

        if not _is_json(inputs):
            return callback(inputs)
        said = journal.step(name, call, (inputs,), {}, counted=False)
        if live:
            return live[0]
        if said is None:
            return callback(inputs)
        whose.put(said["state"])
        return said["inputs"]

    return recorded


@_once
def _of_result(name: str, callback: Callback, journal: Journal) -> Callback:
    """Wrap a callback that receives the crew's output and returns it, changed or not, or something in its place."""

    def recorded(result: Any) -> Any:
        live: list[Any] = []

        def call(*_: Any) -> Any:
            live.append(called(callback, result))
            if isinstance(live[0], CrewOutput):
                return {"raw": live[0].raw, "json": values.json_of(live[0])}
            try:
                raw, data = outputs.from_value(live[0])
            except TypeError:  # inside of a job anything is well, and made again; of the job's own crew it is refused
                return None
            return {"instead": raw if data is None else data}

        said = journal.step(name, call, (getattr(result, "raw", result),), {}, counted=False)
        if live:
            return live[0]
        if said is None:
            return called(callback, result)
        if "instead" in said:
            return said["instead"]
        _apply(result, said)
        return result

    return recorded


def _apply(output: Any, changed: Any) -> None:
    """Apply to an output what a recorded callback changed in it."""
    if not isinstance(changed, dict):
        return
    output.raw = changed["raw"]
    if isinstance(output.pydantic, BaseModel) and changed["json"] is not None:
        output.pydantic = type(output.pydantic).model_validate(changed["json"])
    elif isinstance(changed["json"], dict):
        output.json_dict = changed["json"]


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
