"""The values that a store gives a worker: a job, the claim on its task with all data to perform it, or a refusal."""

import hashlib
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

_NAMESPACE = uuid.UUID("5f1e1f0c-6b0e-4c58-9a3e-0f2b6a1d7c43")
_BEGUN = hashlib.sha1(_NAMESPACE.bytes, usedforsecurity=False)


def ref(run_id: str, branch: str, task: str) -> str:
    """Return a job as one string, as indexes and claims name it. Run ids and branch names never contain ``|``."""
    return f"{run_id}|{branch}|{task}"


class Job(NamedTuple):  # as the two others: of a frozen dataclass, each field is set by a call
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
        """The id of its message, in which a long branch name is replaced by its hash, as in `send.lua`."""
        long = len(self.branch.encode()) > 12
        branch = hashlib.sha1(self.branch.encode(), usedforsecurity=False).hexdigest()[:8] if long else self.branch
        return f"{self.run_id}.{branch}.{self.task}.{self.attempt}"


class Scope(NamedTuple):
    """The position of a claim among the run's events: their sequence numbers, 0 for none."""

    branch: int  #: the start of the branch
    task: int  #: the start of the task: of its first claim
    claim: int  #: this claim's own event
    first: bool  #: whether no task of the branch was claimed since the branch's start
    triggers: frozenset[str] = frozenset()  #: the events at which the run wants checkpoints
    agent: int = 0  #: the start of the task's agent, where it was at work when the task was handed on
    opens: bool = (
        False  #: whether the task is the first that was ever claimed on the branch, also if that claim is gone
    )


@lru_cache(maxsize=16)  # each claim asks
@lru_cache(maxsize=256)  # one for all tasks that wait
def within_tasks(triggers: frozenset[str]) -> bool:
    """Whether some of these events come within a task: a checkpoint that is written there points into its journal."""
    return not all(one.startswith(("task_", "crew_", "flow_", "SIG")) for one in triggers)


@lru_cache(maxsize=256)  # a task names its relatives in each of its events
def event_id_of(run_id: str, number: int) -> str | None:
    """Return the id of the event with this number; None for number 0, which means no event.

    It equals ``uuid.uuid5(_NAMESPACE, f"{run_id}/{number}")``, at a third of the cost.
    """
    if number <= 0:
        return None
    digest = _BEGUN.copy()
    digest.update(f"{run_id}/{number}".encode())
    found = digest.hexdigest()
    variant = "89ab"[int(found[16], 16) & 3]
    return f"{found[:8]}-{found[8:12]}-5{found[13:16]}-{variant}{found[17:20]}-{found[20:32]}"


class Claim(NamedTuple):
    """The exclusive right to one task, with the data to perform it. ``token`` is the fencing token of every write."""

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
    context: dict[str, dict[str, Any]]
    bundle: str = ""
    module: str = ""
    attr: str = ""
    standin: str = ""
    #: the run's inputs, and those that differ on the branch, as JSON: those of its next task are made of them
    stored_inputs: tuple[str, str] = ("{}", "")
    like: str = ""  #: a digest of all that its run does not have for itself, if this is the first that happens to it


ANY = "*"  #: a process that takes whatever environment a run asks for


@dataclass(frozen=True, slots=True)
class Needed:
    """The environment that a run asks for: its digest, the crew file in the bundle, and the code's hash."""

    digest: str
    file: str
    bundle: str
    module: str
    attr: str
    adapter: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job cannot be claimed: another worker has it, its task is committed, or its branch is over.

    ``needed`` is the environment that its run asks for, if this process is another one.
    """

    reason: str
    needed: Needed | None = None
