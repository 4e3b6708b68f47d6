"""``output_file``: written in a folder of the task's own, and committed with its output. Whoever submitted gets it."""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crewai import Task
from crewai.utilities.string_utils import interpolate_only

from runner import output as outputs
from runner.errors import TaskError

MOST = 16 * 1024 * 1024  #: bytes of a file that are stored with the task's output


class Written:
    """The file of one task."""

    def __init__(self, folder: Path, path: str) -> None:
        self._folder, self._path = folder, path

    def beside(self, output: str) -> str:
        """What is stored of the output, with the file. Raises `TaskError` if it is too big."""
        stored = json.loads(output)
        file, found = self._folder / self._path, {}
        if self._path and file.is_file():
            if file.stat().st_size > MOST:
                raise TaskError(
                    f"the output file {self._path!r} has {file.stat().st_size / 1e6:.0f} MB, and {MOST / 1e6:.0f} MB "
                    "are kept with a run: have a tool write it where all can reach it"
                )
            text = file.read_text("utf-8")
            found[self._path] = None if text == outputs.load(stored)[0] else text
        return json.dumps({**stored, "files": found}, ensure_ascii=False) if self._path else output


@contextlib.contextmanager
def collected(task: Task | None, inputs: Mapping[str, Any] | None) -> Iterator[Written]:
    """While this is open, the task writes its file into a folder of its own. Open it before its texts are filled in."""
    if task is None or not task.output_file:
        yield Written(Path(), "")
        return
    name = task.output_file
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
            task.output_file = name
