"""What workers and supervisors do, done to Redis and to memory alike: leases, messages, claims."""

from typing import Any

from runner.core.jobs import Claim, Job, Refusal
from runner.providers.records import HeldClaim
from runner.providers.redis import store

from .checks import job_of
from .driver import LEASE
from .sides import QUEUES, Sides, comparable

MOST_ATTEMPTS = 3
MOST_HANDOVERS = 3


class WorkerOperations(Sides):
    """Workers, the messages they take and the tasks they claim. Every method ends with a `check`."""

    def beat(self, worker: str, about: str = "") -> None:
        found, due = self.fleet.beat(worker, LEASE, about), self.memory.workers.beat(worker, LEASE, about)
        assert (found.stood, found.recheck, found.number, set(found.claims)) == (
            *(due.stood, due.recheck),
            *(due.number, set(due.claims)),
        )
        self.check()

    def reap(
        self,
        worker: str,
        *,
        process: str = "",
        about: str = "",
        only_lapsed: bool = False,
        dead: bool = False,
        max_handovers: int = 0,
    ) -> None:
        """Of a process that is ``dead`` it is known what it said last."""
        how: dict[str, Any] = {"process": process, "about": about, "only_lapsed": only_lapsed, "dead": dead}
        how |= {"reason": "it is gone", "max_attempts": MOST_ATTEMPTS, "max_handovers": max_handovers}
        if dead:
            claims = self.memory.memory.claims[worker].values()
            pages = {claim.process: self.pages.get((claim.ref, claim.token), {}) for claim in claims}
            unheard = {claim.process for claim in claims if self.is_unheard(claim.ref, claim.token)}
            same = {process for process, page in pages.items() if page.get("redis") == page.get("memory")}
            assert same | unheard == pages.keys()
            how["out"] = {process: page["redis"] for process, page in pages.items() if page}
        jobs = self.fleet.reap(worker, **how)
        assert set(jobs) == set(self.memory.workers.reap(worker, **how))
        self.check()

    def take_back(self, claim: Claim) -> None:
        """No process of its worker performs it. Told a second time, or where it is lost, that changes nothing."""
        held = HeldClaim(claim.job.ref, claim.token, "p0", 0)
        for expected in (self.memory.holds(claim), False):
            how: dict[str, Any] = {"reason": "nobody does it", "max_handovers": MOST_HANDOVERS}
            assert self.memory.workers.take_back(claim.worker, held, **how) == expected
            assert self.fleet.take_back(claim.worker, held, **how) == expected
            self.check(unchanged=not expected)

    # -- messages

    def waiting(self) -> list[str]:
        """The queues in which messages wait."""
        return [queue for queue in QUEUES if self.memory.memory.queues[queue]]

    def receive(self, queue: str) -> Job:
        """Take the oldest message, as a worker reads it."""
        job = Job(*job_of(self.redis.rpop(queue)))
        assert job == self.memory.workers.take([queue])
        self.delivered.append(job)
        self.check()
        return job

    def return_job(self, job: Job) -> None:
        store.return_job(self.line, job)
        self.memory.return_job(job)
        self.check()

    def oversee(self, ms: int, older: int, *, sent: bool) -> None:
        """Time passes; then what a supervisor does. It may die before it says that a job was ``sent``."""
        self.clock.go_on(ms)
        self.time.advance(ms / 1000)
        assert self.fleet.move_due() == self.memory.workers.move_due()
        self.check()
        assert self.fleet.redeliver(older) == self.memory.workers.redeliver(older)
        self.check()
        relayed = self.fleet.outbox()
        assert relayed == self.memory.workers.outbox()
        self.delivered += relayed
        if relayed and sent:
            for job in relayed:
                self.fleet.sent(job)
                self.memory.workers.sent(job)
            self.check()

    def claim(
        self, job: Job, worker: str, process: str = "p0", *, nonce: str | None = None, lost: bool = False
    ) -> Claim | None:
        """Ask for a task; with a ``nonce`` from before, ask again. A ``lost`` answer is asked for again at once."""
        self.nonces.next = nonce or f"n{next(self.numbers)}"
        self.line.lose = int(lost)
        committed = self.world.runs[job.run_id].committed(job.branch)
        due = self.memory.claim(job, worker=worker, process=process, nonce=self.nonces.next)
        found = store.claim(self.line, job, worker=worker, process=process)
        self.line.lose = 0
        if isinstance(due, Refusal):
            assert found == due
            self.check(unchanged=True)
            return None
        assert isinstance(found, Claim)
        assert job.task not in committed, "a committed task never runs again"
        assert comparable(found) == comparable(due), "the same claim, with all that is needed to do the task"
        self.claims.append(found)
        self.check()
        return found
