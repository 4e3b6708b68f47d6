"""Each operation, done to Redis and to memory alike; what the two answer, and all they hold, must agree."""

import contextlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine
from redis import Redis

from runner.client import forking
from runner.core.errors import ClaimLost, Conflict
from runner.core.jobs import Claim, Job, Refusal
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage
from runner.core.output import dump
from runner.core.plan import Plan
from runner.core.plan.branching import branch_plan, visible
from runner.core.plan.dependencies import NOTHING, ReadSet
from runner.journal.recorder import BegunStep, DoneStep
from runner.providers.memory import MemoryStore
from runner.providers.memory.state import Run
from runner.providers.memory.task import MemoryTask
from runner.providers.records import CheckpointRecord, DeferredEvent, HeldClaim
from runner.providers.redis import scripts, store
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.runs import Runs
from runner.providers.redis.store import ClaimedTask
from runner.providers.redis.workers import Workers
from runner.testing import ManualClock

from .checks import Laws, agree, job_of, moved
from .conftest import Clock, LossyLine
from .driver import KEEP, LEASE
from .observed import look


class Event:
    """An event that a task's code told, to Redis and to memory, and maybe as one that goes with the next write."""

    def __init__(self, kind: str, about: str, **how: Any) -> None:
        self.kind, self.about, self.how = kind, about, how
        self.redis, self.memory = DeferredEvent(), DeferredEvent()

    def tell(self, side: str, tell: Callable[..., Any]) -> Any:
        """Tell one of them."""
        how = {name: getattr(one, side) if isinstance(one, Event) else one for name, one in self.how.items()}
        return tell(self.kind, self.about, **how)


class Task:
    """A claimed task on both sides, on a connection of its own as a process has it."""

    def __init__(self, redis: ClaimedTask, memory: MemoryTask, line: LossyLine) -> None:
        self.redis, self.memory, self.line = redis, memory, line
        self.deferred: list[Event] = []  #: of which Redis may not have heard
        self.settle: Callable[[], None] | None = None  #: waits for a record that was posted
        self.is_refused = False  #: that record was, which its process has not heard
        self.refusal: Callable[[], Any] | None = None  #: what memory has still to be asked for then

    def __iter__(self) -> Iterator[Any]:
        return iter((self.redis, self.memory))

    def flush(self) -> None:
        """Redis hears of the deferred events ahead of what comes next: so does memory."""
        for event in self.deferred:
            try:
                event.memory.sequence = event.tell("memory", self.memory.append_event)
            except ClaimLost:
                event.memory.sequence = 0
        self.deferred = []


QUEUES = ("jobs", "other jobs")
BUNDLES = ("b0", "b1")
MOST_ATTEMPTS = 3
MOST_HANDOVERS = 3
REFUSED = "refused"


class Operations(RuleBasedStateMachine):
    """Redis, memory, and who uses them. Every method ends with a `check`."""

    def __init__(self, redis: Redis, line: LossyLine, clock: Clock, nonces: SimpleNamespace) -> None:
        super().__init__()
        redis.flushall()
        clock.reset()
        self.redis, self.line, self.clock, self.nonces = redis, line, clock, nonces
        self.store = Runs(redis)
        self.fleet = Workers(redis)
        self.time = ManualClock(clock.now / 1000)
        self.memory = MemoryStore(self.time)
        self.laws = Laws()
        self.claims: list[Claim] = []
        self.delivered: list[Job] = []
        self.written: dict[tuple[str, str, str], set[int]] = {}
        self.numbers = itertools.count(1)
        self.too_late: Counter[str] = Counter()  # steps by run that were begun after the claim was lost
        line.end()
        for name in ("record_steps", "record_call"):  # of a script that the server has not, what is posted is not done
            redis.script_load(scripts.load(name).text)
        self._tasks: dict[tuple[str, int], Task] = {}
        self._pages: dict[tuple[str, int], dict[str, str]] = {}  # what the two say of their calls
        for sha in BUNDLES:
            assert self.store.put_bundle(sha, b"packed")
            assert self.memory.runs.put_bundle(sha, b"packed")
        self.world = look(redis, set(QUEUES))

    @property
    def runs(self) -> dict[str, Run]:
        """The runs, as memory has them."""
        return self.memory.memory.runs

    def check(self, *, unchanged: bool = False, refused: bool = False) -> None:
        """The two agree, and keep the laws. What was refused may have added an event, no more."""
        before, self.world = self.world, look(self.redis, set(QUEUES))
        if unchanged or refused:
            assert self.world.values(but_events=refused) == before.values(but_events=refused)
        moved(before, self.world)
        agree(self.world, self.memory, self.too_late)
        self.laws.hold(self.world)

    # -- runs

    def submit(self, run_id: str, plan: Plan, options: dict[str, Any]) -> None:
        """Create a run; a second time, which changes nothing."""
        queue = QUEUES[options["queue"]]
        fields = {
            "crew": plan.crew,
            "adapter": "native",
            "bundle": options["bundle"],
            "module": "crew",
            "attr": "crew",
            "plan": plan.digest,
            "inputs": '{"topic": "ü"}',
            "queue": queue,
            "keep": str(KEEP),
            "checkpoint_on": f",{','.join(sorted(options['triggers']))}," if options["triggers"] else "",
            "max_checkpoints": str(options["most"]),
            "envelope": "" if options["relayed"] else DIRECT,
        }
        assert self.store.create(run_id, plan, fields) == self.memory.runs.create(run_id, plan, fields) == "created"
        self.check()
        assert self.store.create(run_id, plan, fields) == self.memory.runs.create(run_id, plan, fields) == "exists"
        self.check(unchanged=True)

    def cancel(self, run: Run, only: str | None = None) -> None:
        was = self.memory.runs.cancel(run.id, "a person said so", only)
        assert self.store.cancel(run.id, "a person said so", only) == was
        self.check(unchanged=was not in ("running", "waiting"))

    def resume(
        self,
        run: Run,
        name: str,
        start: CheckpointRecord | None = None,
        bundle: str | None = None,
        plan: Plan | None = None,
    ) -> None:
        """Let a run go on. A second one, who saw the run as it was, comes too late."""
        bundle = bundle if run.fields["bundle"] else None
        fields = ({"bundle": bundle} if bundle else {}) | ({"plan": plan.digest} if plan else {})
        seen = self.store.get(run.id), self.memory.runs.get(run.id)
        assert seen[0] == replace(seen[1], in_doubt=seen[1].in_doubt + self.too_late[run.id])
        how: dict[str, Any] = {"start": start, "fields": fields, "plan": plan}
        done = visible(run.lines(start.branch), start.seq) if start else visible(run.lines(name))
        if len(done) == len((plan or run.plan).tasks):
            for store, record in ((self.store, seen[0]), (self.memory.runs, seen[1])):
                with pytest.raises(Conflict):
                    store.resume(record, name, **how)
            self.check(unchanged=True)
            return
        due = self.memory.runs.resume(seen[1], name, **how)
        assert self.store.resume(seen[0], name, **how) == due
        self.check(unchanged=due in ("busy", "changed"))
        if due == "resumed":
            assert self.memory.runs.resume(seen[1], name, **how) == "changed"
            assert self.store.resume(seen[0], name, **how) == "changed"
            self.check(unchanged=True)

    def fork(
        self, run: Run, at: CheckpointRecord | str, name: str, edits: dict[str, str], inputs: dict[str, Any]
    ) -> None:
        """A new branch, from a checkpoint or the newest position of a branch. Then its name is taken."""
        source, checkpoint = (at, None) if isinstance(at, str) else (None, at.id)
        fork = partial(
            forking.fork,
            self.redis,
            run.id,
            checkpoint=checkpoint,
            source=source,
            branch=name,
            inputs=inputs,
            edits=edits,
        )
        where = self.memory.runs.position(run.id, checkpoint=checkpoint, branch=source, outputs=edits)
        changed = {key: value for key, value in inputs.items() if where.inputs.get(key) != value}
        again = self._touched(run, where.branch, where.seq, edits.keys(), changed.keys())
        rerun = frozenset(run.plan.by_key.keys() - where.done.keys() | again)
        ready = {key for key in rerun if rerun.isdisjoint(run.plan.earlier(key))}
        kept = {key for key in ready - again if not changed and edits.keys().isdisjoint(run.plan.earlier(key))}
        texts = {key: dump(text, None) for key, text in edits.items()}
        create = partial(
            self.memory.runs.fork,
            *(where, name),
            rerun=rerun,
            kept=kept,
            edits=texts,
            overrides=where.overrides | changed,
        )
        assert create() == "forked"
        assert fork()[0] == name
        self.check()
        assert create() == "taken"
        with pytest.raises(Conflict):
            fork()
        self.check(unchanged=True)

    @staticmethod
    def _touched(run: Run, name: str, upto: float, edits: Set[str], inputs: Set[str]) -> set[str]:
        """Of what is done there, what used one of these, or what used what used one of these."""
        seen = visible(run.lines(name), upto)
        changed = set(edits)
        while True:
            more = set()
            for key in seen.keys() & run.plan.by_key.keys() - changed:
                used = seen[key][1].used
                if used.edited:
                    continue
                read = set(run.plan.by_key[key].context or ()) | used.tasks
                if "*" in read:
                    read |= set(run.plan.earlier(key))
                if read & changed or used.inputs & inputs or ("*" in used.inputs and inputs):
                    more.add(key)
            if not more:
                return changed - edits
            changed |= more

    def answer(self, run: Run, branch: str, which: int, text: str) -> None:
        """A person answers; a second time, which is too late."""
        questions = self.memory.runs.questions(run.id, branch)
        assert self.store.questions(run.id, branch) == questions
        question = questions[which]
        due = self.memory.runs.answer(run.id, branch, question, text)
        assert self.store.answer(run.id, branch, question, text) == due
        self.check(unchanged=due != "answered")
        if due == "answered":
            assert self.memory.runs.answer(run.id, branch, question, '"too late"') == "not asked"
            assert self.store.answer(run.id, branch, question, '"too late"') == "not asked"
            self.check(unchanged=True)

    # -- workers

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
            pages = {claim.process: self._pages.get((claim.ref, claim.token), {}) for claim in claims}
            unheard = {claim.process for claim in claims if self._is_unheard(claim.ref, claim.token)}
            same = {process for process, page in pages.items() if page.get("redis") == page.get("memory")}
            assert same | unheard == pages.keys()
            how["out"] = {process: page["redis"] for process, page in pages.items() if page}
        refs = self.fleet.reap(worker, **how)
        assert set(refs) == set(self.memory.workers.reap(worker, **how))
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

    # -- tasks

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
        assert _comparable(found) == _comparable(due), "the same claim, with all that is needed to do the task"
        self.claims.append(found)
        self.check()
        return found

    def write(
        self, claim: Claim, write: Callable[[Any], Any], *, again: str = "", lost: bool = False, silent: bool = False
    ) -> Any:
        """Do it to both; returns memory's answer, or that it refused. An answer that is ``lost`` is asked for again;
        ``again`` says where that is refused, as the first one ended the claim. ``silent``: a script comes first that
        says nothing of a refusal among the run's events, and whose answer is the one that is lost."""
        task = self._task(claim)
        redis, memory = task
        lost = lost and task.settle is None
        if self._heard_refusal(task, partial(write, redis)):
            return REFUSED
        if lost and task.deferred:  # what is to be lost is the answer to this write
            task.line.load(redis._append.script)
        task.flush()
        due = _answer(partial(write, memory))
        if lost and not silent and (due is REFUSED or again is REFUSED):
            assert _answer(partial(write, memory)) is REFUSED
        task.line.reconnected = False  # likewise
        if lost and again is REFUSED and redis._reserved is False:  # nor to the note that is owed before an end
            with contextlib.suppress(ClaimLost):
                redis._note_surely()
        task.line.lose = int(lost)
        found = _answer(partial(write, redis))
        task.line.lose = 0
        assert found == (REFUSED if lost and again is REFUSED else due)
        self.check(refused=due is REFUSED)
        return due

    def _heard_refusal(self, task: Task, write: Callable[[], Any]) -> bool:
        """Whatever is written after a record that was posted hears first what came of that: where it was refused,
        nothing is written."""
        if not task.is_refused:
            task.settle = None
            return False
        assert _answer(write) is REFUSED
        self._refuse(task)
        return True

    def _refuse(self, task: Task) -> None:
        refusal, task.settle, task.is_refused, task.refusal = task.refusal, None, False, None
        assert refusal is None or _answer(refusal) is REFUSED
        self.check(refused=True)

    def _is_unheard(self, ref: str, token: int) -> bool:
        """Whether a process does not know yet that its record came."""
        task = self._tasks.get((ref, token))
        return task is not None and task.settle is not None

    def log(self, claim: Claim) -> None:
        self.write(claim, lambda task: task.note("log", "so far"))

    def tell(self, claim: Claim, kind: str, **how: Any) -> Event | None:
        """Returns the event; None where the claim is lost."""
        event = Event(kind, claim.job.task, more={"tool": "x"}, **how)

        def tell(task: Any) -> int:
            side = "memory" if isinstance(task, MemoryTask) else "redis"
            getattr(event, side).sequence = seq = event.tell(side, task.append_event)
            return int(seq)

        return None if self.write(claim, tell) is REFUSED else event

    def defer(self, claim: Claim, kind: str, **how: Any) -> Event:
        """Tell an event that goes with the next write, of which memory hears then."""
        task, event = self._task(claim), Event(kind, claim.job.task, more={"tool": "x"}, **how)
        event.redis = event.tell("redis", task.redis.defer_event)
        task.deferred.append(event)
        self.check(unchanged=True)
        return event

    def send_late(self, claim: Claim) -> None:
        """Nothing was written for a moment after events were told: they go by themselves."""
        task = self._task(claim)
        if task.settle is None:
            task.flush()
        task.redis._send_deferred()
        if task.settle is None:
            task.line.settle()
        self.check()

    def lose_events(self, claim: Claim, when: str) -> None:
        """Events that were told are lost with their connection as they go with what is written next, ``before`` they
        are there or ``after``: here, with what does not return before they are there."""
        task = self._task(claim)
        if task.deferred and task.settle is None and self.memory.holds(claim):
            task.line.load(task.redis._append.script)
            task.line.lose_events = when

    def begin_step(self, claim: Claim, entry: AccountKey = STEP, *, soon: bool = True) -> None:
        """Nobody waits for the answer where the store was heard a moment ago, so who lost the claim does the step all
        the same, and learns that later. Where that was not ``soon``, it waits; and no reserved note is used."""
        task = self._task(claim)
        redis, memory = task
        if self._heard_refusal(task, lambda: redis.begin_step(entry)):
            return
        task.flush()
        heard = redis._heard
        if not soon or (entry != STEP and not self.memory.holds(claim)):  # a call too late is held by `test_reserved`
            redis._heard = -math.inf
            if task.settle is not None:
                redis._posted.at = -math.inf
            memory._next.begins(entry, soon=False)
            memory._reserve(None)
        due = _answer(lambda: memory.begin_step(entry))
        found = _answer(lambda: redis.begin_step(entry))
        redis._heard = max(heard, redis._heard)
        task.line.settle()  # nobody waits for a step's begin; the test does
        if due is REFUSED and found is not REFUSED:
            self.too_late[claim.job.run_id] += 1
        else:
            assert found == due
        self.check()

    def begin_steps(self, claim: Claim, begins: list[AccountKey]) -> None:
        """Several begin at about the same time. Who lost the claim: as one step."""
        task = self._task(claim)
        if not self.memory.holds(claim) or task.is_refused:
            return
        task.settle = None
        task.flush()
        for side in task:
            side.begin_steps([BegunStep(entry) for entry in begins])
        task.line.settle()
        self.check()

    def drop_step(self, claim: Claim, entry: AccountKey = STEP) -> None:
        task = self._task(claim)
        if self._heard_refusal(task, lambda: task.redis.drop_step(entry)):
            return
        task.flush()
        held = self.memory.holds(claim)
        task.memory.drop_step(entry)
        task.redis.drop_step(entry)
        task.line.settle()
        self.check(unchanged=not held)

    def record_step(
        self, claim: Claim, step: str, *, entry: AccountKey = STEP, replayed: int, tokens: int, lost: bool
    ) -> None:
        value = f'"{step} {next(self.numbers)}"'
        usage = Usage(10 * tokens, tokens, *([3, 0, 0, 1] if tokens > 1 else [])) if tokens else NO_TOKENS
        served: Counters | int = replayed
        if entry.kind == "model":
            served = Counters()
            for _ in range(replayed):
                served.served(entry, Usage(7, 2))
        self.write(
            claim,
            lambda task: task.record_step(step, value, replayed=served, entry=entry, usage=usage),
            lost=lost,
            silent=not replayed and (entry.kind == "model" or (entry.kind == "step" and not tokens)),
        )

    def record_steps(
        self,
        claim: Claim,
        steps: dict[str, AccountKey | None],
        *,
        dropped: int,
        begins: list[AccountKey],
        replayed: int,
        tokens: int,
        lost: bool,
        posted: bool = False,
    ) -> None:
        """Record several; ``posted``: without waiting for the answer."""
        usage = Usage(10 * tokens, tokens, *([3, 0, 0, 1] if tokens > 1 else []))
        done = [
            DoneStep(step, f'"{step} {next(self.numbers)}"', entry, usage if entry not in (None, STEP) else NO_TOKENS)
            for step, entry in steps.items()
        ]
        how = {"dropped": dropped, "begins": [BegunStep(entry) for entry in begins], "replayed": replayed}
        if not posted:
            self.write(claim, lambda task: task.record_steps(done, **how), lost=lost)
            return
        self.post(claim, lambda task: task.record_steps(done, **how), lambda task: task.post_steps(done, **how))

    def post_step(self, claim: Claim, step: str, entry: AccountKey, usage: Usage) -> None:
        """Record a call without waiting for the answer."""
        how: dict[str, Any] = {"replayed": 0, "entry": entry, "usage": usage, "reported": False}
        value = f'"{step} {next(self.numbers)}"'
        self.post(
            claim,
            lambda task: task.record_step(step, value, **how),
            lambda task: task.post_step(step, value, **how),
            silent=True,
        )

    def post(
        self,
        claim: Claim,
        write: Callable[[MemoryTask], None],
        post: Callable[[ClaimedTask], Callable[[], None]],
        *,
        silent: bool = False,
    ) -> None:
        """Redis has the record when this returns, and the process does not know that yet. ``silent``: a refusal is
        among the run's events only when the process hears of it."""
        task = self._task(claim)
        if self._heard_refusal(task, lambda: post(task.redis)):
            return
        task.flush()
        task.line.reconnected = False
        settle = post(task.redis)
        task.settle = settle
        if silent and not self.memory.holds(claim):
            task.is_refused, task.refusal = True, partial(write, task.memory)
        else:
            task.is_refused = _answer(partial(write, task.memory)) is REFUSED
        self.check(refused=task.is_refused)

    def hear(self, claim: Claim, *, lost: bool) -> None:
        """The process hears what came of the record that it posted; if it is ``lost`` with its connection, it asks
        again."""
        task = self._task(claim)
        if task.settle is None:
            return
        if lost and not task.is_refused:
            task.line.close()
        assert (_answer(task.settle) is REFUSED) == task.is_refused
        if task.is_refused:
            self._refuse(task)
        else:
            task.settle = None
            self.check(unchanged=not lost)

    def commit(
        self,
        claim: Claim,
        *,
        replayed: int = 0,
        lost: bool = False,
        used: ReadSet = NOTHING,
        process: str = "",
        queue: str = "",
    ) -> None:
        """A commit heard twice is one commit, and learns how the run stands now. A process may continue with what it
        made ready, or with what waits in a queue."""
        job = claim.job
        run = self.runs[job.run_id]
        repeated = job.task in run.branches[job.branch].outputs
        unlocks = branch_plan(run.plan, claim.rerun_mask).dependents[job.task]
        text, before = dump(f"{job.task} by {claim.token}", None), self.world
        self.nonces.next = f"n{next(self.numbers)}"
        how = {"replayed": replayed, "used": used, "ms": 5, "process": process, "queue": queue}
        due = self.write(claim, lambda task: task.commit(text, unlocks, **how), lost=lost)
        if due is not REFUSED:
            self._continues(claim, repeated)
            assert not repeated or self.world.values() == before.values()
            task = self._task(claim)
            assert task.redis.end_events[0] in (0, task.memory.end_events[0])
            tokens = self.written.setdefault((job.run_id, job.branch, job.task), set())
            tokens.add(claim.token)
            assert tokens == {claim.token}, "committed once"

    def _continues(self, claim: Claim, repeated: bool) -> None:
        found, due = (task.next for task in self._task(claim))
        assert (found is None) == (due is None)
        if found is not None and due is not None:
            assert _comparable(found) == _comparable(due), "the same claim, with all that is needed to do the task"
            if not repeated:
                self.claims.append(found)

    def ask(self, claim: Claim, step: str, *, replayed: int, lost: bool) -> None:
        question = json.dumps({"message": f"{step}?"})
        self.write(claim, lambda task: task.ask(step, question, replayed=replayed), again=REFUSED, lost=lost)

    def release(self, claim: Claim, *, replayed: int, lost: bool) -> None:
        how = {"replayed": replayed, "max_handovers": MOST_HANDOVERS}
        self.write(claim, lambda task: task.release(**how), again=REFUSED, lost=lost)

    def retry(self, claim: Claim, delay: int, *, replayed: int, lost: bool) -> None:
        how = {"replayed": replayed, "trace": "where"}
        self.write(claim, lambda task: task.retry(delay / 1000, "it raised", **how), again=REFUSED, lost=lost)

    def fail(self, claim: Claim, *, replayed: int, lost: bool) -> None:
        self.write(claim, lambda task: task.fail("no way", replayed=replayed), again=REFUSED, lost=lost)

    def _task(self, claim: Claim) -> Task:
        place = (claim.job.ref, claim.token)
        if place not in self._tasks:
            said = self._pages[place] = {}
            line = self.line.beside(len(self._tasks))
            redis = ClaimedTask(line.side(), claim, partial(said.__setitem__, "redis"))
            memory = MemoryTask(self.memory.memory, claim, partial(said.__setitem__, "memory"))
            self._tasks[place] = Task(redis, memory, line)
        return self._tasks[place]


def _answer(write: Callable[[], Any]) -> Any:
    try:
        return write()
    except ClaimLost:
        return REFUSED


def _comparable(claim: Claim) -> dict[str, Any]:
    """All of it; of outputs, without whose they were among several claims, which Redis keeps."""
    found = {name: value for name, value in claim._asdict().items() if name != "stored_inputs"}
    lasting = {key: {k: v for k, v in one.items() if k != "of"} for key, one in claim.context.items()}
    return found | {"context": lasting}
