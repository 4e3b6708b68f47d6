"""The files that tasks want their output in, as a run gives them back."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import Conflict
from runner.inprocess import write_file
from runner.providers.redis.records import Committed


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file: which task's, where it belongs, and what is in it."""

    task: str
    path: str
    text: str

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.text.encode())

    def write(self, folder: Path) -> Path:
        """Write it there; folders on the way are made."""
        return write_file(str(folder / self.path), self.text, {})


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
                yield OutputFile(task, _inside(path), output.raw if text is None else text)
        elif task in wanted:
            yield OutputFile(task, interpolate(wanted[task], inputs), output.raw)


def _inside(path: str) -> str:
    """A path that a worker told, which must not lead out of the folder that it is given back in."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise Conflict(f"the run has a file at {json.dumps(path)}, which leads out of its folder: it is not written")
    return path
