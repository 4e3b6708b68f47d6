"""Claims on tasks, and the data that a claim comes with. Callers hold the lock."""

import json

from runner.core.jobs import Claim, Scope
from runner.core.states import TaskState
from runner.providers.memory.events import AGENT, Relatives, emit
from runner.providers.memory.state import Task
from runner.providers.memory.transitions import checkpoint
from runner.providers.records import HeldClaim


def take(task: Task, *, worker: str, process: str, nonce: str) -> None:
    """Make a task a process's own. The fencing token only goes up, and is at least the run's age in microseconds."""
    branch, run, memory = task.branch, task.branch.run, task.branch.run.memory
    at = memory.now()
    run.token = max(run.token + 1, (at - run.created_at) * 1000)
    task.state, task.token = TaskState.running, run.token
    task.worker, task.process, task.nonce = worker, process, nonce
    memory.queued.pop(task.place, None)
    deadline = at + int(task.timeout * 1000) if task.timeout else 0
    memory.claims[worker][task.place] = HeldClaim(task.job.ref, run.token, process, deadline)
    about = {"attempt": task.attempt, "worker": worker, "token": run.token}
    if task.started:
        task.claimed = emit(branch, "task_resumed", task.key, Relatives(task.started), **about)
        return
    task.scope, task.began = branch.scope, at
    task.claimed = task.started = emit(branch, "task_started", task.key, Relatives(branch.scope), **about)
    if branch.begun[0] != branch.scope:
        branch.begun = (branch.scope, task.started)
    branch.opener = branch.opener or task.key
    checkpoint(branch, "task_started", task.key)


def given(task: Task) -> Claim:
    """The claim that holds, with all that is needed to do the task."""
    branch, run, fields = task.branch, task.branch.run, task.branch.run.fields
    context = {key: branch.output(key) for key in task.context}
    assert task.token is not None
    return Claim(
        job=task.job,
        worker=task.worker,
        token=task.token,
        failures=task.failures,
        failed=task.failed,
        bundle=fields["bundle"],
        module=fields["module"],
        attr=fields["attr"],
        adapter=fields["adapter"],
        crew=fields["crew"],
        inputs=json.loads(fields["inputs"]) | json.loads(branch.inputs),
        rerun_mask=branch.rerun_mask,
        plan_digest=fields["plan"],
        standin=fields.get("standin", ""),
        scope=Scope(
            branch=task.scope,
            task=task.started,
            claim=task.claimed,
            first=branch.begun == (task.scope, task.claimed),
            triggers=frozenset(filter(None, run.triggers.split(","))),
            agent=task.open[0].seq if task.open and task.open[0].ends == AGENT else 0,
            opens=branch.opener == task.key,
        ),
        context={key: json.loads(output.text) for key, output in context.items() if output is not None},
        recorded=dict(branch.journals.get(task.key, {})),
    )
