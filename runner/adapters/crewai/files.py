"""``output_file``: CrewAI writes it into the task's copy of the project, where it is kept like any new file."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crewai import Task
from crewai.utilities.string_utils import interpolate_only

from runner.core.errors import TaskError


@contextlib.contextmanager
def inside(task: Task | None, inputs: Mapping[str, Any] | None) -> Iterator[bool]:
    """While this is open, the task's ``output_file`` is below the working directory; yields whether it has one.

    To be opened before placeholders are filled in. Raises `TaskError` where the file would be elsewhere.
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
