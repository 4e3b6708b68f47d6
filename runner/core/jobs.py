"""What a store gives a worker: a job, the claim on its task with all that is needed to do it, or why not."""

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from runner.core.plan import THREAD


def ref(run_id: str, branch: str, task: str) -> str:
    """A job as one string, as indexes and claims name it. Run ids and branch names hold no ``|``."""
    return f"{run_id}|{branch}|{task}"


def queue_for(queue: str, pool: str | None) -> str:
    """The queue of a task with this `PlannedTask.pool`: those that mostly wait have one beside that of the others."""
    return re.sub("^runner:p", "runner:t", queue) if pool == THREAD else queue


@dataclass(frozen=True, slots=True)
class Job:
    """One Celery message: do this task of this branch of this run, attempt n."""

    run_id: str
    branch: str
    task: str
    attempt: int

    @property
    def ref(self) -> str:
        """The job as one string."""
        return ref(self.run_id, self.branch, self.task)

    @property
    def message_id(self) -> str:
        """The id of its message: a long branch name stands in it by its hash, as in `send.lua`."""
        long = len(self.branch.encode()) > 12
        branch = hashlib.sha1(self.branch.encode(), usedforsecurity=False).hexdigest()[:8] if long else self.branch
        return f"{self.run_id}.{branch}.{self.task}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a claim stands among the run's events: their sequences, 0 for none."""

    branch: int  #: the start of the branch
    task: int  #: the start of the task: of its first claim
    claim: int  #: this claim's own event
    first: bool  #: whether no task of the branch was claimed since the branch's start
    triggers: frozenset[str] = frozenset()  #: the events at which the run wants checkpoints
    agent: int = 0  #: the start of the task's agent, where it was at work when the task was handed on
    opens: bool = (
        False  #: whether the task is the first that was ever claimed on the branch, also if that claim is gone
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to one task, and what came with it. Every write shows ``token``."""

    job: Job
    worker: str
    token: int
    failures: int  #: attempts that failed since the branch was last resumed
    failed: int  #: and since ever
    adapter: str
    inputs: dict[str, Any]
    rerun_mask: str
    plan_digest: str
    crew: str
    scope: Scope
    recorded: dict[str, str]
    context: dict[str, dict[str, Any]] = field(default_factory=dict)
    bundle: str = ""
    module: str = ""
    attr: str = ""
    standin: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job could not be claimed: another worker holds it, it is done, or its branch is over."""

    reason: str
