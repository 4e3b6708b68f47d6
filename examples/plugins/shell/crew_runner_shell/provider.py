"""Checkpoints that are gone with the next restart of the machine: ``CheckpointConfig(location="scratch://mine")``."""

import tempfile
from pathlib import Path

from runner.providers import JsonProvider


class ScratchProvider(JsonProvider):
    """JSON files below the machine's folder for temporary files."""

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Write a file there. Returns its path."""
        return super().checkpoint(data, _folder(location), parent_id=parent_id, branch=branch)

    def prune(self, location: str, max_keep: int, *, branch: str = "main", head: str | None = None) -> int:
        """Remove the oldest files of a branch."""
        return super().prune(_folder(location), max_keep, branch=branch, head=head)


def _folder(location: str) -> str:
    return str(Path(tempfile.gettempdir(), "scratch-checkpoints", location.removeprefix("scratch://")))
