"""Leases of workers, and what a supervisor does about dead workers and lost messages."""

from collections.abc import Callable, Iterable, Mapping

from runner.core.jobs import Job, ref
from runner.core.ledger import Counters
from runner.core.plan import queue_for
from runner.core.settings import MAX_HANDOVERS
from runner.core.states import TaskState
from runner.providers.memory import transitions
from runner.providers.memory.events import Relatives, emit
from runner.providers.memory.state import Memory, Place, Worker, atomic
from runner.providers.memory.transitions import give_up, requeue, reschedule, send
from runner.providers.records import Beat, HeldClaim


@atomic
class MemoryWorkers:
    """The leases, and the indexes that a supervisor looks at."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    # -- leases

    def beat(self, worker: str, lease_ms: int, about: str = "") -> Beat:
        """Prolong the lease; with ``about``, register."""
        at, found = self._memory.now(), self._memory.workers.get(worker)
        stood = found is not None
        if found is None:
            if not about:
                return Beat(False, 0, at, (), 0)
            found = self._memory.workers[worker] = Worker(about)
        found.about = about or found.about
        found.lapses_at = at + lease_ms
        found.beats += 1
        return Beat(stood, found.recheck, at, tuple(self._memory.claims[worker].values()), found.beats)

    def lapsed(self, now: int) -> list[tuple[str, int]]:
        """Workers whose lease has lapsed, and when it did."""
        every = sorted((one.lapses_at, id) for id, one in self._memory.workers.items())
        return [(id, at) for at, id in every if at <= now]

    def elect(self, me: str, gone: str, ttl_ms: int) -> bool:
        """Take, keep or take over the lead from a supervisor that was seen to be gone."""
        leader, until = self._memory.leader
        if until > self._memory.now() and leader not in ("", me, gone):
            return False
        self._memory.leader = (me, self._memory.now() + ttl_ms)
        return True

    # -- claims of the dead

    def reap(
        self,
        worker: str,
        *,
        reason: str,
        max_attempts: int,
        process: str = "",
        about: str = "",
        only_lapsed: bool = False,
        out: Mapping[str, str] | None = None,
        dead: bool = False,
        max_handovers: int = 0,
    ) -> list[Job]:
        """Take back the claims of a worker, or of one process. See `runner.engine.ports.Workers.reap`.

        ``dead``: its processes are known to have died, so they have begun no step since.
        """
        found = self._memory.workers.get(worker)
        if only_lapsed and found is not None and found.lapses_at > self._memory.now():
            return []
        if about and (found is None or found.about != about):
            return []
        back = list[Job]()
        for place, claim in list(self._memory.claims[worker].items()):
            if process in ("", claim.process):
                del self._memory.claims[worker][place]
                left = _left(claim, out or {})
                most, unused = max_handovers or max_attempts, dead and left is not None
                job = self._recover(claim, worker, reason, most=most, died=not max_handovers, left=left, unused=unused)
                back += [job] if job else []
        if not process:
            self._memory.workers.pop(worker, None)
            self._memory.claims.pop(worker, None)
        return back

    def _recover(
        self,
        claim: HeldClaim,
        worker: str,
        reason: str,
        *,
        most: int,
        died: bool,
        kind: str = "",
        left: Counters | None = None,
        unused: bool = False,
    ) -> Job | None:
        """Hand back a task, whose worker ``died`` or not, and return the job that is interrupted, if the claim held.

        The ``most``-th time without progress, it fails instead.
        """
        run_id, name, key = claim.ref.split("|", 2)
        task = self._memory.held((run_id, name, key), claim.token)
        if task is None:
            return None
        job = Job(run_id, name, key, task.attempt)
        give_up(task, handed_over=True, left=left, unused=unused)
        task.branch.run.counters["recoveries"] += 1
        about = {"attempt": task.attempt, "worker": worker, "reason": reason}
        kind = kind or ("task_recovered" if died else "task_released")
        emit(task.branch, kind, key, Relatives(task.started), **about)
        if not died:
            reschedule(task, worker=worker, reason=reason, most=most)
            return job
        task.crashes += 1
        if task.crashes < most:
            if task.crashes + 1 >= most:  # it may be another task that kills the process they share
                task.pool = ""
            requeue(task)
        else:
            times = f"{task.crashes} times in a row without making progress"
            why = f"its worker died {times} (last: {reason})"
            transitions.fail(task, worker=worker, reason=why)
        return job

    def take_back(self, worker: str, claim: HeldClaim, *, reason: str, max_handovers: int = MAX_HANDOVERS) -> bool:
        """Hand back one claim of a worker that lives; whether it still held. Handed over too often, its task fails."""
        job = self._recover(claim, worker, reason, most=max_handovers, died=False, kind="task_recovered")
        return job is not None

    # -- messages

    def move_due(self, limit: int = 500) -> int:
        """Send the tasks whose next attempt has come; returns how many."""
        ripe = self._oldest(self._memory.due, self._memory.now(), limit)
        for place in ripe:
            del self._memory.due[place]
            task = self._memory.task(*place)
            if task is not None and task.state is TaskState.delayed:
                send(task)
        return len(ripe)

    def redeliver(self, older_ms: int, limit: int = 100, depth: Callable[[str], int | None] | None = None) -> int:
        """Send again jobs that were never claimed. See `runner.engine.ports.Workers.redeliver`."""
        at, sent = self._memory.now(), 0
        empty = {queue for queue, waiting in self._memory.queues.items() if not waiting}
        for place in self._oldest(self._memory.queued, at - older_ms, limit):
            task = self._memory.task(*place)
            if task is None or task.state is not TaskState.queued or not task.branch.is_active:
                del self._memory.queued[place]
                continue
            self._memory.queued[place] = at
            run = task.branch.run
            queue = queue_for(run.fields["queue"], task.pool)
            if (depth(queue) if depth is not None else None) if run.relayed else queue not in empty:
                continue
            send(task)
            if run.relayed:
                task.copies += 1
                self._memory.queued[place] += older_ms * (2 ** min(task.copies, 8) - 1)
            emit(task.branch, "job_resent", task.key, attempt=task.attempt)
            sent += 1
        return sent

    def _oldest(self, index: Mapping[Place, int], upto: int, limit: int) -> list[Place]:
        """The first places of an index, by time and then by name."""
        found = sorted((at, ref(*place).encode("utf-8", "surrogateescape"), place) for place, at in index.items())
        return [place for at, _, place in found if at <= upto][:limit]

    def outbox(self, limit: int = 500) -> list[Job]:
        """Jobs to send by another broker, oldest first."""
        found = sorted(self._memory.outbox.items(), key=lambda one: (one[1], f"{one[0].ref}|{one[0].attempt}"))
        return [job for job, _ in found[:limit]]

    def sent(self, job: Job) -> None:
        """A job from the outbox was handed to the broker."""
        self._memory.outbox.pop(job, None)

    def take(self, queues: Iterable[str], timeout: float | None = 0) -> Job | None:
        """Take the oldest message of the first of these queues that has one; None if none came in time (seconds)."""
        wanted = list(queues)
        waiting = self._memory.changed.wait_for(
            lambda: next((found for queue in wanted if (found := self._memory.queues[queue])), None), timeout
        )
        return waiting.popleft() if waiting else None

    # -- keeping

    def trim(self) -> int:
        """Forget runs that are kept no longer; returns how many."""
        before = len(self._memory.runs)
        for run_id in list(self._memory.runs):
            self._memory.run(run_id)
        for sha in list(self._memory.bundles):
            self._memory.bundle(sha)
        return before - len(self._memory.runs)


def _left(claim: HeldClaim, out: Mapping[str, str]) -> Counters | None:
    """The calls that had left the process, where that is known of this claim."""
    token, _, entries = out.get(claim.process, "").partition(" ")
    return Counters.read(entries) if token == str(claim.token) else None
