"""How far one kickoff of a crew or an agent is: what a checkpoint holds beside the code's own fields.

Everything in it changes under the state's lock, together with the event that says so. So a snapshot never shows a
task's output without its ``task_completed``, or the other way round.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from runner.output import TaskOutput


@dataclass
class TaskProgress:
    """A task in flight: its steps, by their identity (`runner.journal`), and its agent's conversation."""

    steps: dict[str, str] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.steps or self.messages)


@dataclass
class Progress:
    """One kickoff.

    ``outputs`` are those of finished tasks; ``tasks`` are in flight, or failed and may go on; ``reads`` are the tasks
    whose outputs each one used, where that is not just what its context declares.
    """

    inputs: dict[str, Any] = field(default_factory=dict)
    kickoff_event_id: str | None = None
    outputs: dict[str, TaskOutput] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    tasks: dict[str, TaskProgress] = field(default_factory=dict)
    reads: dict[str, set[str]] = field(default_factory=dict)

    def task(self, key: str) -> TaskProgress:
        """A task's progress."""
        return self.tasks.setdefault(key, TaskProgress())

    def read(self, key: str, others: Iterable[str]) -> None:
        """It uses the outputs of these."""
        self.reads.setdefault(key, set()).update(others)

    def drop(self, key: str) -> None:
        """It is to be done anew."""
        for known in (self.outputs, self.tasks, self.reads):
            known.pop(key, None)
        self.skipped.discard(key)

    def finish(self, key: str, output: TaskOutput, declared: set[str]) -> None:
        """It is done: how it came to its output need not be kept. Its context declared that it uses ``declared``."""
        self.outputs[key] = output
        self.tasks.pop(key, None)
        if self.reads.setdefault(key, set()) == declared:
            del self.reads[key]
