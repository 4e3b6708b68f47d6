"""State transitions that several operations share; each keeps all indexes consistent. Callers hold the lock."""

import hashlib
import time
from collections.abc import Mapping

from runner.core.ledger import STEP, Counters
from runner.core.plan import THREAD, PlannedTask, queue_for
from runner.core.states import RunStatus, TaskState
from runner.providers.memory import account
from runner.providers.memory.events import Relatives, close_open, emit
from runner.providers.memory.state import Branch, Run, Task
from runner.providers.records import CheckpointRecord

SHARES_TRIGGER = "task_completed"
"""The trigger whose checkpoint has the sequence of the commit; any other has one of its own."""

LONG = 1000  #: messages of a queue through which no store looks for those of one run


# -- sending


def send(task: Task) -> None:
    """Make a job runnable: it counts as queued, and its message is on its way."""
    task.state = TaskState.queued
    run, memory = task.branch.run, task.branch.run.memory
    memory.queued[task.place] = at = memory.now()
    if run.relayed:
        memory.outbox[task.job] = at
    else:
        memory.queues[queue_for(run.fields["queue"], task.pool)].append(task.job)
    memory.changed.notify_all()


def take_out(run: Run) -> None:
    """Take out of its queues what a run that is over has there, unless they are long."""
    for pool in ("", THREAD):
        queue = run.memory.queues[queue_for(run.fields["queue"], pool)]
        if len(queue) <= LONG:
            kept = [job for job in queue if job.run_id != run.id]
            queue.clear()
            queue.extend(kept)


def open_task(branch: Branch, planned: PlannedTask) -> Task:
    """A task whose prerequisites are committed may run: it is in flight from here on."""
    # One that is known was in flight under a plan in which less came before it: what that said of it holds no more.
    task = branch.tasks.setdefault(planned.key, Task(branch, planned.key))
    branch.aside.discard(planned.key)
    task.attempt += 1
    task.state, task.context, task.timeout = TaskState.queued, planned.context or (), planned.timeout
    task.pool = planned.pool
    return task


def unlock(branch: Branch, planned: PlannedTask) -> None:
    """Make a task ready and send its job."""
    send(open_task(branch, planned))


def requeue(task: Task) -> None:
    """Another attempt may come at once; while the branch is over, it waits for that to be resumed."""
    if task.branch.is_active:
        send(task)
    else:
        task.state = TaskState.held


# -- ending a claim


def give_up(task: Task, *, handed_over: bool = False, left: Counters | None = None, unused: bool = False) -> None:
    """Take a claim back; the next attempt has a new number, the journal stays.

    A step that was begun and not recorded is in doubt: it may have been done, and will be done again. ``left`` says
    which calls had left the process, where that is known; ``unused`` that no other step began on a reserved note.
    """
    close_open(task, handed_over=handed_over)
    noted = task.noted(unused=unused and (left is None or task.reserved == STEP))
    account.add(task, "in_doubt", account.doubtful(noted, left))
    task.branch.run.memory.claims[task.worker].pop(task.place, None)
    task.token, task.worker, task.process, task.nonce = None, "", "", ""
    task.begun, task.reserved, task.copies = Counters(), None, 0
    task.attempt += 1


def recall(branch: Branch) -> None:
    """Take back every claim on a branch, and have the workers look."""
    for task in branch.tasks.values():
        if task.token is not None:
            worker = branch.run.memory.workers.get(task.worker)
            if worker is not None:
                worker.recheck += 1
            give_up(task)
            task.state = TaskState.held


def reschedule(task: Task, *, worker: str, reason: str, most: int) -> None:
    """Hand a task on to whoever claims it next; the ``most``-th time in a row without progress, it fails."""
    task.handed += 1
    if task.handed < most:
        requeue(task)
    else:
        why = f"it was handed back {task.handed} times in a row without making progress (last: {reason})"
        fail(task, worker=worker, reason=why)


def fail(task: Task, *, worker: str, reason: str) -> tuple[int, int]:
    """A task failed for good, and so did its branch, if it was active. Returns the sequences of both events."""
    branch = task.branch
    close_open(task)
    task.state, task.error, task.failed_on, task.ended = TaskState.failed, reason, worker, branch.run.memory.now()
    told = emit(branch, "task_failed", task.key, Relatives(task.scope, task.started), reason=reason)
    task.scope = task.started = task.claimed = 0  # should it be done once more, that is another start
    checkpoint(branch, "task_failed", task.key)
    if not branch.is_active:
        return told, 0
    over = emit(branch, "crew_kickoff_failed", "", Relatives(started=branch.scope), reason=reason)
    checkpoint(branch, "crew_kickoff_failed")
    finish(branch, RunStatus.failed, f"task '{task.key}': {reason}")
    return told, over


# -- branches


def begin(branch: Branch) -> None:
    """A branch starts to run, or resumes. With the first one of a run, the run needs its bundle."""
    run = branch.run
    was_live = run.live > 0
    branch.status, branch.error, branch.ended_at = RunStatus.running, "", None
    if run.branch == branch.name:
        run.status, run.error, run.ended_at = RunStatus.running, "", None
    if not was_live:
        run.expires_at = None
        use_bundle(run)
        if of := run.fields.get("batch"):
            batch = run.memory.batch(of)
            batch.active, batch.expires_at = batch.active + 1, None


def use_bundle(run: Run) -> None:
    """Keep the bundle of a live run, which needs its code."""
    bundle = run.memory.bundle(run.fields["bundle"])
    if bundle is not None:
        bundle.active += 1
        bundle.expires_at = None


def complete(branch: Branch) -> int:
    """All is done on a branch. Returns the event's sequence."""
    told = emit(branch, "crew_kickoff_completed", "", Relatives(started=branch.scope))
    checkpoint(branch, "crew_kickoff_completed")
    finish(branch, RunStatus.completed)
    return told


def finish(branch: Branch, status: RunStatus, error: str = "") -> None:
    """End a branch: nothing of it is sent any more. With the last one that was live, the run is kept for a while."""
    run, memory, at = branch.run, branch.run.memory, branch.run.memory.now()
    branch.status, branch.ended_at, branch.error = status, at, error
    if run.branch == branch.name:
        run.status, run.error, run.ended_at = status, error, at
    for task in branch.tasks.values():
        if task.state in (TaskState.queued, TaskState.delayed):
            task.state = TaskState.held
            memory.queued.pop(task.place, None)
            memory.due.pop(task.place, None)
    if run.live:
        return
    run.expires_at = at + int(run.fields["keep"])
    if of := run.fields.get("batch"):
        batch = memory.batch(of)
        batch.ended.append(run.id)
        batch.active = max(batch.active - 1, 0)
        batch.expires_at = None if batch.active else run.expires_at
        memory.changed.notify_all()
    bundle = memory.bundle(run.fields["bundle"])
    if bundle is not None:
        bundle.needed_until = max(bundle.needed_until, run.expires_at)
        bundle.active = max(bundle.active - 1, 0)
        if not bundle.active:
            bundle.expires_at = bundle.needed_until


def wait_if_asked(branch: Branch) -> None:
    """A branch waits, of which all that is left, or all in flight that a resume has not set aside, asked a person."""
    if not branch.asked or branch.asked not in (branch.left, len(branch.tasks) - len(branch.aside)):
        return
    branch.status = RunStatus.waiting
    if branch.run.branch == branch.name:
        branch.run.status = RunStatus.waiting
    emit(branch, "flow_paused", "", Relatives(branch.scope))
    checkpoint(branch, "flow_paused")


def checkpoint(branch: Branch, trigger: str, task: str = "") -> None:
    """Name the branch's present position, if the run asked for it at this event, and keep the newest ones only."""
    run, name = branch.run, branch.name
    if ",*," not in run.triggers and f",{trigger}," not in run.triggers:
        return
    at = run.memory.now()
    branch.seq += trigger != SHARES_TRIGGER
    mark = hashlib.sha1(f"{run.id}|{name}|{branch.seq}".encode(), usedforsecurity=False).hexdigest()[:8]
    id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(at / 1000))}_{mark}"
    branch.checkpoints.append(CheckpointRecord(id, name, branch.seq, at, branch.head or branch.start, trigger, task))
    branch.head = id
    prune(branch, int(run.fields["max_checkpoints"]) or len(branch.checkpoints))


def number_steps(task: Task) -> None:
    """A checkpoint was written within a task: it has what is recorded of it by now."""
    branch = task.branch
    for step in branch.journals.get(task.key, {}):
        branch.steps.setdefault(task.key, {}).setdefault(step, branch.seq)


def prune(branch: Branch, keep: int) -> int:
    """Keep the newest few checkpoints, and the journals of finished tasks that they need. Returns how many went."""
    excess = max(len(branch.checkpoints) - keep, 0)
    del branch.checkpoints[:excess]
    oldest = branch.checkpoints[0].seq if branch.checkpoints else branch.seq
    for key in [one for one in branch.steps if (done := branch.outputs.get(one)) is not None and done.seq <= oldest]:
        del branch.steps[key]
        branch.journals.pop(key, None)
    return excess


def carry_journal(there: Branch, here: Branch, key: str, upto: int | None) -> None:
    """What a task had recorded on the branch that was left is not paid again: all of it, or up to a checkpoint."""
    recorded: Mapping[str, str] = there.journals.get(key, {})
    numbered = {step: seq for step, seq in there.steps.get(key, {}).items() if upto is None or seq <= upto}
    if upto is not None and key in there.steps:
        recorded = {step: text for step, text in recorded.items() if step in numbered}
    if recorded:
        here.journals[key] = dict(recorded)
    if numbered:
        here.steps[key] = numbered
