"""The files that tasks want their output in, as a run gives them back."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.below import write_below
from runner.errors import LeadsOutside
from runner.providers.redis.records import Committed


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file: which task's, where it belongs, and what is in it."""

    task: str
    path: str
    text: str

    @property
    def data(self) -> bytes:
        """What is in it, as bytes."""
        return self.text.encode("utf-8", "replace")

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.data)

    def write(self, folder: Path) -> Path:
        """Write it below the folder, see `write_below`. Raises `LeadsOutside` or OSError."""
        return write_below(folder, self.path, self.data)


def write_files(files: Iterable[OutputFile], folder: Path) -> Iterator[Path | LeadsOutside]:
    """Write each file below the folder that belongs there. Gives where it is, or why it is not written."""
    for file in files:
        try:
            yield file.write(folder)
        except LeadsOutside as error:
            yield error


def files_of(
    outputs: Mapping[str, Committed], wanted: Mapping[str, str], inputs: Mapping[str, Any]
) -> Iterator[OutputFile]:
    """Those of a branch, in the order in which its tasks were done, so that the last of one name counts.

    Where a worker wrote the file it is as it was written there. ``wanted`` names the others, with placeholders, and
    they have the task's text: a native crew's, and those of outputs that a person edited.
    """
    from runner.adapters.native import interpolate

    for task, output in sorted(outputs.items(), key=lambda item: item[1].seq):
        if output.files is not None:
            for path, text in output.files.items():
                yield OutputFile(task, path, output.raw if text is None else text)
        elif task in wanted:
            yield OutputFile(task, interpolate(wanted[task], inputs), output.raw)
