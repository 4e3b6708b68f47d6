"""What the engine hands an adapter for one task: where it stands, what it works on, where its steps go."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.journal import Journal
from runner.output import TaskOutput
from runner.plan import Plan


@dataclass(frozen=True)
class Work:
    """One task to perform.

    ``given`` are the outputs of the task's declared context; ``fetch`` gets others by key. ``note`` puts a line of a
    kind ("task_log", "task_progress") among the run's events.
    """

    run_id: str
    branch: str
    attempt: int
    key: str
    plan: Plan
    inputs: Mapping[str, Any]
    journal: Journal
    fetch: Callable[[Sequence[str]], Mapping[str, TaskOutput]]
    note: Callable[[str, str], None]
    given: Mapping[str, TaskOutput] = field(default_factory=dict)
