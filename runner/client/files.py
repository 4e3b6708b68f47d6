"""Writes the output files of a run's tasks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.bundles.task_files import bytes_of, is_executable
from runner.core.errors import LeadsOutside
from runner.core.inputs import BEFORE_KICKOFF, as_begun
from runner.core.safe_paths import write_below
from runner.providers.records import Committed


@dataclass(frozen=True, slots=True)
class OutputFile:
    """An output file: its task, its path and its content."""

    task: str
    path: str
    data: bytes
    executable: bool = False

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.data)

    def write(self, folder: Path) -> Path:
        """Write the file below the folder, see `write_below`. Raises `LeadsOutside` or OSError."""
        return write_below(folder, self.path, self.data, executable=self.executable)


def write_files(files: Iterable[OutputFile], folder: Path) -> Iterator[Path | LeadsOutside]:
    """Write each file below the folder. Yields its path, or why it was not written."""
    for file in files:
        try:
            yield file.write(folder)
        except LeadsOutside as error:
            yield error


def files_of(
    outputs: Mapping[str, Committed], wanted: Mapping[str, str], inputs: Mapping[str, Any]
) -> Iterator[OutputFile]:
    """Return the files of a branch by commit order. The last one of a path counts; a removed file is left out.

    ``wanted`` names the ``output_file``s, with placeholders: they contain the task's text, in native crews and for
    outputs that a person edited. Other files are as the task left them.
    """
    from runner.core.interpolation import interpolate

    begun = outputs.get(BEFORE_KICKOFF)
    inputs = as_begun(inputs, begun.raw if begun is not None else None)
    found: dict[str, OutputFile] = {}
    for task, output in sorted(outputs.items(), key=lambda item: item[1].seq):
        for path, content in (output.files or {}).items():
            data = bytes_of(content, output.raw)
            if data is None:
                found.pop(path, None)
            else:
                found[path] = OutputFile(task, path, data, is_executable(content))
        if task in wanted and output.files is None:
            path = interpolate(wanted[task], inputs)
            found[path] = OutputFile(task, path, output.raw.encode("utf-8", "replace"))
    yield from found.values()
