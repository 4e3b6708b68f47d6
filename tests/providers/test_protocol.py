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
        assert self._create(run) == self.model.create(run) == "created"
        self.check()
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

    @rule(data=st.data(), really=seldom)
    def cancel(self, data: Any, really: bool) -> None:
        run = data.draw(st.sampled_from(list(self.model.runs.values())))
        was = run.status
        if really or was != "running":
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

    @rule(worker=workers, process=processes, how=st.sampled_from(["process", "lease", "connection", "has come back"]))
    def judge(self, worker: str, process: str, how: str) -> None:
        """A process died, a lease may have lapsed, a connection closed; and that of one that registered anew since."""
        known = self.model.workers.get(worker)
        match how:
            case "process":
                self._reap(worker, process=process)
            case "lease":
                self._reap(worker, only_lapsed=True)
            case _:
                self._reap(worker, about=known.about if known and how == "connection" else "as it was before")

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
        self.check()
        return job

    @precondition(_messages)
    @rule(data=st.data(), process=processes, answer=st.sampled_from(["heard", "heard", "lost", "lost, and not asked again"]))
    def deliver(self, data: Any, process: str, answer: str) -> None:
        """A worker takes a message and claims its task. If the answer is lost it asks again, at once or much later."""
        job = self._next(data.draw(st.sampled_from(self._messages())))
        worker = self._some_worker(data)
        found = self._claim(job, worker, process, lost=answer == "lost")
        if answer == "lost, and not asked again":
            self.asked.append((job, worker, process, self.nonces.next))
            if found is not None:
                self.claims.remove(found)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def ask_again(self, data: Any) -> None:
        job, worker, process, nonce = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        self._claim(job, worker, process, nonce=nonce)

    @precondition(_messages)
    @rule(data=st.data())
    def deliver_and_commit(self, data: Any) -> None:
        """Most jobs go well."""
        job = self._next(data.draw(st.sampled_from(self._messages())))
        found = self._claim(job, self._some_worker(data), "p0")
        if found is not None:
            self._commit(found, 0)

    @precondition(lambda self: self.delivered)
    @rule(data=st.data(), process=processes)
    def deliver_again(self, data: Any, process: str) -> None:
        self._claim(data.draw(st.sampled_from(self.delivered)), self._some_worker(data), process)

    @precondition(_messages)
    @rule(data=st.data(), returned=st.booleans())
    def lose_message(self, data: Any, returned: bool) -> None:
        """A message goes down with its worker; or that one is about to go, and sends it on."""
        job = self._next(data.draw(st.sampled_from(self._messages())))
        if returned:
            return_job(self.line, job)
            self.model.return_job(job)
            self.check()

    @rule(older=st.sampled_from([0, 1000, 5000]), sent=st.booleans())
    def supervise(self, older: int, sent: bool) -> None:
        """What is due or lost is sent; who hands jobs to another broker may die before saying so."""
        assert self.fleet.move_due() == self.model.move_due()
        self.check()
        assert self.fleet.resend(older) == self.model.resend(older)
        self.check()
        jobs = self.fleet.outbox()
        assert set(jobs) == self.model.outbox
        self.delivered += jobs
        if jobs and sent:
            for job in jobs:
                self.fleet.sent(job)
            self.model.outbox.clear()
            self.check()

    def _some_worker(self, data: Any) -> str:
        """Mostly one that is registered."""
        registered = [worker for worker in WORKERS if worker in self.model.workers]
        return data.draw(st.sampled_from([*registered, *registered, WORKERS[2]]), label="worker")

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
        """A claim: one that holds, mostly, else any that there ever was."""
        held = [one for one in self.claims if self.model.held(one.job, one.token)]
        found = data.draw(st.sampled_from(held if held and not data.draw(seldom) else self.claims), label="claim")
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
    @rule(data=st.data(), ends=st.sampled_from(["never", "raises", "log"]))
    def begin_step(self, data: Any, ends: str) -> None:
        """A step that is not recorded: its process dies in it, or it raises, or it only logs."""
        claim, task = self._one(data)
        if ends == "log":
            self._write(None if self.model.held(claim.job, claim.token) else REFUSED, lambda: task.note("log", "so far"))
            return
        self._begin(claim, task)
        if ends == "raises":
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
    @rule(data=st.data(), how=st.sampled_from(["release", "retry", "fail"]), delay=st.sampled_from([0, 2000]), lost=seldom)
    def give_back(self, data: Any, how: str, delay: int, lost: bool) -> None:
        """It drains, it may try again, or it failed for good. None of these is heard twice."""
        claim, task = self._one(data)
        match how:
            case "release":
                due = self.model.release(claim.job, claim.token, 1)
                self._write(due, lambda: task.release(replayed=1), again=REFUSED, lost=lost)
            case "retry":
                due = self.model.retry(claim.job, claim.token, delay, 1)
                self._write(due, lambda: task.retry(delay / 1000, "it raised", replayed=1), again=REFUSED, lost=lost)
            case "fail":
                due = self.model.fail(claim.job, claim.token, 1)
                self._write(due, lambda: task.fail("it cannot be done", replayed=1), again=REFUSED, lost=lost)

    # -- the end

    def teardown(self) -> None:
        """One live worker is enough for every run to end, and for those that failed or were cancelled to be resumed."""
        if not self.model.runs:
            return
        self.time_passes(LEASE)
        for worker in list(self.model.workers):
            self._reap(worker, only_lapsed=True)
        assert self.model.workers == {}
        for _ in range(200):
            self.register("fresh", anew="fresh" not in self.model.workers)
            self.time_passes(2500)
            self.delivered = []
            self.supervise(1000, sent=True)
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
