"""The progress of one kickoff of a crew or an agent: what a checkpoint holds besides the code's own fields.

It changes with its event under the state's lock: a snapshot has an output and ``task_completed``, or neither.
"""

from dataclasses import dataclass, field
from typing import Any

from runner.core.output import TaskOutput
from runner.core.plan.dependencies import ReadSet


@dataclass
class TaskProgress:
    """A task in flight: its recorded steps, by their identity (`runner.journal`), and its agent's conversation."""

    steps: dict[str, str] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.steps or self.messages)


@dataclass
class Progress:
    """The progress of one kickoff.

    Attributes:
        given: the arguments of the kickoff as JSON: the inputs before callbacks, or an agent's messages.
        outputs: those of finished tasks.
        used: what each finished task used (`runner.core.plan.dependencies`).
        tasks: those in flight, or failed and resumable.
    """

    inputs: dict[str, Any] = field(default_factory=dict)
    given: Any = None
    kickoff_event_id: str | None = None
    outputs: dict[str, TaskOutput] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    tasks: dict[str, TaskProgress] = field(default_factory=dict)
    used: dict[str, ReadSet] = field(default_factory=dict)

    def task(self, key: str) -> TaskProgress:
        """Return a task's progress."""
        return self.tasks.setdefault(key, TaskProgress())

    def drop(self, key: str) -> None:
        """Forget a task, so that it runs again."""
        for known in (self.outputs, self.tasks, self.used):
            known.pop(key, None)
        self.skipped.discard(key)

    def finish(self, key: str, output: TaskOutput, used: ReadSet) -> None:
        """Keep a finished task's output, and drop its steps and conversation."""
        self.outputs[key] = output
        self.tasks.pop(key, None)
        self.used[key] = used
