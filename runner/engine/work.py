"""What an adapter gets to perform one task: its position in the run, its inputs, its journal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.core.output import TaskOutput
from runner.core.plan import Plan
from runner.core.plan.dependencies import ReadTracker
from runner.core.plan.expansion import Branch
from runner.journal.journal import Journal
from runner.journal.recorder import StepObserver


@dataclass
class Conversation:
    """The messages between an agent and its model about one task, in the models' form.

    The engine may pass a recorded one, and is notified of added messages.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)

    def say(self, *messages: dict[str, Any]) -> None:
        """Add messages."""
        self.messages.extend(messages)


@dataclass(eq=False)  # not frozen: each field would be set by a call, and each task makes one
class Work:
    """One task to perform. What it holds is not exchanged.

    Attributes:
        given: the outputs of the task's declared context.
        fetch: returns other outputs, by key.
        note: appends a line of a kind ("task_log", "task_progress", "task_skipped") to the run's events.
        watch: returns the observer of a step.
        uses: records what the task reads.
        line: the branch, for a dynamic plan.
        stored_with: returns what is stored together with outputs, by key.
        is_resumable: whether an interruption leaves the task unfinished.
        failed: how many attempts failed before. Their model calls are replayed, so a limit on retries of the model
            counts for each attempt separately.
        part: the part of the plan that its branch runs itself; None for all of it.
        opens: whether it is the first task ever claimed on its branch, however often it restarts.
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
    conversation: Conversation = field(default_factory=Conversation)
    watch: Callable[[str, Callable[..., Any]], StepObserver] | None = None
    uses: ReadTracker = field(default_factory=ReadTracker)
    line: Branch | None = None
    stored_with: Callable[[Sequence[str]], Mapping[str, Mapping[str, Any]]] = lambda _: {}
    is_resumable: bool = False
    failed: int = 0
    part: Plan | None = None
    opens: bool = False
