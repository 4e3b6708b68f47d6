"""What a worker asks of the store before it works: the right to one task, with all that is needed to do it."""

import json
import os
from collections.abc import Iterable
from typing import Any

from runner.core.jobs import Claim, Job, Refusal, Scope
from runner.providers.redis import keys, scripts
from runner.providers.redis.connection import Client, PipelinedConnection
from runner.providers.redis.packing import unpack_output
from runner.providers.redis.scripts import Executor, stamp


def claim(
    line: PipelinedConnection, job: Job, *, worker: str, process: str, unfit: Iterable[str] = ()
) -> Claim | Refusal:
    """Take the task if it is free; one of an ``unfit`` adapter is left to others. Waits for Redis; one round trip."""
    home = keys.home_of(job.run_id)
    branch = keys.branch_key(job.run_id, job.branch)
    answer = scripts.load("claim")(
        line,
        home=home,
        run=keys.run_key(job.run_id),
        task=keys.key("task_key", branch_key=branch, name=job.task),
        name=job.branch,
        key=job.task,
        attempt=job.attempt,
        worker=worker,
        process=process,
        nonce=os.urandom(16).hex(),
        stamp=stamp(),
        unfit="".join(f",{adapter}," for adapter in unfit),
    )
    return claimed(job, worker, answer) if answer[0] == "claimed" else Refusal(answer[0])


def claimed(job: Job, worker: str, answer: Any) -> Claim:
    """The claim that a script gave, as ``claim.lua`` says."""
    _, token, (failures, failed), fields, scope, (rerun_mask, changed), context, recorded = answer
    bundle, module, attr, adapter, inputs, plan_digest, crew, standin = fields
    return Claim(
        job=job,
        worker=worker,
        token=token,
        failures=failures,
        failed=failed,
        bundle=bundle,
        module=module,
        attr=attr,
        adapter=adapter,
        inputs=({} if inputs == "{}" else json.loads(inputs)) | (json.loads(changed) if changed else {}),
        rerun_mask=rerun_mask or "",
        plan_digest=plan_digest,
        crew=crew,
        standin=standin,
        scope=_scope(*scope),
        context={key: unpack_output(value) for key, value in _pairs(context) if value} if context else {},
        recorded=dict(_pairs(recorded)) if recorded else {},
    )


def _scope(branch: int, task: int, claim: int, first: int, triggers: str, agent: int, opens: int) -> Scope:
    return Scope(branch, task, claim, bool(first), frozenset(filter(None, triggers.split(","))), agent, bool(opens))


def return_job(line: Executor, job: Job) -> None:
    """Send a received job on, unclaimed, for another worker to take."""
    branch = keys.branch_key(job.run_id, job.branch)
    scripts.load("return_job")(
        line,
        home=keys.home_of(job.run_id),
        run=keys.run_key(job.run_id),
        task=keys.key("task_key", branch_key=branch, name=job.task),
        name=job.branch,
        key=job.task,
        attempt=job.attempt,
    )


def holds(client: Client, claim: Claim) -> bool:
    """Whether the claim still holds. Asked beside the task's own line, while the task may be using that."""
    branch = keys.branch_key(claim.job.run_id, claim.job.branch)
    token = client.hget(keys.key("task_key", branch_key=branch, name=claim.job.task), "token")
    return bool(token == str(claim.token))


def mark(client: Client, job: Job, trigger: str) -> None:
    """Write a checkpoint of the branch that the task is on, if its run asked for one at this trigger."""
    scripts.load("mark")(
        client,
        run=keys.run_key(job.run_id),
        branch=keys.branch_key(job.run_id, job.branch),
        name=job.branch,
        key=job.task,
        trigger=trigger,
        stamp=stamp(),
    )


def _pairs(flat: Any) -> Iterable[tuple[str, str]]:
    """A flat reply as pairs."""
    return zip(flat[::2], flat[1::2], strict=True)
