"""Converts outputs between CrewAI's types and stored JSON. Earlier outputs are fetched when read, and recorded."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from crewai import Crew, Task, TaskOutput
from crewai.tasks.output_format import OutputFormat
from crewai.utilities.i18n import get_i18n
from pydantic import BaseModel, PrivateAttr, ValidationError
from pydantic_core import to_jsonable_python

from runner.core import output as outputs
from runner.core.errors import TaskError
from runner.core.output import TaskOutput as Stored
from runner.engine.work import Work


def dump(output: Any) -> str:
    """Return an output of a task or a crew as it is stored."""
    return outputs.dump(output.raw, json_of(output))


def json_of(output: Any) -> Any:
    """Return the output's JSON, or None if it is text only."""
    if isinstance(output.pydantic, BaseModel):
        return output.pydantic.model_dump(mode="json")
    return to_jsonable_python(output.json_dict, fallback=str)


def fill(output: TaskOutput, stored: Stored, task: Task) -> None:
    """Set an output to what is stored. Raises `TaskError` where that does not fit the task's model."""
    output.raw = stored.raw
    if stored.json_dict is None:
        return
    model: Any = task.output_pydantic
    if model is None:
        output.json_dict = _typed(stored.json_dict, task.output_json) if isinstance(stored.json_dict, dict) else None
        return
    try:
        output.pydantic = model.model_validate(stored.json_dict)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise TaskError(
            f"the stored output of task {stored.name!r} is not a valid {model.__name__}: {where}: {first['msg']}"
        ) from None


def _typed(data: dict[str, Any], model: Any) -> dict[str, Any]:
    """Restore dates and the like in a dict, as CrewAI has them in one that it made from a model."""
    with contextlib.suppress(ValidationError):
        return dict(model.model_validate(data).model_dump()) if model is not None else data
    return data


class Given(TaskOutput):
    """The output of an earlier task, fetched when it is first read."""

    _look: Callable[[], Stored] | None = PrivateAttr(default=None)
    _task: Any = PrivateAttr(default=None)

    def __getattribute__(self, name: str) -> Any:
        if name in ("raw", "pydantic", "json_dict"):
            private = super().__getattribute__("__pydantic_private__") or {}
            look, private["_look"] = private.get("_look"), None
            if look is not None:
                fill(self, look(), private["_task"])
        return super().__getattribute__(name)


def given(task: Task, agent: str, look: Callable[[], Stored]) -> Given:
    """Return the output of a finished task. ``look`` fetches what is stored."""
    found = Given(
        name=task.name or task.description,
        description=task.description,
        expected_output=task.expected_output,
        agent=agent,
        output_format=_format(task),
    )
    found._look, found._task = look, task
    return found


class PriorOutputs:
    """The outputs of the tasks before one. Reads count as use until ``over`` is set."""

    def __init__(self, crew: Crew, tasks: dict[str, Task], work: Work, inputs: Mapping[str, Any] | None) -> None:
        self._crew, self._tasks, self._work = crew, tasks, work
        self._have: dict[str, Stored] = dict(work.given)
        self._wanted: list[str] = []
        self.over = False
        if inputs:  # the texts of their outputs are those that they were done with
            for task in tasks.values():
                task.interpolate_inputs_and_add_conversation_history(dict(inputs))
            for agent in crew.agents:
                agent.interpolate_inputs(dict(inputs))

    def tasks(self, keys: Iterable[str]) -> list[Task]:
        """Return the tasks with these keys, with their outputs set."""
        self._wanted = list(keys)
        for key in self._wanted:
            self.output(key)
        return [self._tasks[key] for key in self._wanted]

    def output(self, key: str) -> Any:
        """Return the output of a task as a CrewAI object."""
        task = self._tasks[key]
        if task.output is None:
            task.output = given(task, self._agent(task), lambda: self._look(key))
        return task.output

    def _look(self, key: str) -> Stored:
        if not self.over:
            self._work.uses.task(key)
        if key not in self._have:
            missing = (
                [one for one in self._wanted or [key] if one not in self._have]
                if self.over or self._all_of_them()
                else [key]
            )
            self._have.update(self._work.fetch(missing))
        return self._have[key]

    def _all_of_them(self) -> bool:
        """Whether the task receives all earlier outputs, so that one read fetches them all."""
        return self._work.plan.by_key[self._work.key].context is None

    def _agent(self, task: Task) -> str:
        manager = self._crew.manager_agent
        doer = manager if manager is not None else task.agent
        if self._crew.process.value == "hierarchical" and manager is None:  # one that CrewAI makes
            return str(get_i18n(self._crew.prompt_file).retrieve("hierarchical_manager_agent", "role"))
        return str(doer.role) if doer is not None else ""


def _format(task: Task) -> OutputFormat:
    if task.output_json:
        return OutputFormat.JSON
    return OutputFormat.PYDANTIC if task.output_pydantic else OutputFormat.RAW
