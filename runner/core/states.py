"""The states of runs and tasks, and all transitions between them, as tables.

Rule: a transition that is not in a table does not happen. The Lua scripts make the transitions; the property tests
check them against these tables, and ``docs/internals.md`` draws them.
"""

from enum import StrEnum


class RunStatus(StrEnum):
    """The status of a branch, and of a run, which is that of its current one. Several branches may run at a time."""

    running = "running"  #: some task may run, runs, or waits for its time
    completed = "completed"  #: every task is committed
    failed = "failed"  #: a task failed for good; can be resumed
    cancelled = "cancelled"  #: a person stopped it; can be resumed
    waiting = "waiting"  #: it needs a person's answer

    @property
    def over(self) -> bool:
        """Whether nothing more happens unless a person asks for it."""
        return self is not RunStatus.running


class TaskState(StrEnum):
    """The state of a task on a branch. Without a stored state it is ``waiting``; with an output, ``committed``."""

    waiting = "waiting"  #: something it depends on is not committed
    queued = "queued"  #: its job was sent, or is to be sent
    running = "running"  #: a worker holds the claim
    delayed = "delayed"  #: an attempt failed, or its job came to a worker that cannot do it; the next one has a time
    held = "held"  #: its branch is over; nothing is sent until that is resumed
    failed = "failed"  #: no attempts left
    asked = "asked"  #: it awaits input, and resumes with the answer
    committed = "committed"  #: its output is stored, for ever


#: "branch" is a run's move alone: another branch becomes its current one. One that is completed resumes with new tasks.
RUN_MOVES: dict[RunStatus, dict[str, RunStatus]] = {
    RunStatus.running: {
        "finish": RunStatus.completed,
        "fail": RunStatus.failed,
        "cancel": RunStatus.cancelled,
        "ask": RunStatus.waiting,
    },
    RunStatus.completed: {"resume": RunStatus.running, "branch": RunStatus.running},
    RunStatus.failed: {"resume": RunStatus.running, "branch": RunStatus.running},
    RunStatus.cancelled: {"resume": RunStatus.running, "branch": RunStatus.running},
    RunStatus.waiting: {"answer": RunStatus.running, "cancel": RunStatus.cancelled, "branch": RunStatus.running},
}

TASK_MOVES: dict[TaskState, dict[str, TaskState]] = {
    TaskState.waiting: {"unlock": TaskState.queued, "continue": TaskState.running},
    TaskState.queued: {"claim": TaskState.running, "postpone": TaskState.delayed, "hold": TaskState.held},
    TaskState.running: {
        "commit": TaskState.committed,
        "release": TaskState.queued,
        "reap": TaskState.queued,
        "retry": TaskState.delayed,
        "fail": TaskState.failed,
        "hold": TaskState.held,
        "ask": TaskState.asked,
    },
    TaskState.asked: {"answer": TaskState.queued},
    TaskState.delayed: {"due": TaskState.queued, "hold": TaskState.held},
    TaskState.held: {"resume": TaskState.queued},
    TaskState.failed: {"resume": TaskState.queued},
    TaskState.committed: {},
}
