"""``output_file``: written in a folder of the task's own, and committed with its output. Whoever submitted gets it."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crewai import Task
from crewai.utilities.string_utils import interpolate_only

from runner.errors import TaskError

MOST = 16 * 1024 * 1024  #: bytes of a file that are stored with the task's output


class Written:
    """The file of one task."""

    def __init__(self, folder: Path, path: str) -> None:
        self._folder, self._path = folder, path

    def found(self, raw: str) -> dict[str, str | None] | None:
        """What is stored of it: its text by its path, None for a text that is ``raw``. None if it wants no file.

        Raises `TaskError` if it is too big.
        """
        if not self._path:
            return None
        file = self._folder / self._path
        if not file.is_file():
            return {}
        size = file.stat().st_size
        if size > MOST:
            raise TaskError(
                f"the output file {self._path!r} has {size / 1e6:.0f} MB, and {MOST / 1e6:.0f} MB are kept with a run: "
                "have a tool write it where all can reach it"
            )
        text = file.read_text("utf-8")
        return {self._path: None if text == raw else text}


@contextlib.contextmanager
def collected(task: Task | None, inputs: Mapping[str, Any] | None) -> Iterator[Written]:
    """While this is open, the task writes its file into a folder of its own. Open it before its texts are filled in."""
    if task is None or not task.output_file:
        yield Written(Path(), "")
        return
    given = task.output_file
    name = given.lstrip("/")  # as CrewAI has it of paths without a name of an input in them
    with tempfile.TemporaryDirectory(prefix="runner-files-") as made:
        folder = Path(made).resolve()
        path = interpolate_only(name, dict(inputs)) if inputs else name
        file = (folder / path).resolve()
        if not file.is_relative_to(folder) or file == folder:
            raise TaskError(f"the output file {path[:200]!r} leads out of the folder that it is to be in")
        file.parent.mkdir(parents=True, exist_ok=True)
        task.output_file = str(folder / name)
        try:
            yield Written(folder, str(file.relative_to(folder)))
        finally:
            task.output_file = given
