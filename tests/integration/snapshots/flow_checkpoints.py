"""Flows of tests of checkpoints: their states, a checkpoint after each method, and what was written."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from runner import CheckpointConfig, JsonProvider

EACH = ["method_execution_finished"]


class Tally(BaseModel):
    count: int = 0
    log: list[str] = []


class Parcel(BaseModel):
    weight: int


def each(where: str, **more: Any) -> CheckpointConfig:
    return CheckpointConfig(location=where, on_events=EACH, **more)


def written(where: str, branch: str = "main") -> list[dict[str, Any]]:
    """The flows of all checkpoints of a branch, oldest first."""
    found = JsonProvider().checkpoints(where, branch)
    return [json.loads(Path(one.location).read_text())["entities"][0] for one in found]


class Stops(Exception):
    """What a method raises the first time, to stand for a crash."""


class Once:
    """Raises the first time it is reached."""

    def __init__(self) -> None:
        self.left = True

    def __call__(self) -> None:
        if self.left:
            self.left = False
            raise Stops
