"""Runs in the memory of one process, behind the port that the engine knows."""

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from runner.core.clock import SYSTEM, Clock
from runner.core.errors import NotFound
from runner.core.jobs import Claim, Job, Refusal, Scope
from runner.core.output import TaskOutput
from runner.core.plan import Plan
from runner.core.states import RunStatus, TaskState
from runner.journal.acknowledged import Log
from runner.journal.rate_limit import RateLimiter
from runner.providers.memory import transitions
from runner.providers.memory.events import AGENT, Relatives, emit
from runner.providers.memory.reading import GrowingBranch
from runner.providers.memory.runs import MemoryRuns
from runner.providers.memory.state import Memory, Run, Task, atomic
from runner.providers.memory.task import MemoryTask
from runner.providers.memory.workers import MemoryWorkers
from runner.providers.records import HeldClaim

NOT_FIT_MS = 1000  #: after which a job that its worker cannot do comes again, to others


class MemoryStore:
    """A `runner.engine.ports.Store` for one process and any number of its threads.

    ``runs`` is what clients ask, ``workers`` what keeps workers alive to each other. Every lease,
    delay and lifetime goes by the ``clock``, in whole milliseconds.
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self.id = f"memory-{uuid.uuid4().hex}"
        self._memory = self.memory = Memory(clock)
        self.runs = MemoryRuns(self._memory)
        self.workers = MemoryWorkers(self._memory)

    # -- claims

    @atomic
    def claim(
        self, job: Job, *, worker: str, process: str, unfit: Iterable[str] = (), nonce: str = ""
    ) -> Claim | Refusal:
        """Take the job's task if it is free; one of an ``unfit`` adapter is left to others.

        With a ``nonce``, who did not hear the answer can ask again: what was given stands.
        """
        run = self._memory.run(job.run_id)
        branch = run.branches.get(job.branch) if run is not None else None
        if run is None or branch is None:
            return Refusal("gone")
        task = branch.tasks.get(job.task)
        if task is not None and task.state is TaskState.running and nonce and task.nonce == nonce:
            return self._given(run, job, task)
        if branch.status is not RunStatus.running:
            return Refusal(branch.status.value)
        if task is None or task.state is not TaskState.queued or task.attempt != job.attempt:
            return Refusal("taken")
        if worker not in self._memory.workers:
            return Refusal("unregistered")
        place = (job.run_id, job.branch, job.task)
        if run.fields.get("adapter", "") in unfit:
            task.state = TaskState.delayed
            self._memory.queued.pop(place, None)
            self._memory.due[place] = self._memory.now() + NOT_FIT_MS
            return Refusal("unfit")
        self._take(run, job, task, worker, process, nonce or uuid.uuid4().hex)
        return self._given(run, job, task)

    def _take(self, run: Run, job: Job, task: Task, worker: str, process: str, nonce: str) -> None:
        """The fencing token only goes up, as Redis' does, for which the run's age in microseconds is the least."""
        branch, at, place = run.branches[job.branch], self._memory.now(), (job.run_id, job.branch, job.task)
        run.token = max(run.token + 1, (at - run.created_at) * 1000)
        task.state, task.token, task.worker, task.process, task.nonce = (
            *(TaskState.running, run.token, worker),
            *(process, nonce),
        )
        self._memory.queued.pop(place, None)
        deadline = at + int(task.timeout * 1000) if task.timeout else 0
        self._memory.claims[worker][place] = HeldClaim(job.ref, run.token, process, deadline)
        about = {"attempt": job.attempt, "worker": worker, "token": run.token}
        if task.started:
            task.claimed = emit(
                self._memory, run, "task_resumed", job.branch, job.task, Relatives(task.started), **about
            )
            return
        task.scope, task.began = branch.scope, at
        task.started = emit(self._memory, run, "task_started", job.branch, job.task, Relatives(branch.scope), **about)
        task.claimed = task.started
        if branch.begun[0] != branch.scope:
            branch.begun = (branch.scope, task.started)
        branch.opener = branch.opener or job.task
        transitions.checkpoint(self._memory, run, job.branch, "task_started", job.task)

    def _given(self, run: Run, job: Job, task: Task) -> Claim:
        """The claim that holds, with all that is needed to do the task."""
        branch, fields = run.branches[job.branch], run.fields
        context = {key: run.output(job.branch, key) for key in task.context}
        assert task.token is not None
        return Claim(
            job=job,
            worker=task.worker,
            token=task.token,
            failures=task.failures,
            failed=task.failed,
            bundle=fields["bundle"],
            module=fields["module"],
            attr=fields["attr"],
            adapter=fields["adapter"],
            inputs=json.loads(fields["inputs"]) | json.loads(branch.inputs),
            todo=branch.todo,
            plan_digest=fields["plan"],
            crew=fields["crew"],
            standin=fields.get("standin", ""),
            scope=Scope(
                branch=task.scope,
                task=task.started,
                claim=task.claimed,
                first=branch.begun == (task.scope, task.claimed),
                triggers=frozenset(filter(None, run.triggers.split(","))),
                agent=task.open[0].seq if task.open and task.open[0].ends == AGENT else 0,
                opens=branch.opener == job.task,
            ),
            context={key: json.loads(output.text) for key, output in context.items() if output is not None},
            recorded=dict(branch.journals.get(job.task, {})),
        )

    @atomic
    def return_job(self, job: Job) -> None:
        """Send a received job on, unclaimed, for another worker to take."""
        run, task = self._memory.run(job.run_id), self._memory.task(job)
        if run is not None and task is not None and task.state is TaskState.queued and task.attempt == job.attempt:
            transitions.send(self._memory, run, job.branch, job.task)

    @atomic
    def holds(self, claim: Claim) -> bool:
        """Whether the claim still holds."""
        return self._memory.held(claim.job, claim.token) is not None

    @atomic
    def mark(self, job: Job, trigger: str) -> None:
        """Write a checkpoint of the branch that the task is on, if its run asked for one at this trigger."""
        run = self._memory.run(job.run_id)
        if run is not None and job.branch in run.branches and run.goes_on(job.branch):
            transitions.checkpoint(self._memory, run, job.branch, trigger, job.task)

    def task(self, claim: Claim, sent: Callable[[str], None] | None = None, log: Log | None = None) -> MemoryTask:
        """The task under its claim. ``sent`` is told which calls have left, ``log`` what was acknowledged."""
        return MemoryTask(self._memory, claim, sent, log)

    # -- what tasks read

    def branch(self, run_id: str, branch: str) -> GrowingBranch:
        """A branch, to read."""
        return GrowingBranch(self.runs, self._memory, run_id, branch)

    @atomic
    def pacer(self, run_id: str) -> RateLimiter:
        """Counts the run's calls of models."""
        run = self._memory.run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        if run.pace is None:
            run.pace = RateLimiter(clock=self._memory.clock)
        return run.pace

    def signature(self, run_id: str) -> str:
        """What signs the run's code; "" for nothing."""
        return self.runs.field(run_id, "signature")

    def plan(self, run_id: str) -> Plan:
        """The run's plan. Raises `NotFound`."""
        return self.runs.plan(run_id)

    def outputs(self, run_id: str, branch: str, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """The outputs of those of these tasks that are committed on the branch."""
        found = self.runs.outputs_of(run_id, branch, keys)
        return {key: output.as_task_output(key) for key, output in found.items()}

    def files_left(self, run_id: str, branch: str) -> Sequence[Mapping[str, Any]]:
        """The files that the committed tasks of a branch left, oldest first."""
        return self.runs.files_left(run_id, branch)

    def parent(self, run_id: str, branch: str) -> str:
        """The branch that this one left; "" for none."""
        return self.runs.parent(run_id, branch)

    def existing(self, run_ids: Sequence[str]) -> Collection[str]:
        """Those of these runs that the store has."""
        return self.runs.existing(run_ids)

    def bundle(self, sha: str) -> bytes:
        """A bundle's data. Raises `NotFound`."""
        return self.runs.bundle(sha)

    def drop_bundle(self, sha: str, damaged: bytes) -> bool:
        """Forget a bundle's data, if that is what is stored."""
        return self.runs.drop_bundle(sha, damaged)
