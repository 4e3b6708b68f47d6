"""Random histories of runs and workers, each step held against a model, the laws, and the tables of moves."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from redis import Redis
from runner.errors import ClaimLost, Conflict
from runner.output import dump
from runner.providers.redis.envelope import template
from runner.providers.redis.jobs import Claim, ClaimedTask, Job, Refusal, claim, return_job
from runner.providers.redis.runs import Runs
from runner.providers.redis.workers import Workers

from . import plans
from .checks import Laws, agree, job_of, moved
from .conftest import EXAMPLES, Clock, LossyLine
from .model import REFUSED, Model, Run
from .observed import look

QUEUES = ("jobs", "other jobs")
BUNDLES = ("b0", "b1")
WORKERS = ("w0", "w1", "w2")
PROCESSES = ("p0", "p1")
LEASE = 5000
KEEP = 7 * 24 * 3600 * 1000
MOST_ATTEMPTS = 3
STEPS = ("fetch", "ask#2", "sum 'ü' %1")

workers = st.sampled_from(WORKERS)
processes = st.sampled_from(PROCESSES)
counts = st.integers(0, 2)
seldom = st.integers(0, 4).map(lambda n: n == 4)


class Protocol(RuleBasedStateMachine):
    """Several runs, workers and supervisors; messages get lost and doubled, answers too, and writes come late."""

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
        self.asked: list[tuple[Job, str, str, str]] = []
        self.delivered: list[Job] = []
        self.written: dict[tuple[str, str, str], set[int]] = {}
        self.numbers = itertools.count(1)
        for sha in BUNDLES:
            self.store.put_bundle(sha, b"packed")
        self.world = look(redis, set(QUEUES))

    def check(self, *, unchanged: bool = False, refused: bool = False) -> None:
        """After each operation. A refused one may have added an event, nothing else."""
        before, self.world = self.world, look(self.redis, set(QUEUES))
        if unchanged or refused:
            assert self.world.values(but_events=refused) == before.values(but_events=refused)
        moved(before, self.world)
        agree(self.world, self.model)
        self.laws.hold(self.world)

    # -- runs

    @initialize(plan=plans.plans(), options=plans.options())
    def begin(self, plan: Any, options: dict[str, Any]) -> None:
        self.register("w0", anew=True)
        self.create(plan, options)

    @precondition(lambda self: len(self.model.runs) < 3)
    @rule(plan=plans.plans(), options=plans.options())
    def create(self, plan: Any, options: dict[str, Any]) -> None:
        run = Run(
            id=f"r-{len(self.model.runs)}",
            plan=plan,
            queue=QUEUES[options["queue"]],
            relayed=options["relayed"],
            bundle=options["bundle"],
            triggers=options["triggers"],
            most=options["most"],
        )
        assert self._create(run) == self.model.create(run)
        self.check()

    @rule(data=st.data())
    def create_again(self, data: Any) -> None:
        run = data.draw(st.sampled_from(list(self.model.runs.values())))
        assert self._create(run) == "exists"
        self.check(unchanged=True)

    def _create(self, run: Run) -> str:
        fields = {
            "crew": run.plan.crew,
            "adapter": "native",
            "bundle": run.bundle,
            "module": "crew",
            "attr": "crew",
            "plan": run.plan.digest,
            "inputs": '{"secret": "not in a message"}',
            "queue": run.queue,
            "keep": str(KEEP),
            "checkpoint_on": f",{','.join(sorted(run.triggers))}," if run.triggers else "",
            "max_checkpoints": str(run.most),
            "envelope": "" if run.relayed else template(run.queue),
        }
        return self.store.create(run.id, run.plan, fields)

    @rule(data=st.data(), rarely=seldom)
    def cancel(self, data: Any, rarely: bool) -> None:
        if rarely:
            run = data.draw(st.sampled_from(list(self.model.runs.values())))
            was = run.status
            assert self.store.cancel(run.id, "a person said so") == self.model.cancel(run)
            self.check(unchanged=was != "running")

    @precondition(lambda self: any(run.status != "running" for run in self.model.runs.values()))
    @rule(data=st.data(), elsewhere=st.booleans(), bundle=st.sampled_from([None, None, *BUNDLES]))
    def resume(self, data: Any, elsewhere: bool, bundle: str | None) -> None:
        run = data.draw(st.sampled_from([run for run in self.model.runs.values() if run.status != "running"]))
        name, start = run.branch, None
        if elsewhere:
            kept = [c for branch in sorted(run.branches) for c in self.store.checkpoints(run.id, branch)]
            if kept:
                start = data.draw(st.sampled_from(kept), label="from")
                name = f"resume/{len(run.branches)}"
            else:
                name = data.draw(st.sampled_from(sorted(run.branches)), label="on")
        self._resume(run, name, start, bundle)

    def _resume(self, run: Run, name: str, start: Any, bundle: str | None) -> None:
        bundle = bundle if run.bundle else None
        fields = {"bundle": bundle} if bundle else {}
        done = run.committed(start.branch, start.seq) if start else run.committed(name)
        record = self.store.get(run.id)
        if len(done) == len(run.plan.tasks):
            with pytest.raises(Conflict):
                self.store.resume(record, name, start=start, fields=fields, plan=None)
            self.check(unchanged=True)
            return
        assert self.store.resume(record, name, start=start, fields=fields, plan=None) == "resumed"
        self.model.resume(run, name, (start.branch, start.seq, start.id) if start else None, bundle)
        self.check()
        # Another one who saw the run as it was comes too late.
        assert self.store.resume(record, name, start=start, fields=fields, plan=None) == "changed"
        self.check(unchanged=True)

    # -- workers

    @rule(worker=workers, anew=st.booleans())
    def register(self, worker: str, anew: bool) -> None:
        about = f'{{"client_id": {next(self.numbers)}}}' if anew else ""
        stood = self.fleet.beat(worker, LEASE, about).stood
        assert stood == self.model.beat(worker, about, LEASE)
        self.check()

    @rule(worker=workers, process=processes)
    def process_died(self, worker: str, process: str) -> None:
        self._reap(worker, process=process)

    @rule(worker=workers, late=st.booleans())
    def connection_closed(self, worker: str, late: bool) -> None:
        """Judged by what the worker said of itself; it may have come back since."""
        known = self.model.workers.get(worker)
        self._reap(worker, about="{}" if late or known is None else known.about)

    @rule(worker=workers)
    def lease_looked_at(self, worker: str) -> None:
        self._reap(worker, only_lapsed=True)

    def _reap(self, worker: str, *, process: str = "", about: str = "", only_lapsed: bool = False) -> None:
        how: dict[str, Any] = {"process": process, "about": about, "only_lapsed": only_lapsed}
        refs = self.fleet.reap(worker, reason="it is gone", max_attempts=MOST_ATTEMPTS, **how)
        back = self.model.reap(worker, most=MOST_ATTEMPTS, **how)
        assert set(refs) == {"|".join(place) for place in back or ()}
        self.check(unchanged=back is None)

    @rule(ms=st.sampled_from([1, 700, 3000, LEASE, 30_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.go_on(ms)
        self.model.now = self.clock.now

    # -- messages

    def _messages(self) -> list[str]:
        return [queue for queue in QUEUES if self.model.lists[queue]]

    def _next(self, queue: str) -> Job:
        job = Job(*job_of(self.redis.rpop(queue)))
        assert job == self.model.lists[queue].pop()
        self.delivered.append(job)
        return job

    @precondition(_messages)
    @rule(data=st.data(), worker=workers, process=processes, lost=seldom)
    def deliver(self, data: Any, worker: str, process: str, lost: bool) -> None:
        """A worker takes a message and claims its task; the answer may get lost, and it asks again."""
        self._claim(self._next(data.draw(st.sampled_from(self._messages()))), worker, process, lost=lost)

    @precondition(_messages)
    @rule(data=st.data(), worker=workers)
    def deliver_and_commit(self, data: Any, worker: str) -> None:
        """Most jobs go well."""
        found = self._claim(self._next(data.draw(st.sampled_from(self._messages()))), worker, "p0")
        if found is not None:
            self._commit(found, 0)

    @precondition(lambda self: self.delivered)
    @rule(data=st.data(), worker=workers, process=processes)
    def deliver_again(self, data: Any, worker: str, process: str) -> None:
        self._claim(data.draw(st.sampled_from(self.delivered)), worker, process)

    @precondition(_messages)
    @rule(data=st.data(), worker=workers, process=processes)
    def deliver_and_hear_nothing(self, data: Any, worker: str, process: str) -> None:
        """The answer to a claim is lost; `ask_again` comes later, whatever happened meanwhile."""
        job = self._next(data.draw(st.sampled_from(self._messages())))
        self._claim(job, worker, process)
        if self.claims and self.claims[-1].job == job:
            self.claims.pop()
        self.asked.append((job, worker, process, self.nonces.next))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def ask_again(self, data: Any) -> None:
        job, worker, process, nonce = data.draw(st.sampled_from(self.asked))
        self._claim(job, worker, process, nonce=nonce)

    @precondition(_messages)
    @rule(data=st.data())
    def lose_message(self, data: Any) -> None:
        self._next(data.draw(st.sampled_from(self._messages())))
        self.check()

    @precondition(_messages)
    @rule(data=st.data())
    def return_message(self, data: Any) -> None:
        """A worker that is about to go sends a job on."""
        job = self._next(data.draw(st.sampled_from(self._messages())))
        return_job(self.line, job)
        self.model.return_job(job)
        self.check()

    @rule(sent=st.booleans())
    def relay(self, sent: bool) -> None:
        """Jobs go to another broker; who hands them over may die before saying so."""
        jobs = self.fleet.outbox()
        assert set(jobs) == self.model.outbox
        for job in jobs:
            self.delivered.append(job)
            if sent:
                self.fleet.sent(job)
                self.model.outbox.discard(job)
        self.check()

    @rule()
    def move_due(self) -> None:
        assert self.fleet.move_due() == self.model.move_due()
        self.check()

    @rule(older=st.sampled_from([0, 1000, 5000]))
    def resend(self, older: int) -> None:
        assert self.fleet.resend(older) == self.model.resend(older)
        self.check()

    # -- tasks

    def _claim(
        self, job: Job, worker: str, process: str, *, nonce: str | None = None, lost: bool = False
    ) -> Claim | None:
        self.nonces.next = nonce or f"n{next(self.numbers)}"
        self.line.lose = int(lost)
        run = self.model.runs[job.run_id]
        committed = self.world.runs[job.run_id].committed(job.branch)
        due = self.model.claim(job, worker, process, self.nonces.next)
        found = claim(self.line, job, worker=worker, process=process)
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
        outputs = run.committed(job.branch)
        wanted = run.plan.by_key[job.task].context or ()
        assert {key: o["raw"] for key, o in found.context.items()} == {key: outputs[key] for key in wanted}
        self.claims.append(found)
        self.check()
        return found

    def _one(self, data: Any) -> tuple[Claim, ClaimedTask]:
        """Any claim there ever was: the newest as likely as all before it, which mostly are lost."""
        last = len(self.claims) - 1
        found = self.claims[data.draw(st.one_of(st.just(last), st.integers(0, last)), label="claim")]
        return found, ClaimedTask(self.line, found)

    def _write(self, due: Any, write: Callable[[], Any], *, again: str = "", lost: bool = False) -> None:
        """``due`` is the answer that the model gives; ``again`` the one to a repeated call whose answer was lost."""
        self.line.lose = int(lost)
        if due == REFUSED or (lost and again == REFUSED):
            with pytest.raises(ClaimLost):
                write()
        else:
            write()
        self.line.lose = 0
        self.check(refused=due == REFUSED)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), step=st.sampled_from(STEPS), replayed=counts, tokens=counts, lost=seldom)
    def do_step(self, data: Any, step: str, replayed: int, tokens: int, lost: bool) -> None:
        claim, task = self._one(data)
        self._begin(claim, task)
        value = f'"{step} {next(self.numbers)}"'
        counted = {"replayed": replayed, "prompt_tokens": 10 * tokens, "completion_tokens": tokens}
        due = self.model.record(claim.job, claim.token, step, value, **counted)
        self._write(due, lambda: task.record_step(step, value, **counted), lost=lost)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), raises=st.booleans())
    def begin_step(self, data: Any, raises: bool) -> None:
        """A step that is not recorded: its process dies in it, or it raises."""
        claim, task = self._one(data)
        self._begin(claim, task)
        if raises:
            task.drop_step()
            if held := self.model.held(claim.job, claim.token):
                held.begun -= 1
            self.check()

    def _begin(self, claim: Claim, task: ClaimedTask) -> None:
        task.begin_step()
        self.line.execute_command("PING")  # nobody waits for a step's begin; the test does
        held = self.model.held(claim.job, claim.token)
        if held:
            held.begun += 1
        self.check(unchanged=not held)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def note(self, data: Any) -> None:
        claim, task = self._one(data)
        if self.model.held(claim.job, claim.token):
            task.note("log", "it gets on")
        else:
            with pytest.raises(ClaimLost):
                task.note("log", "too late")
        self.check(refused=True)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), replayed=counts, lost=seldom)
    def commit(self, data: Any, replayed: int, lost: bool) -> None:
        """A second commit with the same token is the first one, heard again."""
        claim, _ = self._one(data)
        self._commit(claim, replayed, lost=lost)

    def _commit(self, claim: Claim, replayed: int, *, lost: bool = False) -> None:
        job = claim.job
        run = self.model.runs[job.run_id]
        repeated = job.task in run.branches[job.branch].outputs
        text = f"{job.task} by {claim.token}"
        due = self.model.commit(job, claim.token, text, replayed)
        unlocks = run.plan.dependents[job.task]

        def write() -> None:
            task = ClaimedTask(self.line, claim)
            assert task.commit(dump(text, None), unlocks, replayed=replayed) == due

        before = self.world
        self._write(due, write, lost=lost)
        if due != REFUSED and repeated:
            assert self.world.values() == before.values()
        if due != REFUSED:
            tokens = self.written.setdefault((job.run_id, job.branch, job.task), set())
            tokens.add(claim.token)
            assert tokens == {claim.token}, "committed once"

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), replayed=counts, lost=seldom)
    def release(self, data: Any, replayed: int, lost: bool) -> None:
        claim, task = self._one(data)
        due = self.model.release(claim.job, claim.token, replayed)
        self._write(due, lambda: task.release(replayed=replayed), again=REFUSED, lost=lost)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), delay=st.sampled_from([0, 1, 2000]), lost=seldom)
    def retry(self, data: Any, delay: int, lost: bool) -> None:
        claim, task = self._one(data)
        due = self.model.retry(claim.job, claim.token, delay, 1)
        self._write(due, lambda: task.retry(delay / 1000, "it raised", replayed=1), again=REFUSED, lost=lost)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), lost=seldom, rarely=st.booleans())
    def fail(self, data: Any, lost: bool, rarely: bool) -> None:
        if rarely:
            claim, task = self._one(data)
            due = self.model.fail(claim.job, claim.token, 1)
            self._write(due, lambda: task.fail("it cannot be done", replayed=1), again=REFUSED, lost=lost)

    # -- the end

    def teardown(self) -> None:
        """One live worker is enough for every run to end, and for those that failed or were cancelled to be resumed."""
        if not self.model.runs:
            return
        self.time_passes(LEASE)
        for worker in list(self.model.workers):
            self.lease_looked_at(worker)
        assert self.model.workers == {}
        for _ in range(200):
            self.register("fresh", anew="fresh" not in self.model.workers)
            self.time_passes(2500)
            self.move_due()
            self.resend(1000)
            self.delivered = []
            self.relay(sent=True)
            for queue in QUEUES:
                while self.model.lists[queue]:
                    self._next(queue)
            for job in self.delivered:
                found = self._claim(job, "fresh", "p0")
                if found is not None:
                    self._commit(found, 0)
            over = [run for run in self.model.runs.values() if run.status != "running"]
            if len(over) == len(self.model.runs):
                if all(run.status == "completed" for run in over):
                    break
                for run in over:
                    if run.status != "completed":
                        self._resume(run, run.branch, None, None)
        assert {run.status for run in self.model.runs.values()} == {"completed"}, "every run ends"
        self._reap("fresh")
        names = {entry.name for entry in self.world.entries.values() if entry.ttl < 0}
        assert names <= {"runs_key", "expiring_key", "test"}, "nothing of a run stays for ever"


@pytest.mark.timeout(0 if EXAMPLES else 180)
def test_every_history_agrees_with_the_model_and_keeps_the_laws(
    redis: Redis, line: LossyLine, clock: Clock, nonces: SimpleNamespace
) -> None:
    run_state_machine_as_test(
        lambda: Protocol(redis, line, clock, nonces), settings=settings(settings.get_profile("providers"))
    )
