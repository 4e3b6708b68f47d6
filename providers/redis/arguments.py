"""What the scripts take for a task, and for the time."""

import json
import time
from collections.abc import Iterable
from typing import Any

from runner.core.plan import PlannedTask

LONGEST = 10**14  #: ms, 3,000 years: longer than any run is kept, and still counted exactly by the scripts


def milliseconds(seconds: float) -> int:
    """A time as the scripts take it."""
    return int(min(seconds * 1000, LONGEST))


def stamp() -> str:
    """The time as checkpoint ids begin with it: UTC, to the second."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime())


def specification(task: PlannedTask, needs: int) -> dict[str, Any]:
    """A task as the scripts take it: what it waits for in number, its context, its timeout in milliseconds."""
    return {
        "task": task.key,
        "needs": needs,
        "context": json.dumps(task.context or [], ensure_ascii=False),
        "timeout": str(milliseconds(task.timeout or 0)),
    }


def specifications(tasks: Iterable[PlannedTask], *, first: bool = False) -> str:
    """Several of them, as the JSON list that the scripts take; the ``first`` of a branch wait for none."""
    return json.dumps([specification(task, 0 if first else len(task.after)) for task in tasks], ensure_ascii=False)
