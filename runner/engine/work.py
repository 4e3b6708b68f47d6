"""What an adapter gets for one task: its position in the run, its inputs, its journal."""

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
    """What an agent and its model said to each other about one task, in the form that models take.

    The engine may pass a recorded one, and is notified of what is added.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)

    def say(self, *messages: dict[str, Any]) -> None:
        """Add messages."""
        self.messages.extend(messages)


@dataclass(frozen=True)
class Work:
    """One task to perform.

    ``given`` are the outputs of the task's declared context; ``fetch`` gets others by key. ``note`` puts a line of a
    kind ("task_log", "task_progress", "task_skipped") among the run's events; ``watch`` returns the observer of a step.
    ``uses`` is told what the task looks at.
    ``line`` is the branch, for a plan that grows. ``beside`` gives what is stored with outputs besides, by key. A task
    that ``goes_on`` is not over when it is interrupted. ``failed`` is how many attempts at it failed before:
    what those were told is replayed, so that a limit on how often a model is asked again counts for each afresh.
    ``part`` is what of the plan its branch does itself; None for all of it. The task that ``opens`` its branch is the
    first that was ever claimed there, however often it restarts.
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
    beside: Callable[[Sequence[str]], Mapping[str, Mapping[str, Any]]] = lambda _: {}
    goes_on: bool = False
    failed: int = 0
    part: Plan | None = None
    opens: bool = False
