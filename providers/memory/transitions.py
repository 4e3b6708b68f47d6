"""State transitions that several operations share; each keeps all indexes consistent. Callers hold the lock."""

import hashlib
import time
from collections.abc import Mapping

from runner.core.jobs import Job, queue_for
from runner.core.ledger import STEP, Counters
from runner.core.plan import THREAD, PlannedTask
from runner.core.states import RunStatus, TaskState
from runner.providers.memory import account
from runner.providers.memory.events import Relatives, close_open, emit
from runner.providers.memory.state import Branch, Memory, Run, Task
from runner.providers.records import CheckpointRecord

SHARES_TRIGGER = "task_completed"
"""The trigger whose checkpoint has the sequence of the commit; any other has one of its own."""

LONG = 1000  #: messages of a queue through which no store looks for those of one run


# -- sending


def send(memory: Memory, run: Run, name: str, key: str) -> None:
    """Make a job runnable: it counts as queued, and its message is on its way."""
    task = run.branches[name].tasks[key]
    task.state = TaskState.queued
    place, at = (run.id, name, key), memory.now()
    memory.queued[place] = at
    job = Job(*place, task.attempt)
    if run.relayed:
        memory.outbox[job] = at
    else:
        memory.queues[queue_for(run.fields["queue"], task.pool)].append(job)
    memory.changed.notify_all()


def take_out(memory: Memory, run: Run) -> None:
    """Take out of its queues what a run that is over has there, unless they are long."""
    for pool in ("", THREAD):
        queue = memory.queues[queue_for(run.fields["queue"], pool)]
        if len(queue) <= LONG:
            kept = [job for job in queue if job.run_id != run.id]
            queue.clear()
            queue.extend(kept)


def open_task(run: Run, name: str, planned: PlannedTask) -> Task:
    """A task whose prerequisites are committed may run: it is in flight from here on."""
    # One that is known was in flight under a plan in which less came before it: what that said of it holds no more.
    task = run.branches[name].tasks.setdefault(planned.key, Task())
    run.branches[name].aside.discard(planned.key)
    task.attempt += 1
    task.state, task.context, task.timeout = TaskState.queued, planned.context or (), planned.timeout
    task.pool = planned.pool
    return task


def unlock(memory: Memory, run: Run, name: str, planned: PlannedTask) -> None:
    """Make a task ready and send its job."""
    open_task(run, name, planned)
    send(memory, run, name, planned.key)


def requeue(memory: Memory, run: Run, name: str, key: str) -> None:
    """Another attempt may come at once; while the branch is over, it waits for that to be resumed."""
    if run.is_active(name):
        send(memory, run, name, key)
    else:
        run.branches[name].tasks[key].state = TaskState.held


def hold(memory: Memory, run: Run, name: str, key: str) -> None:
    """Send a task no more."""
    run.branches[name].tasks[key].state = TaskState.held
    memory.queued.pop((run.id, name, key), None)
    memory.due.pop((run.id, name, key), None)


# -- ending a claim


def give_up(
    memory: Memory,
    run: Run,
    name: str,
    key: str,
    *,
    handed_over: bool = False,
    left: Counters | None = None,
    unused: bool = False,
) -> None:
    """Take a claim back; the next attempt has a new number, the journal stays.

    A step that was begun and not recorded is in doubt: it may have been done, and will be done again. ``left`` says
    which calls had left the process, where that is known; ``unused`` that no other step began on a reserved note.
    """
    task = run.branches[name].tasks[key]
    close_open(memory, run, name, task, handed_over=handed_over)
    account.add(
        run,
        name,
        key,
        "in_doubt",
        account.doubtful(task.noted(unused=unused and (left is None or task.reserved == STEP)), left),
    )
    memory.claims[task.worker].pop((run.id, name, key), None)
    task.token, task.worker, task.process, task.nonce = None, "", "", ""
    task.begun, task.reserved, task.copies = Counters(), None, 0
    task.attempt += 1


def recall(memory: Memory, run: Run, name: str) -> None:
    """Take back every claim on a branch, and have the workers look."""
    for key, task in run.branches[name].tasks.items():
        if task.token is not None:
            worker = memory.workers.get(task.worker)
            if worker is not None:
                worker.recheck += 1
            give_up(memory, run, name, key)
            task.state = TaskState.held


def reschedule(memory: Memory, run: Run, name: str, key: str, *, worker: str, reason: str, most: int) -> None:
    """Hand a task on to whoever claims it next; the ``most``-th time in a row without progress, it fails."""
    task = run.branches[name].tasks[key]
    task.handed += 1
    if task.handed < most:
        requeue(memory, run, name, key)
    else:
        why = f"it was handed back {task.handed} times in a row without making progress (last: {reason})"
        fail(memory, run, name, key, worker=worker, reason=why)


def fail(memory: Memory, run: Run, name: str, key: str, *, worker: str, reason: str) -> tuple[int, int]:
    """A task failed for good, and so did its branch, if it was active. Returns the sequences of both events."""
    task = run.branches[name].tasks[key]
    close_open(memory, run, name, task)
    task.state, task.error, task.failed_on, task.ended = TaskState.failed, reason, worker, memory.now()
    told = emit(memory, run, "task_failed", name, key, Relatives(task.scope, task.started), reason=reason)
    task.scope = task.started = task.claimed = 0  # should it be done once more, that is another start
    checkpoint(memory, run, name, "task_failed", key)
    if not run.is_active(name):
        return told, 0
    over = emit(
        memory, run, "crew_kickoff_failed", name, "", Relatives(started=run.branches[name].scope), reason=reason
    )
    checkpoint(memory, run, name, "crew_kickoff_failed")
    finish(memory, run, name, RunStatus.failed, f"task '{key}': {reason}")
    return told, over


# -- branches


def begin(memory: Memory, run: Run, name: str) -> None:
    """A branch starts to run, or resumes. With the first one of a run, the run needs its bundle."""
    was_live = run.live > 0
    branch = run.branches[name]
    branch.status, branch.error, branch.ended_at = RunStatus.running, "", None
    if run.branch == name:
        run.status, run.error, run.ended_at = RunStatus.running, "", None
    if not was_live:
        run.expires_at = None
        use_bundle(memory, run)
        if of := run.fields.get("batch"):
            batch = memory.batch(of)
            batch.active, batch.expires_at = batch.active + 1, None


def use_bundle(memory: Memory, run: Run) -> None:
    """Keep the bundle of a live run, which needs its code."""
    bundle = memory.bundle(run.fields["bundle"])
    if bundle is not None:
        bundle.active += 1
        bundle.expires_at = None


def complete(memory: Memory, run: Run, name: str) -> int:
    """All is done on a branch. Returns the event's sequence."""
    told = emit(memory, run, "crew_kickoff_completed", name, "", Relatives(started=run.branches[name].scope))
    checkpoint(memory, run, name, "crew_kickoff_completed")
    finish(memory, run, name, RunStatus.completed)
    return told


def finish(memory: Memory, run: Run, name: str, status: RunStatus, error: str = "") -> None:
    """End a branch: nothing of it is sent any more. With the last one that was live, the run is kept for a while."""
    branch, at = run.branches[name], memory.now()
    branch.status, branch.ended_at, branch.error = status, at, error
    if run.branch == name:
        run.status, run.error, run.ended_at = status, error, at
    for key, task in branch.tasks.items():
        if task.state in (TaskState.queued, TaskState.delayed):
            hold(memory, run, name, key)
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


def wait_if_asked(memory: Memory, run: Run, name: str) -> None:
    """A branch waits, of which all that is left, or all in flight that a resume has not set aside, asked a person."""
    branch = run.branches[name]
    if not branch.asked or branch.asked not in (branch.left, len(branch.tasks) - len(branch.aside)):
        return
    branch.status = RunStatus.waiting
    if run.branch == name:
        run.status = RunStatus.waiting
    emit(memory, run, "flow_paused", name, "", Relatives(branch.scope))
    checkpoint(memory, run, name, "flow_paused")


def checkpoint(memory: Memory, run: Run, name: str, trigger: str, task: str = "") -> None:
    """Name the branch's present position, if the run asked for it at this event, and keep the newest ones only."""
    if ",*," not in run.triggers and f",{trigger}," not in run.triggers:
        return
    branch, at = run.branches[name], memory.now()
    branch.seq += trigger != SHARES_TRIGGER
    mark = hashlib.sha1(f"{run.id}|{name}|{branch.seq}".encode(), usedforsecurity=False).hexdigest()[:8]
    id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(at / 1000))}_{mark}"
    branch.checkpoints.append(CheckpointRecord(id, name, branch.seq, at, branch.head or branch.start, trigger, task))
    branch.head = id
    prune(branch, int(run.fields["max_checkpoints"]) or len(branch.checkpoints))


def number_steps(branch: Branch, key: str) -> None:
    """A checkpoint was written within a task: it has what is recorded of it by now."""
    for step in branch.journals.get(key, {}):
        branch.steps.setdefault(key, {}).setdefault(step, branch.seq)


def prune(branch: Branch, keep: int) -> int:
    """Keep the newest few checkpoints, and the journals of finished tasks that they need. Returns how many went."""
    excess = max(len(branch.checkpoints) - keep, 0)
    del branch.checkpoints[:excess]
    oldest = branch.checkpoints[0].seq if branch.checkpoints else branch.seq
    for key in [one for one in branch.steps if (done := branch.outputs.get(one)) is not None and done.seq <= oldest]:
        del branch.steps[key]
        branch.journals.pop(key, None)
    return excess


def carry_journal(run: Run, parent: str, name: str, key: str, upto: int | None) -> None:
    """What a task had recorded on the branch that was left is not paid again: all of it, or up to a checkpoint."""
    there, here = run.branches[parent], run.branches[name]
    recorded: Mapping[str, str] = there.journals.get(key, {})
    numbered = {step: seq for step, seq in there.steps.get(key, {}).items() if upto is None or seq <= upto}
    if upto is not None and key in there.steps:
        recorded = {step: text for step, text in recorded.items() if step in numbered}
    if recorded:
        here.journals[key] = dict(recorded)
    if numbered:
        here.steps[key] = numbered
