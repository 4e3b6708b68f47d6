"""A client, a worker and a supervisor in miniature, on a store under test: one call at a time, in this process."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.core import output as outputs
from runner.core.jobs import Claim, Job, Refusal
from runner.core.ledger import Counters
from runner.core.plan import Plan, PlannedTask, branching
from runner.core.plan.dependencies import NOTHING, ReadSet
from runner.core.plan.expansion import Expansion
from runner.engine.ports import Batches, ClaimedTask, Runs, Store, Workers
from runner.providers.records import Position

if TYPE_CHECKING:  # mypy holds both stores to their ports
    from runner.providers.memory.batches import MemoryBatches
    from runner.providers.memory.runs import MemoryRuns
    from runner.providers.memory.workers import MemoryWorkers
    from runner.providers.redis import batches, runs, workers

    _RUNS: tuple[type[Runs], ...] = (MemoryRuns, runs.Runs)
    _BATCHES: tuple[type[Batches], ...] = (MemoryBatches, batches.Batches)
    _WORKERS: tuple[type[Workers], ...] = (MemoryWorkers, workers.Workers)

QUEUE = "jobs"
LEASE = 5000  #: ms
KEEP = 7 * 24 * 3600 * 1000  #: ms
NOTHING_SERVED = Counters()


def plan_of(*tasks: str, crew: str = "a crew") -> Plan:
    """Build a plan from lines like ``"c: a b"``: c waits for a and b, and has their outputs as its context."""
    found = []
    for line in tasks:
        key, _, after = line.partition(":")
        found.append(PlannedTask(key, tuple(after.split()), tuple(after.split())))
    return Plan(crew, tuple(found))


class StoreDriver(ABC):
    """A client, worker and supervisor for tests: creates runs, takes jobs and performs them.

    A task's output tells which outputs it was made from. With ``envelope`` the store delivers a run's messages itself.
    """

    store: Store
    runs: Runs
    workers: Workers
    batches: Batches
    envelope: str

    def __init__(self) -> None:
        self._unclaimed: list[Job] = []
        for worker in ("w0", "w1"):
            self.workers.beat(worker, LEASE, "{}")

    @abstractmethod
    def receive(self) -> Job | None:
        """Take the oldest message. None if there is none."""

    @abstractmethod
    def go_on(self, ms: int) -> None:
        """Advance the store's time."""

    @abstractmethod
    def position(self, run_id: str, checkpoint: str | None, outputs: Sequence[str]) -> Position:
        """Return a checkpoint, or the newest position of the run's current branch."""

    @abstractmethod
    def leave(
        self, where: Position, name: str, *, rerun: frozenset[str], kept: frozenset[str], edits: Mapping[str, str]
    ) -> str:
        """Create a branch there. Returns "forked", or the reason why not."""

    # -- a client

    def submit(self, plan: Plan, run_id: str = "r-1", **options: str) -> str:
        """Create a run that keeps every checkpoint, unless the options say otherwise."""
        assert self.runs.create(run_id, plan, {**self.fields_of(plan), **options}) == "created"
        return run_id

    def begun(self, plan: Plan, **options: str) -> Claim:
        """Create a run, and claim the first task of its plan. Returns the claim."""
        self.submit(plan, **options)
        return self.take(first := plan.tasks[0].key)[first]

    def fields_of(self, plan: Plan) -> dict[str, str]:
        """Return the fields with which a run of this plan is created."""
        return {
            **{"crew": plan.crew, "adapter": "native", "bundle": "", "module": "crew", "attr": "crew"},
            **{"plan": plan.digest, "inputs": "{}", "queue": QUEUE, "keep": str(KEEP), "envelope": self.envelope},
            **{"checkpoint_on": ",task_completed,", "max_checkpoints": "0"},
        }

    def resume(self, run_id: str, branch: str = "main", **how: Any) -> str:
        """Resume a run."""
        how = {"start": None, "fields": {}, "plan": None, **how}
        return self.runs.resume(self.runs.get(run_id), branch, **how)

    def fork(self, run_id: str, name: str, edits: Mapping[str, str], checkpoint: str | None = None) -> str:
        """Create a branch on which some outputs are edited; tasks that used those run again."""
        where = self.position(run_id, checkpoint, list(edits))
        again = branching.invalidated(where.plan, where.used, frozenset(edits), frozenset())
        rerun = frozenset(where.plan.by_key.keys() - where.done.keys() | again)
        kept = rerun - again - branching.after(where.plan, frozenset(edits))
        texts = {task: outputs.dump(text, None) for task, text in edits.items()}
        return self.leave(where, name, rerun=rerun, kept=kept, edits=texts)

    def texts(self, run_id: str, branch: str = "main") -> dict[str, str]:
        """Return the committed outputs, by task."""
        return {key: output.raw for key, output in self.runs.committed(run_id, branch).items()}

    def states(self, run_id: str, branch: str = "main") -> dict[str, str]:
        """Return the tasks in flight and their states."""
        return {task.task: task.state for task in self.runs.in_flight(run_id, branch)}

    def event_log(self, run_id: str) -> list[tuple[str, str, int, int]]:
        """Return the events: type, task, and the sequence numbers of parent and start."""
        return [(e.type, e.fields.get("task", ""), e.parent, e.started) for e in self.runs.events(run_id)]

    # -- a worker

    def jobs(self) -> Iterator[Job]:
        """Take all messages, oldest first."""
        while (job := self._unclaimed.pop(0) if self._unclaimed else self.receive()) is not None:
            yield job

    def claim(self, job: Job, worker: str = "w0", process: str = "p0") -> Claim | Refusal:
        """Ask for the claim of a task."""
        return self.store.claim(job, worker=worker, process=process, unfit=())

    def take(self, *tasks: str, process: str = "p0") -> dict[str, Claim]:
        """Claim these tasks, or all that are queued. Messages of other tasks remain."""
        jobs = list(self.jobs())
        found = {job.task: self.claim(job, process=process) for job in jobs if job.task in tasks or not tasks}
        self._unclaimed = [job for job in jobs if job.task not in found]
        assert found.keys() >= set(tasks), f"{sorted(found)} are queued, not {sorted(tasks)}"
        return {key: one for key, one in found.items() if isinstance(one, Claim)}

    def task(self, claim: Claim) -> ClaimedTask:
        """Return the task that the claim is for."""
        return self.store.task(claim, None, None)

    def commit(
        self, claim: Claim, used: ReadSet = NOTHING, task: ClaimedTask | None = None, process: str = "", queue: str = ""
    ) -> str:
        """Perform the task.

        A ``process`` continues with a task that this makes ready, or else with one that waits in the ``queue``. Returns
        the branch's status after it.
        """
        job = claim.job
        text = f"{job.task}({', '.join(claim.context[key]['raw'] for key in sorted(claim.context))})"
        unlocks = self.runs.branch_plan(job.run_id, job.branch).dependents[job.task]
        writes = task or self.task(claim)
        how: dict[str, Any] = {"used": used, "process": process, "queue": queue}
        return writes.commit(outputs.dump(text, None), unlocks, replayed=NOTHING_SERVED, **how)

    def expand(
        self, claim: Claim, expansion: Expansion, version: str, task: ClaimedTask | None = None, process: str = ""
    ) -> bool:
        """Perform a task of a plan that grows. A ``process`` continues with a task that this makes ready."""
        writes = task or self.task(claim)
        return writes.expand(expansion, version, replayed=NOTHING_SERVED, used=NOTHING, process=process)

    def work(self) -> None:
        """Perform the tasks that are queued, and those that they unlock."""
        for job in self.jobs():
            claim = self.claim(job)
            if isinstance(claim, Claim):
                self.commit(claim)


def seen(driver: StoreDriver) -> Any:
    """Return everything that is stored of a run: status, outputs, tasks in flight, ledger, checkpoints."""
    return (
        driver.runs.get("r-1"),
        driver.runs.branch("r-1", "main"),
        driver.runs.committed("r-1", "main"),
        driver.runs.in_flight("r-1", "main"),
        driver.runs.checkpoints("r-1", "main"),
        driver.runs.ledger("r-1"),
        driver.workers.move_due(),
    )
