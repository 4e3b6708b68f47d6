"""Claims on tasks, and the data that a claim comes with. Callers hold the lock."""

import json

from runner.core.jobs import Claim, Job, Scope
from runner.core.states import TaskState
from runner.providers.memory.events import AGENT, Relatives, emit
from runner.providers.memory.state import Memory, Run, Task
from runner.providers.memory.transitions import checkpoint
from runner.providers.records import HeldClaim


def take(memory: Memory, run: Run, job: Job, task: Task, *, worker: str, process: str, nonce: str) -> None:
    """Make a task a process's own.

    The fencing token only goes up, as Redis' does, for which the run's age in microseconds is the least.
    """
    branch, at, place = run.branches[job.branch], memory.now(), (job.run_id, job.branch, job.task)
    run.token = max(run.token + 1, (at - run.created_at) * 1000)
    task.state, task.token = TaskState.running, run.token
    task.worker, task.process, task.nonce = worker, process, nonce
    memory.queued.pop(place, None)
    deadline = at + int(task.timeout * 1000) if task.timeout else 0
    memory.claims[worker][place] = HeldClaim(job.ref, run.token, process, deadline)
    about = {"attempt": job.attempt, "worker": worker, "token": run.token}
    if task.started:
        task.claimed = emit(memory, run, "task_resumed", job.branch, job.task, Relatives(task.started), **about)
        return
    task.scope, task.began = branch.scope, at
    task.started = emit(memory, run, "task_started", job.branch, job.task, Relatives(branch.scope), **about)
    task.claimed = task.started
    if branch.begun[0] != branch.scope:
        branch.begun = (branch.scope, task.started)
    branch.opener = branch.opener or job.task
    checkpoint(memory, run, job.branch, "task_started", job.task)


def given(run: Run, job: Job, task: Task) -> Claim:
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
        rerun_mask=branch.rerun_mask,
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
