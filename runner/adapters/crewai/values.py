"""Converts outputs between CrewAI and the store: JSON in the store, typed by the crew's code."""

import contextlib
from collections.abc import Callable
from typing import Any

from crewai import Task, TaskOutput
from crewai.tasks.output_format import OutputFormat
from pydantic import BaseModel, PrivateAttr, ValidationError
from pydantic_core import to_jsonable_python

from runner.core import output as outputs
from runner.core.errors import TaskError
from runner.core.output import TaskOutput as Stored


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


def _format(task: Task) -> OutputFormat:
    if task.output_json:
        return OutputFormat.JSON
    return OutputFormat.PYDANTIC if task.output_pydantic else OutputFormat.RAW
