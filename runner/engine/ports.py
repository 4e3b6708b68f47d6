"""The engine's ports: the store of runs, a task held in it, the broker and the clock.

A store has three sides: `Store` for what performs tasks, `Runs` for clients, `Workers` for who sees that jobs are done.

The engine names none of them. Redis is one store (`runner.providers.redis.store`), Celery reaches the brokers
(`runner.tasks.broker`), the system's is one clock; who starts the engine gives it what it needs.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from runner.core.clock import Clock as Clock
from runner.core.jobs import ANY, Claim, Job, Refusal
from runner.core.ledger import Counters, LedgerRow
from runner.core.output import TaskOutput
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.dependencies import ReadSet
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
    Event,
    HeldClaim,
    InFlight,
    NewRun,
    Question,
    RunRecord,
    ToldEvent,
)


class ClaimedTask(Recorder, Protocol):
    """One task under a claim. Every write shows the fencing token, and raises `ClaimLost` if the claim no longer holds.

    ``end_events`` are the sequences of the events that ended the task and, with it, its branch; 0 where it did not.
    ``next`` is the claim that came with its commit, for the process that was to continue.
    """

    end_events: tuple[int, int]
    next: Claim | None

    def note(self, kind: str, text: str) -> None:
        """Put a line among the run's events."""

    def append_event(
        self,
        kind: str,
        about: str,
        *,
        more: Mapping[str, Any] | None = None,
        parent: int | ToldEvent = 0,
        started: int | ToldEvent = 0,
        cause: int | ToldEvent = 0,
        ends: str = "",
        trigger: str = "",
    ) -> int:
        """Put an event of the task's code among the run's, after those that were told. Returns its sequence."""

    def tell_event(
        self,
        kind: str,
        about: str,
        *,
        more: Mapping[str, Any] | None = None,
        parent: int | ToldEvent = 0,
        started: int | ToldEvent = 0,
        cause: int | ToldEvent = 0,
        ends: str = "",
    ) -> ToldEvent:
        """The same of one whose sequence is not needed yet. It goes with the task's next write, or by itself
        soon; the task does not end without it. Where the claim is lost, the next write says so."""

    def commit(
        self,
        output: str,
        unlocks: Iterable[PlannedTask],
        *,
        replayed: Counters,
        used: ReadSet,
        ms: int | None = None,
        process: str = "",
        queue: str = "",
    ) -> str:
        """End the task with its output, a JSON object. Returns the branch's status after it.

        Of the tasks that become ready, the first is claimed for this ``process`` of the claim's worker, in the same
        step, and is ``next``; the others are sent. Without a process, or where that may not claim, all are sent. If
        none becomes ready, the oldest job of this ``queue`` is claimed, if it is another run's of the same adapter.
        """

    def expand(
        self,
        expansion: Expansion,
        version: str,
        *,
        replayed: Counters,
        used: ReadSet,
        ms: int | None = None,
        process: str = "",
        queue: str = "",
    ) -> bool:
        """End a task of a plan that grows. False if the shared texts are of another version: nothing was done."""

    def ask(self, step: str, question: str, *, replayed: Counters) -> None:
        """Hand the task back until a person has answered; ``step`` of its journal is where the answer belongs."""

    def release(self, *, replayed: Counters) -> None:
        """Hand the task back, to run elsewhere at once."""

    def retry(self, delay: float, reason: str, *, replayed: Counters, trace: str = "") -> None:
        """Hand the task back, to run again after ``delay`` seconds."""

    def fail(self, reason: str, *, replayed: Counters, trace: str = "") -> None:
        """Fail the task for good, and with it the branch."""


class Store(Protocol):
    """Where runs are kept, as a worker that does their tasks needs it. What it raises for an outage passes by waiting:
    a store waits itself.

    ``id`` names the store in paths on this machine: without a password, the same for each process that uses it.
    """

    id: str

    def claim(
        self, job: Job, *, worker: str, process: str, unfit: Iterable[str], environments: str = ANY
    ) -> Claim | Refusal:
        """Take the job's task if it is free; one of an ``unfit`` adapter is left to others.

        ``environments``: the digests of those that this process is, with commas around; `ANY` for whatever a run asks
        for. The job of another stays queued, and is the caller's to send on.
        """

    def return_job(self, job: Job) -> None:
        """Send a received job on, unclaimed, for another worker to take."""

    def task(self, claim: Claim, sent: Callable[[str], None] | None, log: Log | None) -> ClaimedTask:
        """The task under its claim. ``sent`` is told which calls have left, ``log`` what was acknowledged."""

    def branch(self, run_id: str, branch: str) -> Branch:
        """A branch, to read."""

    def pacer(self, run_id: str) -> Pacer:
        """Counts the run's calls of models for all its workers together."""

    def signature(self, run_id: str) -> str:
        """What signs the run's code; "" for nothing."""

    def plan(self, run_id: str) -> Plan:
        """The run's plan. Raises `NotFound`."""

    def outputs(self, run_id: str, branch: str, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """The outputs of those of these tasks that are committed on the branch."""

    def files_left(self, run_id: str, branch: str) -> Sequence[Mapping[str, Any]]:
        """The files that the committed tasks of a branch left, oldest first."""

    def parent(self, run_id: str, branch: str) -> str:
        """The branch that this one left; "" for none."""

    def existing(self, run_ids: Sequence[str]) -> Collection[str]:
        """Those of these runs that the store has."""

    def bundle(self, sha: str) -> bytes:
        """A bundle's data. Raises `NotFound`."""

    def drop_bundle(self, sha: str, damaged: bytes) -> bool:
        """Forget a bundle's data, if that is what is stored. Returns whether it was."""


class Runs(Protocol):
    """The runs of a store, as clients ask for them."""

    def put_bundle(self, sha: str, data: bytes | None) -> bool:
        """Store a bundle, or with ``data=None`` ask if it is there. Returns whether it is there now."""

    def create(self, run_id: str, plan: Plan, fields: dict[str, str]) -> str:
        """Accept a run. Returns "created", "exists" or "no bundle"."""

    def get(self, run_id: str) -> RunRecord:
        """The run. Raises `NotFound`."""

    def branch(self, run_id: str, name: str) -> BranchRecord:
        """One branch. Raises `NotFound`."""

    def branch_plan(self, run_id: str, branch: str) -> Plan:
        """What a branch does of the run's plan."""

    def committed(self, run_id: str, branch: str, upto: int | None = None) -> dict[str, Committed]:
        """The outputs that are seen on a branch, by task."""

    def in_flight(self, run_id: str, branch: str) -> list[InFlight]:
        """The tasks between waiting and committed."""

    def checkpoints(self, run_id: str, branch: str) -> list[CheckpointRecord]:
        """The checkpoints a branch keeps, oldest first."""

    def events(self, run_id: str, after: str = "0", block_ms: int | None = None) -> Iterator[Event]:
        """The events after an id."""

    def ledger(self, run_id: str) -> list[LedgerRow]:
        """The run's calls of models."""

    def tools(self, run_id: str) -> dict[str, dict[str, int]]:
        """How often each tool was used (paid, replayed, in_doubt), by its name."""

    def questions(self, run_id: str, branch: str) -> list[Question]:
        """The questions that are not answered yet."""

    def answer(self, run_id: str, branch: str, question: Question, text: str) -> str:
        """Give the answer, as it is to stand in the journal.

        Returns "answered", or why not: "gone", "not asked", "changed" (it is another question by now) or the branch's
        status, if that is over.
        """

    def cancel(self, run_id: str, reason: str, branch: str | None = None) -> str:
        """Cancel every branch that runs or waits, or the named one alone.

        Returns "running" or "waiting" if something was stopped; else how the run, or the branch, stands, or "gone".
        """

    def prune(self, run_id: str, branch: str, keep: int) -> int:
        """Keep the newest checkpoints. Returns how many went."""

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
        """Resume a run: on ``branch`` as it stands, or on a new ``branch`` from checkpoint ``start``.

        ``plan`` is a new one, where the code changed; ``pending`` are the tasks to run where the plan grows. Returns
        "resumed", "changed" (another client moved it), "taken", "busy" (the code changed while some
        branch runs) or "no bundle". Raises `Conflict` if all is done.
        """


class Batches(Protocol):
    """Runs of one plan that are submitted together, as clients ask for them."""

    def create(self, batch: str, plan: Plan, fields: dict[str, str], runs: Sequence[NewRun]) -> list[str]:
        """Accept runs of one plan, all of them or none; ``fields`` are what they share.

        Returns for each "created", "exists", or "taken" where its id is another run's; or ["no bundle"] for all.
        """

    def runs(self, batch: str, after: int = 0, limit: int = 500) -> list[tuple[int, str]]:
        """Its runs by their numbers, from the one that follows ``after``."""

    def last_ended(self, batch: str) -> str:
        """Where the list of those that are over ends now."""

    def ended(self, batch: str, after: str, block_ms: int) -> tuple[list[str], str]:
        """The runs that were over since ``after``, and where the list ends now; waits that long for the first."""

    def statuses(self, run_ids: Sequence[str]) -> list[RunStatus | None]:
        """How these runs stand; None for one that is gone."""


class Workers(Protocol):
    """The workers of a store, their leases and the jobs on their way, as workers and supervisors ask for them."""

    def beat(self, worker: str, lease_ms: int, about: str = "") -> Beat:
        """Prolong a lease; with ``about``, register."""

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
    ) -> list[str]:
        """Take back the claims of a dead worker, or of one process of it. Returns their references.

        ``out`` is what processes that died had said of their calls: those that never left are in no doubt. With
        ``max_handovers`` the worker was asked to end: its tasks are handed over as when they are released, so often in
        a row without progress. Where it registered again since it was judged by what it said ``about`` itself, the
        judgement is void.
        """

    def take_back(self, worker: str, claim: HeldClaim, *, reason: str, max_handovers: int) -> bool:
        """Hand back one claim of a worker that lives."""

    def move_due(self, limit: int = 500) -> int:
        """Send the tasks whose next attempt has come."""

    def redeliver(self, older_ms: int, limit: int = 100, depth: Callable[[str], int | None] | None = None) -> int:
        """Send again the unclaimed jobs whose queue is empty; returns how many.

        ``depth`` tells how many messages wait in a queue of another broker, or None where it cannot; then they are
        sent. Each copy that another broker did not need doubles the time to the next.
        """

    def outbox(self, limit: int = 500) -> list[Job]:
        """Jobs of runs whose messages the store does not deliver itself, oldest first: for a `Broker`."""

    def sent(self, job: Job) -> None:
        """A job from the outbox was handed to the broker."""


class Broker(Protocol):
    """What carries jobs to workers where the store does not deliver them itself. It may lose and repeat them."""

    def send(self, job: Job, queue: str) -> None:
        """Hand a job on to whoever takes from this queue. Raises what its transport raises where it cannot."""

    def depth(self, queue: str) -> int | None:
        """How many messages wait in a queue; 0 where there is none of this name, None where it does not answer."""
