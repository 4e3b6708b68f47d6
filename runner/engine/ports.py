"""The engine's ports: the store of runs, a task held in it, the broker and the clock.

A store has three sides: `Store` for workers that perform tasks, `Runs` for clients, `Workers` for leases and
deliveries.

The engine names no implementation: Redis is one store (`runner.providers.redis.store`), Celery reaches the brokers
(`runner.tasks.broker`), the system's is one clock. The code that starts the engine provides them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Unpack

from runner.core.clock import Clock as Clock
from runner.core.jobs import ANY, Claim, Job, Refusal
from runner.core.ledger import Counters, LedgerRow
from runner.core.output import TaskOutput
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Branch, Expansion
from runner.core.states import RunStatus
from runner.journal.acknowledged_writes import Log
from runner.journal.rate_limit import Pacer
from runner.journal.recorder import Recorder
from runner.providers.records import (
    Beat,
    BranchRecord,
    CheckpointRecord,
    Committed,
    DeferredEvent,
    Ending,
    Event,
    EventDetails,
    HeldClaim,
    InFlight,
    NewRun,
    Question,
    RunRecord,
)


class ClaimedTask(Recorder, Protocol):
    """A task under a claim. Every write carries the fencing token, and raises `ClaimLost` if the claim no longer holds.

    ``end_events`` are the sequence numbers of the events that ended the task and its branch, 0 if there is none.
    ``next`` is the claim that came with its commit, for the same process.
    """

    end_events: tuple[int, int]
    next: Claim | None

    def note(self, kind: str, text: str) -> None:
        """Append a line to the run's events."""

    def append_event(self, kind: str, about: str, *, trigger: str = "", **details: Unpack[EventDetails]) -> int:
        """Append an event of the task's code to the run's events, after those of `defer_event`.

        Returns its sequence number.
        """

    def defer_event(self, kind: str, about: str, **details: Unpack[EventDetails]) -> DeferredEvent:
        """Append an event whose sequence number is not needed yet.

        It is sent with the task's next write, or soon by itself; the task does not end without it. If the claim is
        lost, the next write raises that.
        """

    def commit(self, output: str, unlocks: Iterable[PlannedTask], **how: Unpack[Ending]) -> str:
        """End the task with its output, a JSON object. Returns the branch's status afterwards.

        Of the tasks that become ready, the first is claimed for this ``process`` of the claim's worker in the same
        operation, and is ``next``; the others are sent. Without a process, or if it cannot be claimed, all are sent. If
        none becomes ready, the oldest job of this ``queue`` is claimed, if it belongs to another run of the same
        adapter.
        """

    def expand(self, expansion: Expansion, version: str, **how: Unpack[Ending]) -> bool:
        """End a task of a dynamic plan. Returns False, with nothing done, if the shared texts have another version."""

    def ask(self, step: str, question: str, *, replayed: Counters) -> None:
        """Hand the task back until a person has answered; ``step`` is the answer's place in its journal."""

    def release(self, *, replayed: Counters) -> None:
        """Hand the task back, to run elsewhere at once."""

    def retry(self, delay: float, reason: str, *, replayed: Counters, trace: str = "") -> None:
        """Hand the task back, to run again after ``delay`` seconds."""

    def fail(self, reason: str, *, replayed: Counters, trace: str = "") -> None:
        """Fail the task for good, and with it the branch."""


class Store(Protocol):
    """The runs, as a worker that performs their tasks needs them. A store waits out its own outages.

    ``id`` names the store in paths on this machine: without a password, and the same for each process that uses it.
    """

    id: str

    def claim(
        self, job: Job, *, worker: str, process: str, unfit: Iterable[str], environments: str = ANY
    ) -> Claim | Refusal:
        """Claim the job's task if it is free; tasks of an ``unfit`` adapter are left to other workers.

        ``environments``: the digests of those that this process provides, separated and enclosed by commas; `ANY` for
        all. A job for another one stays queued, and the caller has to send it on.
        """

    def return_job(self, job: Job) -> None:
        """Return a received job unclaimed, for another worker."""

    def task(self, claim: Claim, sent: Callable[[str], None] | None, log: Log | None) -> ClaimedTask:
        """Return the task under its claim. ``sent`` records which calls were sent, ``log`` the acknowledged writes."""

    def branch(self, run_id: str, branch: str) -> Branch:
        """Return a branch, for reading."""

    def pacer(self, run_id: str) -> Pacer:
        """Return the rate limiter that all workers of a run share."""

    def signature(self, run_id: str) -> str:
        """Return the signature of the run's code; "" for none."""

    def plan(self, run_id: str) -> Plan:
        """Return the run's plan. Raises `NotFound`."""

    def outputs(self, run_id: str, branch: str, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """Return the outputs of the committed ones among these tasks."""

    def files_left(self, run_id: str, branch: str) -> Sequence[Mapping[str, Any]]:
        """Return the files that the committed tasks of a branch left, oldest first."""

    def parent(self, run_id: str, branch: str) -> str:
        """Return the parent of a branch; "" for none."""

    def existing(self, run_ids: Sequence[str]) -> Collection[str]:
        """Return those of these runs that exist."""

    def bundle(self, sha: str) -> bytes:
        """Return a bundle's data. Raises `NotFound`."""

    def drop_bundle(self, sha: str, damaged: bytes) -> bool:
        """Remove a bundle's data if it is the damaged data. Returns whether it was."""


class Runs(Protocol):
    """The runs of a store, for clients."""

    def put_bundle(self, sha: str, data: bytes | None) -> bool:
        """Store a bundle, or with ``data=None`` check for it. Returns whether it is stored now."""

    def create(self, run_id: str, plan: Plan, fields: dict[str, str]) -> str:
        """Accept a run. Returns "created", "exists" or "no bundle"."""

    def get(self, run_id: str) -> RunRecord:
        """Return the run. Raises `NotFound`."""

    def branch(self, run_id: str, name: str) -> BranchRecord:
        """Return one branch. Raises `NotFound`."""

    def branch_plan(self, run_id: str, branch: str) -> Plan:
        """Return the part of the run's plan that a branch runs itself."""

    def committed(self, run_id: str, branch: str, upto: int | None = None) -> dict[str, Committed]:
        """Return the outputs that are visible on a branch, by task."""

    def in_flight(self, run_id: str, branch: str) -> list[InFlight]:
        """Return the tasks that are neither waiting nor committed."""

    def checkpoints(self, run_id: str, branch: str) -> list[CheckpointRecord]:
        """Return the checkpoints of a branch, oldest first."""

    def events(self, run_id: str, after: str = "0", block_ms: int | None = None) -> Iterator[Event]:
        """Return the events after an id."""

    def ledger(self, run_id: str) -> list[LedgerRow]:
        """Return the run's model calls."""

    def tools(self, run_id: str) -> dict[str, dict[str, int]]:
        """Return the counts of each tool's calls (paid, replayed, in_doubt), by its name."""

    def questions(self, run_id: str, branch: str) -> list[Question]:
        """Return the open questions."""

    def answer(self, run_id: str, branch: str, question: Question, text: str) -> str:
        """Store the answer, in the form of the journal.

        Returns "answered", or why not: "gone", "not asked", "changed" (it is another question by now) or the branch's
        status, if that is over.
        """

    def cancel(self, run_id: str, reason: str, branch: str | None = None) -> str:
        """Cancel all branches that run or wait, or only the named one.

        Returns "running" or "waiting" if something was stopped; else the status of the run, or of the branch, or
        "gone".
        """

    def prune(self, run_id: str, branch: str, keep: int) -> int:
        """Keep the newest checkpoints. Returns how many were removed."""

    def resume(
        self,
        run: RunRecord,
        branch: str,
        *,
        start: CheckpointRecord | None,
        fields: dict[str, str],
        plan: Plan | None,
        pending: Sequence[PlannedTask] | None = None,
    ) -> str:
        """Resume a run: on ``branch`` as it is, or on a new ``branch`` from checkpoint ``start``.

        ``plan`` is the new one if the code changed; ``pending`` are the tasks to run in a dynamic plan. Returns
        "resumed", "changed" (another client moved it), "taken", "busy" (the code changed while some branch runs) or "no
        bundle". Raises `Conflict` if all tasks are committed.
        """


class Batches(Protocol):
    """Runs of one plan that are submitted together, for clients."""

    def create(
        self, batch: str, plan: Plan, fields: dict[str, str], runs: Sequence[NewRun], total: int | None = None
    ) -> list[str]:
        """Accept runs of one plan, all or none.

        ``fields`` are what they share; ``total`` is how many there will be, if known. Returns for each "created",
        "exists", "taken" if its id is another run's, or "stopped" if it is new and the batch accepts no more (`stop`);
        or ["no bundle"] for all.
        """

    def stop(self, batch: str, reason: str) -> bool:
        """Refuse new runs of a batch from now on, for a reason; "" accepts them again.

        Returns whether there is such a batch.
        """

    def about(self, batch: str) -> tuple[int | None, str]:
        """Return how many runs it is to have, None if unknown, and why it refuses new ones; "" if it accepts them."""

    def runs(self, batch: str, after: int = 0, limit: int = 500) -> list[tuple[int, str]]:
        """Return its runs by number, starting after ``after``."""

    def last_ended(self, batch: str) -> str:
        """Return the current end of the list of ended runs."""

    def ended(self, batch: str, after: str, block_ms: int) -> tuple[list[str], str]:
        """Return the runs that ended since ``after``, and the list's new end; wait up to ``block_ms`` for the first."""

    def statuses(self, run_ids: Sequence[str]) -> list[RunStatus | None]:
        """Return the statuses of these runs; None for one that does not exist."""


class Workers(Protocol):
    """The workers of a store, their leases and deliveries, for workers and supervisors."""

    def beat(self, worker: str, lease_ms: int, about: str = "") -> Beat:
        """Renew a lease; with ``about``, register."""

    def reap(
        self,
        worker: str,
        *,
        reason: str,
        max_attempts: int,
        process: str = "",
        about: str = "",
        only_lapsed: bool = False,
        out: Mapping[str, str] | None = None,
        max_handovers: int = 0,
    ) -> list[Job]:
        """Take back the claims of a dead worker, or of one of its processes. Returns the jobs that are interrupted.

        ``out`` are the marks that its dead processes left: calls that were never sent are not in doubt. With
        ``max_handovers`` the worker was asked to end: its tasks are handed over as on release, at most so often in a
        row without progress. If the worker has registered again since ``about`` was read, nothing happens.
        """

    def take_back(self, worker: str, claim: HeldClaim, *, reason: str, max_handovers: int) -> bool:
        """Take back one claim of a living worker."""

    def move_due(self, limit: int = 500) -> int:
        """Send the tasks whose retry delay is over."""

    def redeliver(self, older_ms: int, limit: int = 100, depth: Callable[[str], int | None] | None = None) -> int:
        """Send again the unclaimed jobs whose queue is empty; returns how many.

        ``depth`` returns the number of messages in a queue of another broker, or None if unknown; then they are sent.
        Each unneeded copy to another broker doubles the time to the next.
        """

    def outbox(self, limit: int = 500) -> list[Job]:
        """Return jobs whose messages the store does not deliver itself, oldest first, for a `Broker`."""

    def sent(self, job: Job) -> None:
        """A job from the outbox was passed to the broker."""


class Broker(Protocol):
    """Carries jobs to workers if the store does not deliver them itself. It may lose and repeat them."""

    def send(self, job: Job, queue: str) -> None:
        """Send a job to a queue. Raises what its transport raises."""

    def depth(self, queue: str) -> int | None:
        """Return the number of messages in a queue; 0 if there is no such queue, None if the broker does not answer."""

    def report_lost(self, worker: str, jobs: Sequence[Job], reason: str) -> None:
        """Report to whoever watches the fleet that a worker is gone, and these jobs with it. Raises nothing.

        ``worker`` is its name as the broker knows it. A worker that is gone cannot say so itself.
        """
