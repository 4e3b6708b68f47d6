"""Redis behind the engine's `Store` port: one connection for the writes of tasks, another for reads."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from runner.core.errors import one_line
from runner.core.jobs import ANY, Claim, Job, Needed, Refusal
from runner.core.output import TaskOutput
from runner.journal.acknowledged_writes import Log
from runner.providers.redis import keys, scripts
from runner.providers.redis.address import identity
from runner.providers.redis.claimed import ClaimedTask
from runner.providers.redis.connection import Client, patient
from runner.providers.redis.dynamic_plan import GrowingBranch
from runner.providers.redis.envelope import JOB, Message, read_message
from runner.providers.redis.pipelined import PipelinedConnection, Replicas
from runner.providers.redis.rate_limit import RunPace
from runner.providers.redis.runs import Runs
from runner.providers.redis.scripts import Executor, claimed, stamp
from runner.providers.redis.workers import Workers

log = logging.getLogger(__name__)


class RedisStore:
    """A `runner.engine.ports.Store`. ``name`` is that of its connections. For one caller at a time, as its line is,
    unless it is ``shared`` by many tasks."""

    def __init__(self, url: str, *, name: str, replicas: Replicas, shared: bool = False) -> None:
        self.id = identity(url)
        self._client = patient(url, name=name)
        self._line: PipelinedConnection
        if shared:
            from runner.providers.redis.shared_connection import SharedConnection

            self._line = SharedConnection(self._client, replicas)
        else:
            self._line = PipelinedConnection(self._client, replicas)
        self._runs = runs = Runs(self._client)
        self.plan, self.files_left, self.parent, self.existing = runs.plan, runs.files_left, runs.parent, runs.existing
        self.code, self.bundle, self.drop_bundle = runs.code, runs.bundle, runs.drop_bundle
        self.workers = Workers(self._client)

    def claim(
        self, job: Job, *, worker: str, process: str, unfit: Iterable[str], environments: str = ANY
    ) -> Claim | Refusal:
        """Take the job's task if it is free: one round trip."""
        return claim(self._line, job, worker=worker, process=process, unfit=unfit, environments=environments)

    def take(self, queue: str) -> Message | None:
        """Take the oldest message of a queue that scripts push to; None for none, and where the store is away.

        One whose answer is lost is sent again, as one that is lost on the way through Celery. One that is not a job's
        stays where it is, for Celery, which says so.
        """
        text = self._line.ask_for(partial(scripts.load("take"), queue=queue, job=f'"{JOB}"'))
        if text is None:
            return None
        try:
            return read_message(text)
        except ValueError as error:
            log.error("a message in queue %s is not a job's; dropping it: %s", queue, one_line(error))
            return None

    def return_job(self, job: Job) -> None:
        """Send a received job on, unclaimed."""
        return_job(self._line, job)

    def task(self, claim: Claim, sent: Callable[[str], None] | None, log: Log | None) -> ClaimedTask:
        """Return the task that a claim holds, for its writes."""
        return ClaimedTask(self._line.side(), claim, sent, log)

    def branch(self, run_id: str, branch: str) -> GrowingBranch:
        """Return a branch, for reading."""
        return GrowingBranch(self._client, run_id, branch)

    def pacer(self, run_id: str) -> RunPace:
        """Counts the run's calls of models."""
        return RunPace(self._client, run_id)

    def signature(self, run_id: str) -> str:
        """Return the signature of the run's code; "" for none."""
        return self._runs.field(run_id, "signature")

    def outputs(self, run_id: str, branch: str, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """The outputs of those of these tasks that are committed on the branch."""
        found = self._runs.outputs_of(run_id, branch, keys)
        return {key: output.as_task_output(key) for key, output in found.items()}


def claim(
    line: PipelinedConnection,
    job: Job,
    *,
    worker: str,
    process: str,
    unfit: Iterable[str] = (),
    environments: str = ANY,
) -> Claim | Refusal:
    """Take the task if it is free, see `runner.engine.ports.Store.claim`. Waits for Redis; one round trip."""
    home = line.home
    branch = keys.branch_key(job.run_id, job.branch, home)
    answer = scripts.load("claim")(
        line,
        home=home,
        run=keys.run_key(job.run_id, home),
        task=keys.key("task_key", branch_key=branch, name=job.task),
        name=job.branch,
        key=job.task,
        attempt=job.attempt,
        worker=worker,
        process=process,
        nonce=os.urandom(8).hex(),
        stamp=stamp(),
        unfit="".join(f",{adapter}," for adapter in unfit),
        environments=environments,
    )
    if answer[0] == "environment":
        return Refusal(answer[0], Needed(*answer[1].split(" ", 1), *answer[2:]))
    return claimed(worker, answer, job) if answer[0] == "claimed" else Refusal(answer[0])


def return_job(line: Executor, job: Job) -> None:
    """Send a received job on, unclaimed, for another worker to take."""
    home = keys.home_of(line)
    branch = keys.branch_key(job.run_id, job.branch, home)
    scripts.load("return_job")(
        line,
        home=home,
        run=keys.run_key(job.run_id, home),
        task=keys.key("task_key", branch_key=branch, name=job.task),
        name=job.branch,
        key=job.task,
        attempt=job.attempt,
    )


def hold(client: Client, claims: Sequence[Claim]) -> list[bool]:
    """Which of these claims still hold. Asked beside their tasks' own lines, while the tasks may be using those."""
    home = keys.home_of(client)
    asked, wanted = client.pipeline(transaction=False), [str(claim.token) for claim in claims]
    for claim in claims:
        branch = keys.branch_key(claim.job.run_id, claim.job.branch, home)
        asked.hget(keys.key("task_key", branch_key=branch, name=claim.job.task), "token")
    return [found == token for found, token in zip(asked.execute(), wanted, strict=True)]


def mark(client: Client, job: Job, trigger: str) -> None:
    """Write a checkpoint of the branch that the task is on, if its run asked for one at this trigger."""
    home = keys.home_of(client)
    scripts.load("mark")(
        client,
        run=keys.run_key(job.run_id, home),
        branch=keys.branch_key(job.run_id, job.branch, home),
        name=job.branch,
        key=job.task,
        trigger=trigger,
        stamp=stamp(),
    )
