"""A crew's own callbacks, as steps: what one of them did is not done again when its task goes on elsewhere."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from crewai import Crew, Task
from crewai.crews.crew_output import CrewOutput
from pydantic import BaseModel

from runner import output as outputs
from runner.adapters.crewai import planned, values
from runner.adapters.crewai.owners import is_closing
from runner.adapters.crewai.seen import Earlier
from runner.journal import Journal

Callback = Callable[..., Any]


def record_those_of_task(crew: Crew, task: Task, journal: Journal, earlier: Earlier) -> None:
    """The callbacks of a task, and of each of its agents' steps. After the last of them the task is over."""
    own, common = task.callback, crew.task_callback
    first, second = own or common, common if own and common != own else None
    task.callback = _of_output("callback", first, journal) if first else None

    def last(output: Any) -> None:
        if second is not None:
            _of_output("task_callback", second, journal)(output)
        earlier.over = True

    crew.task_callback = last
    record_those_of_steps(crew, journal)


def record_those_of_steps(crew: Crew, journal: Journal) -> None:
    """The callbacks of each step of the crew's agents."""
    for agent in planned.staff(crew):
        if callback := getattr(agent, "step_callback", None):
            agent.step_callback = _of_step(callback, journal)
    if crew.step_callback:
        crew.step_callback = _of_step(crew.step_callback, journal)


def record_those_of_end(crew: Crew, journal: Journal) -> None:
    """The callbacks of the crew's output."""
    crew.after_kickoff_callbacks = [
        one if is_closing(one) else _of_result(one, journal) for one in crew.after_kickoff_callbacks
    ]


def called(callback: Callback, *arguments: Any) -> Any:
    """What a callback gives, also if that is to be awaited."""
    found = callback(*arguments)
    return asyncio.run(_awaited(found)) if inspect.isawaitable(found) else found


def _of_output(name: str, callback: Callback, journal: Journal) -> Callback:
    """Of a task's output, which the callback may change."""

    def recorded(output: Any) -> None:
        def call(*_: Any) -> Any:
            before = (output.raw, values.json_of(output))
            called(callback, output)
            after = (output.raw, values.json_of(output))
            return None if after == before else {"raw": after[0], "json": after[1]}

        _apply(output, journal.step(name, call, (output.raw,), {}, counted=False))

    return recorded


def _of_step(callback: Callback, journal: Journal) -> Callback:
    """Of an agent's step."""
    if inspect.iscoroutinefunction(callback):

        async def await_it(step: Any) -> None:
            await callback(step)

        return lambda step: journal.step("step_callback", await_it, (step,), {}, counted=False)

    def call(step: Any) -> None:
        callback(step)

    return lambda step: journal.step("step_callback", call, (step,), {}, counted=False)


def _of_result(callback: Callback, journal: Journal) -> Callback:
    """Of the crew's output: the callback gives it back, changed or not, or something else in its place."""

    def recorded(result: Any) -> Any:
        live: list[Any] = []

        def call(*_: Any) -> Any:
            live.append(called(callback, result))
            if isinstance(live[0], CrewOutput):
                return {"raw": live[0].raw, "json": values.json_of(live[0])}
            raw, data = outputs.from_value(live[0])
            return {"instead": raw if data is None else data}

        said = journal.step("after_kickoff", call, (getattr(result, "raw", result),), {}, counted=False)
        if live:
            return live[0]
        if "instead" in said:
            return said["instead"]
        _apply(result, said)
        return result

    return recorded


def _apply(output: Any, changed: Any) -> None:
    """What a callback that is not called again made of an output."""
    if not isinstance(changed, dict):
        return
    output.raw = changed["raw"]
    if isinstance(output.pydantic, BaseModel) and changed["json"] is not None:
        output.pydantic = type(output.pydantic).model_validate(changed["json"])
    elif isinstance(changed["json"], dict):
        output.json_dict = changed["json"]


async def _awaited(value: Any) -> Any:
    return await value
