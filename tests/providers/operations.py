"""Each operation, done to the store and to the model alike; what the two answer, and all they hold, must agree."""

import itertools
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine
from redis import Redis

from runner.client import forking
from runner.core.errors import ClaimLost, Conflict
from runner.core.ledger import Usage
from runner.core.output import dump
from runner.core.plan import Plan
from runner.core.plan.branching import branch_plan
from runner.core.plan.dependencies import NOTHING, Used
from runner.providers.redis import jobs
from runner.providers.redis.claimed import ClaimedTask
from runner.providers.redis.envelope import template
from runner.providers.redis.jobs import Claim, Job, Refusal
from runner.providers.redis.runs import CheckpointRecord, Runs
from runner.providers.redis.workers import HeldClaim, Workers

from .checks import Laws, agree, job_of, moved
from .conftest import Clock, LossyLine
from .driver import KEEP, LEASE
from .model import REFUSED, Model
from .model_run import Run
from .observed import look

QUEUES = ("jobs", "other jobs")
BUNDLES = ("b0", "b1")
MOST_ATTEMPTS = 3
MOST_HANDOVERS = 3


class Operations(RuleBasedStateMachine):
    """A store, its model, and who uses them. Every method ends with a `check`."""

    def __init__(self, redis: Redis, line: LossyLine, clock: Clock, nonces: SimpleNamespace) -> None:
        super().__init__()
        redis.flushall()
        clock.reset()
        self.redis, self.line, self.clock, self.nonces = redis, line, clock, nonces
        self.store = Runs(redis)
        self.fleet = Workers(redis)
        self.model = Model(clock.now, QUEUES, BUNDLES)
        self.laws = Laws()
        self.claims: list[Claim] = []
        self.delivered: list[Job] = []
        self.written: dict[tuple[str, str, str], set[int]] = {}
        self.numbers = itertools.count(1)
        self._tasks: dict[tuple[str, int], ClaimedTask] = {}
        for sha in BUNDLES:
            self.store.put_bundle(sha, b"packed")
        self.world = look(redis, set(QUEUES))

    def check(self, *, unchanged: bool = False, refused: bool = False) -> None:
        """The store agrees with the model and keeps the laws. What was refused may have added an event, no more."""
        before, self.world = self.world, look(self.redis, set(QUEUES))
        if unchanged or refused:
            assert self.world.values(but_events=refused) == before.values(but_events=refused)
        moved(before, self.world)
        agree(self.world, self.model)
        self.laws.hold(self.world)

    # -- runs

    def submit(self, run: Run) -> None:
        """Create a run; a second time, which changes nothing."""
        fields = {
            "crew": run.plan.crew,
            "adapter": "native",
            "bundle": run.bundle,
            "module": "crew",
            "attr": "crew",
            "plan": run.plan.digest,
            "inputs": '{"topic": "ü"}',
            "queue": run.queue,
            "keep": str(KEEP),
            "checkpoint_on": f",{','.join(sorted(run.triggers))}," if run.triggers else "",
            "max_checkpoints": str(run.most),
            "envelope": "" if run.relayed else template(run.queue),
        }
        assert self.store.create(run.id, run.plan, fields) == self.model.create(run) == "created"
        self.check()
        assert self.store.create(run.id, run.plan, fields) == "exists"
        self.check(unchanged=True)

    def cancel(self, run: Run, only: str | None = None) -> None:
        was = self.model.cancel(run, only)
        assert self.store.cancel(run.id, "a person said so", only) == was
        self.check(unchanged=was != "running")

    def resume(
        self,
        run: Run,
        name: str,
        start: CheckpointRecord | None = None,
        bundle: str | None = None,
        plan: Plan | None = None,
    ) -> None:
        """Let a run go on. A second one, who saw the run as it was, comes too late."""
        bundle = bundle if run.bundle else None
        fields = ({"bundle": bundle} if bundle else {}) | ({"plan": plan.digest} if plan else {})
        done = run.committed(start.branch, start.seq) if start else run.committed(name)
        resume = partial(self.store.resume, self.store.get(run.id), name, start=start, fields=fields, plan=plan)
        if len(done) == len((plan or run.plan).tasks):
            with pytest.raises(Conflict):
                resume()
            self.check(unchanged=True)
            return
        due = self.model.resume(run, name, (start.branch, start.seq, start.id) if start else None, bundle, plan)
        assert resume() == due
        self.check(unchanged=due == "busy")
        if due == "resumed":
            assert resume() == "changed"
            self.check(unchanged=True)

    def fork(
        self, run: Run, at: CheckpointRecord | str, name: str, edits: dict[str, str], inputs: dict[str, Any]
    ) -> None:
        """A new branch, from a checkpoint or the newest position of a branch. Then its name is taken."""
        if isinstance(at, str):
            seen = self.world.runs[run.id].branches[at].fields
            where, source = (at, int(seen["seq"]), seen.get("head", seen.get("from", ""))), at
        else:
            where, source = (at.branch, at.seq, at.id), None
        fork = partial(
            forking.fork,
            self.redis,
            run.id,
            checkpoint=None if source else where[2],
            source=source,
            branch=name,
            inputs=inputs,
            edits=edits,
        )
        self.model.fork(run, name, where, edits, inputs)
        assert fork()[0] == name
        self.check()
        with pytest.raises(Conflict):
            fork()
        self.check(unchanged=True)

    # -- workers

    def beat(self, worker: str, about: str = "") -> None:
        stood = self.fleet.beat(worker, LEASE, about).stood
        assert stood == self.model.beat(worker, about, LEASE)
        self.check()

    def reap(self, worker: str, *, process: str = "", about: str = "", only_lapsed: bool = False) -> None:
        how: dict[str, Any] = {"process": process, "about": about, "only_lapsed": only_lapsed}
        refs = self.fleet.reap(worker, reason="it is gone", max_attempts=MOST_ATTEMPTS, **how)
        back = self.model.reap(worker, most=MOST_ATTEMPTS, **how)
        assert set(refs) == {"|".join(place) for place in back or ()}
        self.check(unchanged=back is None)

    def take_back(self, claim: Claim) -> None:
        """No process of its worker performs it. Told a second time, or where it is lost, that changes nothing."""
        holds = self.model.held(claim.job, claim.token) is not None
        if holds:
            self.model.take_back(claim.job, most=MOST_HANDOVERS)
        held = HeldClaim(claim.job.ref, claim.token, "p0", 0)
        for expected in (holds, False):
            back = self.fleet.take_back(claim.worker, held, reason="nobody does it", max_handovers=MOST_HANDOVERS)
            assert back == expected
            self.check(unchanged=not expected)

    # -- messages

    def waiting(self) -> list[str]:
        """The queues in which messages wait."""
        return [queue for queue in QUEUES if self.model.lists[queue]]

    def receive(self, queue: str) -> Job:
        """Take the oldest message, as a worker reads it."""
        job = Job(*job_of(self.redis.rpop(queue)))
        assert job == self.model.lists[queue].pop()
        self.delivered.append(job)
        self.check()
        return job

    def return_job(self, job: Job) -> None:
        jobs.return_job(self.line, job)
        self.model.return_job(job)
        self.check()

    def oversee(self, ms: int, older: int, *, sent: bool) -> None:
        """Time passes; then what a supervisor does. It may die before it says that a job was ``sent``."""
        self.clock.go_on(ms)
        self.model.now = self.clock.now
        assert self.fleet.move_due() == self.model.move_due()
        self.check()
        assert self.fleet.resend(older) == self.model.resend(older)
        self.check()
        relayed = self.fleet.outbox()
        assert set(relayed) == self.model.outbox
        self.delivered += relayed
        if relayed and sent:
            for job in relayed:
                self.fleet.sent(job)
            self.model.outbox.clear()
            self.check()

    # -- tasks

    def claim(
        self, job: Job, worker: str, process: str = "p0", *, nonce: str | None = None, lost: bool = False
    ) -> Claim | None:
        """Ask for a task; with a ``nonce`` from before, ask again. A ``lost`` answer is asked for again at once."""
        self.nonces.next = nonce or f"n{next(self.numbers)}"
        self.line.lose = int(lost)
        run = self.model.runs[job.run_id]
        committed = self.world.runs[job.run_id].committed(job.branch)
        due = self.model.claim(job, worker, process, self.nonces.next)
        found = jobs.claim(self.line, job, worker=worker, process=process)
        self.line.lose = 0
        if due != "claimed":
            assert found == Refusal(due)
            self.check(unchanged=True)
            return None
        assert isinstance(found, Claim)
        assert job.task not in committed, "a committed task never runs again"
        branch = run.branches[job.branch]
        task = branch.tasks[job.task]
        assert (found.token, found.failures, found.bundle) == (task.token, task.failures, run.bundle)
        assert found.recorded == branch.journals.get(job.task, {}), "what was recorded is replayed"
        assert found.inputs == {"topic": "ü"} | branch.inputs
        outputs = run.committed(job.branch)
        wanted = run.plan.by_key[job.task].context or ()
        assert {key: o["raw"] for key, o in found.context.items()} == {key: outputs[key] for key in wanted}
        self.claims.append(found)
        self.check()
        return found

    def write(self, due: Any, write: Callable[[], Any], *, again: str = "", lost: bool = False) -> None:
        """``due`` is the answer that the model gives; ``again`` the one to a repeated call whose answer was lost."""
        self.line.fresh = False  # what is to be lost is the answer to this write
        self.line.lose = int(lost)
        if due == REFUSED or (lost and again == REFUSED):
            with pytest.raises(ClaimLost):
                write()
        else:
            write()
        self.line.lose = 0
        self.check(refused=due == REFUSED)

    def log(self, claim: Claim) -> None:
        due = None if self.model.held(claim.job, claim.token) else REFUSED
        self.write(due, lambda: self._task(claim).note("log", "so far"))

    def begin_step(self, claim: Claim) -> None:
        self._task(claim).begin_step()
        self.line.execute_command("PING")  # nobody waits for a step's begin; the test does
        held = self.model.held(claim.job, claim.token)
        if held:
            held.begun += 1
        else:  # it is done all the same: a worker learns later that it lost its claim
            self.model.runs[claim.job.run_id].counters["in_doubt"] += 1
        self.check()

    def drop_step(self, claim: Claim) -> None:
        self._task(claim).drop_step()
        self.line.execute_command("PING")
        held = self.model.held(claim.job, claim.token)
        if held:
            held.begun -= 1
        self.check(unchanged=not held)

    def record_step(self, claim: Claim, step: str, *, replayed: int, tokens: int, lost: bool) -> None:
        value = f'"{step} {next(self.numbers)}"'
        usage = Usage(10 * tokens, tokens)
        due = self.model.record(claim.job, claim.token, step, value, replayed=replayed, **usage.told())
        self.write(due, lambda: self._task(claim).record_step(step, value, replayed=replayed, usage=usage), lost=lost)

    def commit(self, claim: Claim, *, replayed: int = 0, lost: bool = False, used: Used = NOTHING) -> None:
        """A commit heard twice is one commit, and learns how the run stands now."""
        job = claim.job
        run = self.model.runs[job.run_id]
        repeated = job.task in run.branches[job.branch].outputs
        text = f"{job.task} by {claim.token}"
        due = self.model.commit(job, claim.token, text, replayed, used)
        unlocks = branch_plan(run.plan, claim.todo).dependents[job.task]

        def write() -> None:
            assert self._task(claim).commit(dump(text, None), unlocks, replayed=replayed, used=used) == due

        before = self.world
        self.write(due, write, lost=lost)
        if due != REFUSED:
            assert not repeated or self.world.values() == before.values()
            tokens = self.written.setdefault((job.run_id, job.branch, job.task), set())
            tokens.add(claim.token)
            assert tokens == {claim.token}, "committed once"

    def release(self, claim: Claim, *, replayed: int, lost: bool) -> None:
        due = self.model.release(claim.job, claim.token, replayed, most=MOST_HANDOVERS)
        release = partial(self._task(claim).release, replayed=replayed, max_handovers=MOST_HANDOVERS)
        self.write(due, release, again=REFUSED, lost=lost)

    def retry(self, claim: Claim, delay: int, *, replayed: int, lost: bool) -> None:
        due = self.model.retry(claim.job, claim.token, delay, replayed)
        retry = partial(self._task(claim).retry, delay / 1000, "it raised", replayed=replayed)
        self.write(due, retry, again=REFUSED, lost=lost)

    def fail(self, claim: Claim, *, replayed: int, lost: bool) -> None:
        due = self.model.fail(claim.job, claim.token, replayed)
        self.write(due, lambda: self._task(claim).fail("no way", replayed=replayed), again=REFUSED, lost=lost)

    def _task(self, claim: Claim) -> ClaimedTask:
        place = (claim.job.ref, claim.token)
        return self._tasks.setdefault(place, ClaimedTask(self.line, claim))
