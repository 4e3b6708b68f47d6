"""Random histories of runs and workers, each step held against a model, the laws, and the tables of moves."""

import itertools
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from redis import Redis

from runner.errors import ClaimLost, Conflict
from runner.output import dump
from runner.plan import Plan
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
FATES = (
    *("beats", "beats", "registers", "registers", "lost a process", "lapsed, maybe", "closed its connection"),
    "closed its connection and came back",
)
STEPS = ("fetch", "ask#2", "sum 'ü' %1")
ENDS = ("recorded", "recorded", "answer lost", "raised", "died", "only a log")
HOW = ("commit", "commit", "release", "retry", "fail", "fail")

workers = st.sampled_from(WORKERS)
processes = st.sampled_from(PROCESSES)
counts = st.integers(0, 2)
seldom = st.integers(0, 4).map(lambda n: n == 4)

#: What can happen, and when. Of each history, some kinds of trouble are left out.
ACTIONS: dict[str, Callable[["Protocol"], Any] | None] = {
    "create": lambda self: len(self.model.runs) < 4,
    "steer": None,
    "fare": None,
    "supervise": None,
    "deliver": lambda self: self._messages(),
    "lose_message": lambda self: self._messages(),
    "deliver_again": lambda self: self.delivered,
    "ask_again": lambda self: self.asked,
    "do_step": lambda self: self.claims,
    "end": lambda self: self.claims,
}
WORK = ("create", "steer", "deliver", "deliver", "do_step", "end")


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

    # -- what happens next

    @initialize(data=st.data(), mood=st.fixed_dictionaries(dict.fromkeys(ACTIONS, st.integers(0, 2))))
    def begin(self, data: Any, mood: dict[str, int]) -> None:
        self.mood = [action for action, weight in mood.items() for _ in range(weight)] + list(WORK * 3)
        for worker in WORKERS[:2]:
            self._beat(worker, "{}")
        self.create(data)

    @rule(data=st.data())
    def act(self, data: Any) -> None:
        """One rule for all actions: of many rules, Hypothesis leaves half out of each history."""
        possible = [action for action in self.mood if not (needs := ACTIONS[action]) or needs(self)]
        getattr(self, data.draw(st.sampled_from(possible), label="action"))(data)

    # -- runs

    def create(self, data: Any) -> None:
        options = data.draw(plans.options(), label="options")
        run = Run(
            id=f"r-{len(self.model.runs)}",
            plan=data.draw(plans.plans(), label="plan"),
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

    def steer(self, data: Any) -> None:
        """A person stops a run, or lets one go on: where it stood, from a checkpoint, or on another branch."""
        run = self.model.runs[data.draw(st.sampled_from(list(self.model.runs)), label="run")]
        how = data.draw(st.sampled_from(["resume", "resume elsewhere", "resume elsewhere", "cancel"]))
        if how == "cancel" and (data.draw(seldom) or run.status != "running"):
            was = run.status
            assert self.store.cancel(run.id, "a person said so") == self.model.cancel(run)
            self.check(unchanged=was != "running")
        elif how != "cancel" and run.status != "running":
            name, start = run.branch, None
            bundle = data.draw(st.sampled_from([None, None, *BUNDLES]))
            kept = [c for branch in sorted(run.branches) for c in self.store.checkpoints(run.id, branch)]
            if how == "resume elsewhere" and kept:
                start = kept[data.draw(st.integers(0, len(kept) - 1), label="from")]
                name = f"resume/{len(run.branches)}"
            elif how == "resume elsewhere":
                name = data.draw(st.sampled_from(sorted(run.branches)), label="on")
            plan = plans.longer(run.plan) if data.draw(seldom, label="longer") else None
            self._resume(run, name, start, bundle, plan)

    def _resume(
        self, run: Run, name: str, start: Any = None, bundle: str | None = None, plan: Plan | None = None
    ) -> None:
        bundle = bundle if run.bundle else None
        fields = {"bundle": bundle} if bundle else {}
        done = run.committed(start.branch, start.seq) if start else run.committed(name)
        record = self.store.get(run.id)
        resume = partial(self.store.resume, record, name, start=start, fields=fields, plan=plan)
        if len(done) == len((plan or run.plan).tasks):
            with pytest.raises(Conflict):
                resume()
            self.check(unchanged=True)
            return
        assert resume() == "resumed"
        self.model.resume(run, name, (start.branch, start.seq, start.id) if start else None, bundle, plan)
        self.check()
        # Another one who saw the run as it was comes too late.
        assert resume() == "changed"
        self.check(unchanged=True)

    # -- workers

    def fare(self, data: Any) -> None:
        """A worker beats, or registers anew; or a supervisor judges it, maybe by what it said before it came back."""
        worker, process = data.draw(workers), data.draw(processes)
        known = self.model.workers.get(worker)
        match data.draw(st.sampled_from(FATES)):
            case "beats":
                self._beat(worker)
            case "registers":
                self._beat(worker, f'{{"client_id": {next(self.numbers)}}}')
            case "lost a process":
                self._reap(worker, process=process)
            case "lapsed, maybe":
                self._reap(worker, only_lapsed=True)
            case "closed its connection":
                self._reap(worker, about=known.about if known else "it was never here")
            case "closed its connection and came back":
                self._reap(worker, about="it was another one")

    def _beat(self, worker: str, about: str = "") -> None:
        stood = self.fleet.beat(worker, LEASE, about).stood
        assert stood == self.model.beat(worker, about, LEASE)
        self.check()

    def _reap(self, worker: str, *, process: str = "", about: str = "", only_lapsed: bool = False) -> None:
        how: dict[str, Any] = {"process": process, "about": about, "only_lapsed": only_lapsed}
        refs = self.fleet.reap(worker, reason="it is gone", max_attempts=MOST_ATTEMPTS, **how)
        back = self.model.reap(worker, most=MOST_ATTEMPTS, **how)
        assert set(refs) == {"|".join(place) for place in back or ()}
        self.check(unchanged=back is None)

    # -- messages

    def _messages(self) -> list[str]:
        return [queue for queue in QUEUES if self.model.lists[queue]]

    def _next(self, queue: str) -> Job:
        job = Job(*job_of(self.redis.rpop(queue)))
        assert job == self.model.lists[queue].pop()
        self.delivered.append(job)
        self.check()
        return job

    def deliver(self, data: Any) -> None:
        """A worker takes a message and claims its task. If the answer is lost it asks again, at once or much later."""
        job = self._next(data.draw(st.sampled_from(self._messages())))
        worker, process = self._some_worker(data), data.draw(processes)
        answer = data.draw(st.sampled_from(["heard", "heard", "lost", "lost, and not asked again"]))
        found = self._claim(job, worker, process, lost=answer == "lost")
        if answer == "lost, and not asked again":
            self.asked.append((job, worker, process, self.nonces.next))
            if found is not None:
                self.claims.remove(found)

    def ask_again(self, data: Any) -> None:
        job, worker, process, nonce = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        self._claim(job, worker, process, nonce=nonce)

    def deliver_again(self, data: Any) -> None:
        self._claim(data.draw(st.sampled_from(self.delivered)), self._some_worker(data), data.draw(processes))

    def lose_message(self, data: Any) -> None:
        """A message goes down with its worker; or that one is about to go, and sends it on."""
        job = self._next(data.draw(st.sampled_from(self._messages())))
        if data.draw(st.booleans(), label="returned"):
            return_job(self.line, job)
            self.model.return_job(job)
            self.check()

    def supervise(self, data: Any) -> None:
        """Time passes. What is due or lost is sent; who hands jobs to another broker may die before saying so."""
        ms = data.draw(st.sampled_from([0, 700, 3000, LEASE]), label="ms")
        self._supervise(ms, data.draw(st.sampled_from([0, 1000, 5000]), label="older"), sent=data.draw(st.booleans()))

    def _supervise(self, ms: int, older: int, sent: bool) -> None:
        self.clock.go_on(ms)
        self.model.now = self.clock.now
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
        names = {f"{one.job.ref} {one.token}": one for one in self.claims}
        held = [name for name, one in names.items() if self.model.held(one.job, one.token)]
        found = names[
            data.draw(st.sampled_from(held if held and not data.draw(seldom) else list(names)), label="claim")
        ]
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

    def do_step(self, data: Any) -> None:
        """Mostly it is recorded. Else its process dies in it, or it raises; or there is only something to log."""
        claim, task = self._one(data)
        step, ends = data.draw(st.sampled_from(STEPS)), data.draw(st.sampled_from(ENDS))
        if ends == "only a log":
            self._write(
                None if self.model.held(claim.job, claim.token) else REFUSED, lambda: task.note("log", "so far")
            )
            return
        self._begin(claim, task)
        if ends == "raised":
            task.drop_step()
            if held := self.model.held(claim.job, claim.token):
                held.begun -= 1
            self.check()
        elif ends != "died":
            value = f'"{step} {next(self.numbers)}"'
            tokens = data.draw(counts)
            counted = {"replayed": data.draw(counts), "prompt_tokens": 10 * tokens, "completion_tokens": tokens}
            due = self.model.record(claim.job, claim.token, step, value, **counted)
            self._write(due, lambda: task.record_step(step, value, **counted), lost=ends == "answer lost")

    def _begin(self, claim: Claim, task: ClaimedTask) -> None:
        task.begin_step()
        self.line.execute_command("PING")  # nobody waits for a step's begin; the test does
        held = self.model.held(claim.job, claim.token)
        if held:
            held.begun += 1
        self.check(unchanged=not held)

    def end(self, data: Any) -> None:
        """It is done; it drains; it may try again; it failed for good. A commit may be heard twice, the others not."""
        claim, task = self._one(data)
        job, token = claim.job, claim.token
        replayed, lost = data.draw(counts), data.draw(seldom)
        match data.draw(st.sampled_from(HOW)):
            case "commit":
                self._commit(claim, replayed, lost=lost)
            case "release":
                due = self.model.release(job, token, replayed)
                self._write(due, lambda: task.release(replayed=replayed), again=REFUSED, lost=lost)
            case "retry":
                delay = data.draw(st.sampled_from([0, 2000]))
                due = self.model.retry(job, token, delay, replayed)
                self._write(
                    due, lambda: task.retry(delay / 1000, "raised", replayed=replayed), again=REFUSED, lost=lost
                )
            case "fail":
                due = self.model.fail(job, token, replayed)
                self._write(due, lambda: task.fail("no way", replayed=replayed), again=REFUSED, lost=lost)

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

    # -- the end

    def teardown(self) -> None:
        """One live worker is enough for every run to end, and for those that failed or were cancelled to be resumed."""
        if not self.model.runs:
            return
        self._supervise(LEASE, 1000, sent=True)
        for worker in list(self.model.workers):
            self._reap(worker, only_lapsed=True)
        assert self.model.workers == {}
        for _ in range(200):
            self._beat("fresh", "" if "fresh" in self.model.workers else "{}")
            self.delivered = []
            self._supervise(2500, 1000, sent=True)
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
                        self._resume(run, run.branch)
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
