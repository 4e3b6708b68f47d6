"""How far one kickoff of a crew or an agent is: what a checkpoint holds beside the code's own fields.

Everything in it changes under the state's lock, together with the event that says so. So a snapshot never shows a
task's output without its ``task_completed``, or the other way round.
"""

from dataclasses import dataclass, field
from typing import Any

from runner.core.output import TaskOutput
from runner.core.plan.dependencies import ReadSet


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

    ``given`` is what it was kicked off with, as JSON: ``inputs`` before the callbacks, or an agent's messages.
    ``outputs`` are those of finished tasks, ``used`` what each of them used (`runner.core.plan.dependencies`);
    ``tasks`` are in flight, or failed and may be resumed.
    """

    inputs: dict[str, Any] = field(default_factory=dict)
    given: Any = None
    kickoff_event_id: str | None = None
    outputs: dict[str, TaskOutput] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    tasks: dict[str, TaskProgress] = field(default_factory=dict)
    used: dict[str, ReadSet] = field(default_factory=dict)

    def task(self, key: str) -> TaskProgress:
        """A task's progress."""
        return self.tasks.setdefault(key, TaskProgress())

    def drop(self, key: str) -> None:
        """It is to run again."""
        for known in (self.outputs, self.tasks, self.used):
            known.pop(key, None)
        self.skipped.discard(key)

    def finish(self, key: str, output: TaskOutput, used: ReadSet) -> None:
        """It is done: how it came to its output need not be kept."""
        self.outputs[key] = output
        self.tasks.pop(key, None)
        self.used[key] = used
