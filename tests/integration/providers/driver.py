"""A worker and a client in miniature: the provider's own calls, one at a time, in this process."""

from collections.abc import Callable, Iterator
from typing import Any

from redis import Redis

from runner.core.jobs import Claim, Job, Refusal
from runner.core.output import dump
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.dependencies import NOTHING, ReadSet
from runner.journal.acknowledged_writes import Logs
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.runs import Runs
from runner.providers.redis.store import ClaimedTask, claim
from runner.providers.redis.workers import Workers

from .checks import job_of
from .conftest import LossyLine

QUEUE = "jobs"
LEASE = 5000
KEEP = 7 * 24 * 3600 * 1000


def plan_of(*tasks: str, crew: str = "a crew") -> Plan:
    """A plan from lines like ``"c: a b"``: c waits for a and b, and has their outputs as its context."""
    found = []
    for line in tasks:
        key, _, after = line.partition(":")
        found.append(PlannedTask(key, tuple(after.split()), tuple(after.split())))
    return Plan(crew, tuple(found))


class Driver:
    """Creates runs; takes jobs and does them. A task's output tells which outputs it was made from."""

    def __init__(self, redis: Redis, line: LossyLine) -> None:
        self.redis, self.line = redis, line
        self.runs, self.workers = Runs(redis), Workers(redis)
        self._tasks: dict[tuple[str, int], ClaimedTask] = {}
        for worker in ("w0", "w1"):
            self.workers.beat(worker, LEASE, "{}")

    def submit(self, plan: Plan, run_id: str = "r-1", **options: str) -> str:
        """Create a run that keeps every checkpoint, unless the options say otherwise."""
        queue = options.get("queue", QUEUE)
        fields = {
            "crew": plan.crew,
            "adapter": "native",
            "bundle": "",
            "module": "crew",
            "attr": "crew",
            "plan": plan.digest,
            "inputs": "{}",
            "queue": queue,
            "keep": str(KEEP),
            "checkpoint_on": ",task_completed,",
            "max_checkpoints": "0",
            "envelope": DIRECT,
        }
        assert self.runs.create(run_id, plan, {**fields, **options}) == "created"
        return run_id

    def jobs(self, queue: str = QUEUE) -> Iterator[Job]:
        """Take the messages of a queue, oldest first, until none is left."""
        while message := self.redis.rpop(queue):
            yield Job(*job_of(message))

    def claim(self, job: Job, worker: str = "w0", process: str = "p0") -> Claim | Refusal:
        """Ask for a task."""
        return claim(self.line, job, worker=worker, process=process)

    def take(self, *tasks: str) -> dict[str, Claim]:
        """Claim these tasks, or all that are queued. Messages of others stay as they are."""
        jobs = list(self.jobs())
        found = {}
        for job in jobs:
            one = self.claim(job) if job.task in tasks or not tasks else None
            if isinstance(one, Claim):
                found[job.task] = one
        left = [job for job in jobs if job.task not in found]
        assert found.keys() >= set(tasks), f"{left} of {jobs}"
        return found

    def task(self, claim: Claim) -> ClaimedTask:
        """What the claim allows."""
        return self._tasks.setdefault((claim.job.ref, claim.token), ClaimedTask(self.line, claim))

    def commit(self, claim: Claim, used: ReadSet = NOTHING) -> str:
        """Do the task. Returns the run's status after it."""
        job = claim.job
        text = f"{job.task}({', '.join(claim.context[key]['raw'] for key in sorted(claim.context))})"
        unlocks = self.runs.branch_plan(job.run_id, job.branch).dependents[job.task]
        return self.task(claim).commit(dump(text, None), unlocks, replayed=0, used=used)

    def work(self, after_each: Callable[[str], Any] = lambda task: None, *, limit: int = 10_000) -> None:
        """Do what is queued, and what that unlocks."""
        for job in self.jobs():
            found = self.claim(job)
            if isinstance(found, Claim):
                self.commit(found)
                after_each(job.task)
                limit -= 1
            if not limit:
                return

    def outputs(self, run_id: str, branch: str = "main") -> dict[str, str]:
        """What is committed."""
        return {key: output.raw for key, output in self.runs.committed(run_id, branch).items()}

    def resume(self, run_id: str, branch: str = "main", **how: Any) -> str:
        """Let a run go on."""
        how = {"start": None, "fields": {}, "plan": None, **how}
        return self.runs.resume(self.runs.get(run_id), branch, **how)

    def states(self, run_id: str, branch: str = "main") -> dict[str, str]:
        """The tasks in flight, and how they stand."""
        return {task.task: task.state for task in self.runs.in_flight(run_id, branch)}

    def events(self, run_id: str, type: str) -> list[dict[str, str]]:
        """The events of one type."""
        return [event.fields for event in self.runs.events(run_id) if event.type == type]


def task_of(driver: Driver, logs: Logs, claim: Claim) -> ClaimedTask:
    """The same as `Driver.task`, of a process that remembers."""
    log = logs.log(0)
    log.claimed(claim.job.ref, claim.token)
    return ClaimedTask(driver.line, claim, None, log)
