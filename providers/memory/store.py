"""A store in the memory of one process, behind the engine's `Store` port."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from runner.core.clock import SYSTEM, Clock
from runner.core.errors import no_run
from runner.core.jobs import ANY, Claim, Job, Needed, Refusal
from runner.core.output import TaskOutput
from runner.core.states import TaskState
from runner.journal.acknowledged_writes import Log
from runner.journal.rate_limit import RateLimiter
from runner.providers.memory import transitions
from runner.providers.memory.batches import MemoryBatches
from runner.providers.memory.claims import given, take
from runner.providers.memory.reading import GrowingBranch
from runner.providers.memory.runs import MemoryRuns
from runner.providers.memory.state import Memory, atomic
from runner.providers.memory.task import MemoryTask
from runner.providers.memory.workers import MemoryWorkers

NOT_FIT_MS = 1000  #: after which a job that its worker cannot do comes again, to others


@atomic
class MemoryStore:
    """A `runner.engine.ports.Store` for one process and any number of its threads.

    ``runs`` is what clients ask, ``workers`` what keeps workers alive to each other. Every lease,
    delay and lifetime goes by the ``clock``, in whole milliseconds.
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self.id = f"memory-{uuid.uuid4().hex}"
        self._memory = self.memory = Memory(clock)
        self.runs = runs = MemoryRuns(self._memory)
        self.plan, self.files_left, self.parent, self.existing = runs.plan, runs.files_left, runs.parent, runs.existing
        self.bundle, self.drop_bundle = runs.bundle, runs.drop_bundle
        self.workers = MemoryWorkers(self._memory)
        self.batches = MemoryBatches(self._memory, self.runs)

    # -- claims

    def claim(
        self,
        job: Job,
        *,
        worker: str,
        process: str,
        unfit: Iterable[str] = (),
        environments: str = ANY,
        nonce: str = "",
    ) -> Claim | Refusal:
        """Take the job's task if it is free; one of an ``unfit`` adapter is left to others.

        With a ``nonce``, who did not hear the answer can ask again: what was given stands.
        """
        branch, memory = self._memory.branch(job.run_id, job.branch), self._memory
        if branch is None:
            return Refusal("gone")
        task, fields = branch.tasks.get(job.task), branch.run.fields
        if task is not None and task.state is TaskState.running and nonce and task.nonce == nonce:
            return given(task)
        if not branch.is_active:
            return Refusal(branch.status.value)
        if task is None or task.state is not TaskState.queued or task.attempt != job.attempt:
            return Refusal("taken")
        if worker not in memory.workers:
            return Refusal("unregistered")
        if fields.get("adapter", "") in unfit:
            task.state = TaskState.delayed
            memory.queued.pop(task.place, None)
            memory.due[task.place] = memory.now() + NOT_FIT_MS
            return Refusal("unfit")
        digest, _, file = fields.get("environment", "").partition(" ")
        if digest and environments != ANY and f",{digest}," not in environments:
            code = (fields.get(name, "") for name in ("bundle", "module", "attr", "adapter"))
            return Refusal("environment", Needed(digest, file, *code))
        take(task, worker=worker, process=process, nonce=nonce or uuid.uuid4().hex)
        return given(task)

    def return_job(self, job: Job) -> None:
        """Send a received job on, unclaimed, for another worker to take."""
        task = self._memory.task(job.run_id, job.branch, job.task)
        if task is not None and task.state is TaskState.queued and task.attempt == job.attempt:
            transitions.send(task)

    def holds(self, claim: Claim) -> bool:
        """Whether the claim still holds."""
        return self._memory.held((claim.job.run_id, claim.job.branch, claim.job.task), claim.token) is not None

    def mark(self, job: Job, trigger: str) -> None:
        """Write a checkpoint of the branch that the task is on, if its run asked for one at this trigger."""
        branch = self._memory.branch(job.run_id, job.branch)
        if branch is not None and branch.is_active:
            transitions.checkpoint(branch, trigger, job.task)

    def task(self, claim: Claim, sent: Callable[[str], None] | None = None, log: Log | None = None) -> MemoryTask:
        """The task under its claim. ``sent`` is told which calls have left, ``log`` what was acknowledged."""
        return MemoryTask(self._memory, claim, sent, log)

    # -- what tasks read

    def branch(self, run_id: str, branch: str) -> GrowingBranch:
        """Return a branch, for reading."""
        return GrowingBranch(self.runs, self._memory, run_id, branch)

    def pacer(self, run_id: str) -> RateLimiter:
        """Counts the run's calls of models."""
        run = self._memory.run(run_id)
        if run is None:
            raise no_run(run_id)
        if run.pace is None:
            run.pace = RateLimiter(clock=self._memory.clock)
        return run.pace

    def signature(self, run_id: str) -> str:
        """Return the signature of the run's code; "" for none."""
        return self.runs.field(run_id, "signature")

    def outputs(self, run_id: str, branch: str, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """The outputs of those of these tasks that are committed on the branch."""
        found = self.runs.outputs_of(run_id, branch, keys)
        return {key: output.as_task_output(key) for key, output in found.items()}
