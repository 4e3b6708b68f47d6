"""Random histories of runs and workers: after each step Redis is held against memory, the laws, the tables of moves."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from redis import Redis

from runner.core.jobs import Claim, Job
from runner.core.ledger import STEP, AccountKey, Usage
from runner.core.plan.branching import visible
from runner.core.plan.dependencies import ReadSet
from runner.providers.memory.state import Run
from runner.providers.redis import run_events

from . import plans
from .conftest import EXAMPLES, Clock, LossyLine
from .driver import LEASE
from .run_operations import RunOperations
from .sides import BUNDLES, QUEUES, Event
from .task_operations import TaskOperations
from .worker_operations import WorkerOperations

WORKERS = ("w0", "w1", "w2")
STEPS = ("fetch", "ask#2", "sum 'ü' %1")

workers = st.sampled_from(WORKERS)
processes = st.sampled_from(["p0", "p1"])
counts = st.integers(0, 2)
seldom = st.integers(0, 4).map(lambda n: n == 4)
steering = st.sampled_from(["resume", "resume elsewhere", "resume elsewhere", "cancel", "fork", "fork", "fork"])
inputs = st.sampled_from([{}, {}, {"topic": "ü"}, {"topic": "ö"}, {"added": [1, None]}])
answers = st.sampled_from(["heard", "heard", "lost", "lost, and not asked again"])
step_ends = st.sampled_from(
    [
        *("recorded", "recorded", "answer lost", "raised", "its process died", "only a log", "an event"),
        *("side by side", "one after the other", "posted", "the answer to what was posted"),
    ]
)
task_ends = st.sampled_from(["commit", "commit", "release", "taken back", "retry", "fail", "fail", "ask"])
entries = st.sampled_from(
    [STEP, STEP, AccountKey("model", "A", "gpt"), AccountKey("model", "B", "gpt"), AccountKey("tool")]
)
between = st.sampled_from(["", "", "", "", "", "log", "taken back", "beats", "another message"])
relatives = st.sampled_from([(), ("parent",), ("parent", "cause"), ("cause",)])
sending = st.sampled_from(["", "", "", "go by themselves", "before", "after"])
fates = st.sampled_from(
    [
        *("beats", "registers", "lost a process", "lost a process, and saw it die", "lapsed, maybe"),
        "was asked to end, and was slow",
        *("closed its connection", "closed its connection and came back"),
    ]
)

#: What can happen, and when. In each history all of it happens, but some of the trouble is left out.
ACTIONS: dict[str, Callable[["Protocol"], Any] | None] = {
    "create": lambda self: len(self.runs) < 4,
    "steer": None,
    "answer_one": lambda self: self.asking(),
    "fare": None,
    "supervise": None,
    "deliver": lambda self: self.waiting(),
    "lose_message": lambda self: self.waiting(),
    "deliver_again": lambda self: self.delivered,
    "ask_again": lambda self: self.asked,
    "do_step": lambda self: self.claims,
    "end": lambda self: self.claims,
}
WORK = ("create", "deliver", "deliver", "do_step", "end")


class Protocol(RunOperations, WorkerOperations, TaskOperations):
    """Several runs, workers and supervisors; messages get lost and doubled, answers too, and writes come late."""

    asked: list[tuple[Job, str, str, str]]
    begun: dict[tuple[str, int], list[Event]]  #: events of a claim that have no end yet
    mood: list[str]
    midway = False  #: in an action: where that fails, nothing more is to be shown

    @initialize(data=st.data(), mood=st.fixed_dictionaries(dict.fromkeys(ACTIONS, st.integers(0, 2))))
    def begin(self, data: Any, mood: dict[str, int]) -> None:
        self.mood = [*WORK, *WORK, *WORK, "steer", *(action for action, weight in mood.items() for _ in range(weight))]
        self.asked, self.begun = [], {}
        for worker in WORKERS[:2]:
            self.beat(worker, "{}")
        self.create(data)

    @rule(data=st.data())
    def act(self, data: Any) -> None:
        """One rule for all actions: of many rules, Hypothesis leaves half out of each history."""
        possible = [action for action in self.mood if not (needs := ACTIONS[action]) or needs(self)]
        action = data.draw(st.sampled_from(possible), label="action")
        self.midway = True
        getattr(self, action)(data)
        self.midway = False

    # -- people

    def create(self, data: Any) -> None:
        plan, options = data.draw(plans.plans(), label="plan"), data.draw(plans.options(), label="options")
        self.submit(f"r-{len(self.runs)}", plan, options)

    def steer(self, data: Any) -> None:
        """A person stops a run, or lets one go on: where it stood, from a checkpoint, or on another branch."""
        run = self.runs[data.draw(st.sampled_from(list(self.runs)), label="run")]
        how = data.draw(steering, label="how")
        over = sorted(name for name, branch in run.branches.items() if not branch.live)
        if how == "cancel":
            if not run.live or data.draw(seldom, label="really"):
                self.cancel(run, data.draw(st.sampled_from([None, *sorted(run.branches)]), label="only"))
        elif how == "fork":
            if len(run.branches) < 5:
                self.draw_fork(data, run)
        elif over:
            name, start = run.branch, None
            kept = [c for branch in sorted(run.branches) for c in self.store.checkpoints(run.id, branch)]
            if how == "resume elsewhere" and kept and run.status != "running":
                start = kept[data.draw(st.integers(0, len(kept) - 1), label="from")]
                name = f"resume/{len(run.branches)}"
            elif how == "resume elsewhere" or name not in over:
                name = data.draw(st.sampled_from(over), label="on")
            bundle = data.draw(st.sampled_from([None, None, *BUNDLES]), label="bundle")
            plan = plans.longer(run.plan) if data.draw(seldom, label="longer") else None
            self.resume(run, name, start, bundle, plan)

    def draw_fork(self, data: Any, run: Run) -> None:
        """From any checkpoint or the head of any branch, with some outputs and inputs changed."""
        at: Any = data.draw(st.sampled_from(sorted(run.branches)), label="leaves")
        kept = self.store.checkpoints(run.id, at)
        seq: float = float("inf")
        if kept and data.draw(st.booleans(), label="from a checkpoint"):
            at = data.draw(st.sampled_from(kept), label="which")
            seq = at.seq
        done = sorted(visible(run.lines(getattr(at, "branch", at)), seq).keys() & run.plan.by_key.keys())
        edited = data.draw(st.lists(st.sampled_from(done), max_size=2, unique=True), label="edited") if done else []
        edits = {key: f"edited {next(self.numbers)}" for key in edited}
        self.fork(run, at, f"fork/{len(run.branches)}", edits, data.draw(inputs, label="inputs"))

    def asking(self) -> list[tuple[Run, str]]:
        """The branches on which somebody is asked something."""
        return [(run, name) for run in self.runs.values() for name, branch in run.branches.items() if branch.asked]

    def answer_one(self, data: Any) -> None:
        run, name = data.draw(st.sampled_from(self.asking()), label="where")
        which = data.draw(st.integers(0, run.branches[name].asked - 1), label="which")
        self.answer(run, name, which, f'"answer {next(self.numbers)}"')

    # -- workers and supervisors

    def fare(self, data: Any) -> None:
        """A worker beats, or registers anew; or a supervisor judges it, maybe by what it said before it came back."""
        worker, process = data.draw(workers, label="worker"), data.draw(processes, label="process")
        known = self.memory.memory.workers.get(worker)
        match data.draw(fates, label="it"):
            case "beats":
                self.beat(worker)
            case "registers":
                self.beat(worker, f'{{"client_id": {next(self.numbers)}}}')
            case "lost a process":
                self.reap(worker, process=process)
            case "lost a process, and saw it die":
                self.reap(worker, process=process, dead=True)
            case "was asked to end, and was slow":
                self.reap(worker, max_handovers=3)
            case "lapsed, maybe":
                self.reap(worker, only_lapsed=True)
            case "closed its connection":
                self.reap(worker, about=known.about if known else "it was never here")
            case "closed its connection and came back":
                self.reap(worker, about="it was another one")

    def supervise(self, data: Any) -> None:
        """Time passes. What is due or lost is sent; who hands jobs to another broker may die before saying so."""
        ms = data.draw(st.sampled_from([0, 700, 3000, LEASE]), label="ms")
        older = data.draw(st.sampled_from([0, 1000, 5000]), label="older")
        self.oversee(ms, older, sent=data.draw(st.booleans(), label="sent"))

    # -- messages

    def deliver(self, data: Any) -> None:
        """A worker takes a message and claims its task. If the answer is lost it asks again, at once or much later."""
        job = self._message(data)
        worker, process = self._worker(data), data.draw(processes, label="process")
        answer = data.draw(answers, label="answer")
        found = self.claim(job, worker, process, lost=answer == "lost")
        if answer == "lost, and not asked again":
            self.asked.append((job, worker, process, self.nonces.next))
            if found is not None:
                self.claims.remove(found)

    def ask_again(self, data: Any) -> None:
        job, worker, process, nonce = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1), label="which"))
        self.claim(job, worker, process, nonce=nonce)

    def deliver_again(self, data: Any) -> None:
        """A copy of a message, however old, is taken, or sent on."""
        job = data.draw(st.sampled_from(self.delivered))
        if data.draw(seldom, label="sent on"):
            self.return_job(job)
        else:
            self.claim(job, self._worker(data), data.draw(processes, label="process"))

    def lose_message(self, data: Any) -> None:
        """A message goes down with its worker; or that one is about to go, and sends it on."""
        job = self._message(data)
        if data.draw(st.booleans(), label="sent on"):
            self.return_job(job)

    def _message(self, data: Any) -> Job:
        return self.receive(data.draw(st.sampled_from(self.waiting()), label="queue"))

    def _worker(self, data: Any) -> str:
        """Mostly one that is registered."""
        registered = [worker for worker in WORKERS if worker in self.memory.memory.workers]
        return data.draw(st.sampled_from([*registered, *registered, WORKERS[2]]), label="worker")

    # -- tasks

    def do_step(self, data: Any) -> None:
        """Mostly it is recorded. Else its process dies in it, or it raises; or there is only something to log."""
        claim, end = self._claim(data), data.draw(step_ends, label="end")
        if end == "only a log":
            self.log(claim)
            return
        if end == "an event":
            self.draw_event(data, claim)
            return
        if end == "one after the other":
            self.follow(data, claim)
            return
        if end == "posted":
            entry = AccountKey("model", "A", "gpt")
            self.begin_step(claim, entry)
            self.post_step(claim, data.draw(st.sampled_from(STEPS)), entry, Usage(10, data.draw(counts)))
            return
        if end == "the answer to what was posted":
            self.hear(claim, lost=data.draw(st.booleans(), label="lost"))
            return
        if end == "side by side":
            steps = data.draw(st.dictionaries(st.sampled_from(STEPS), st.none() | entries, max_size=3), label="steps")
            begins = data.draw(st.lists(entries, max_size=3), label="begins")
            if begins and data.draw(st.booleans(), label="begin first"):
                self.begin_steps(claim, begins)
            many: dict[str, Any] = {name: data.draw(counts, label=name) for name in ("dropped", "tokens", "replayed")}
            many["begins"] = begins
            many["replayed"] *= bool(steps)
            posted = data.draw(st.booleans(), label="posted")
            self.record_steps(claim, steps, **many, lost=data.draw(seldom, label="lost"), posted=posted)
            return
        entry = data.draw(entries, label="entry")
        self.begin_step(claim, entry, soon=not data.draw(seldom, label="the store was not heard for a while"))
        if end == "raised":
            self.drop_step(claim, entry)
        elif end != "its process died":
            step, lost = data.draw(st.sampled_from(STEPS)), end == "answer lost"
            counted = {"replayed": data.draw(counts), "tokens": data.draw(counts)}
            self.record_step(claim, step, entry=entry, **counted, lost=lost)

    def follow(self, data: Any, claim: Claim) -> None:
        """Short steps, which a transaction records from the third on, unless somebody comes between."""
        for _ in range(data.draw(st.integers(2, 6), label="steps")):
            self.begin_step(claim)
            match data.draw(between, label="between"):
                case "log":
                    self.log(claim)
                case "taken back":
                    self.take_back(claim)
                case "beats":
                    self.beat(claim.worker)
                case "another message":
                    if self.waiting():
                        self.deliver(data)
            step = data.draw(st.sampled_from([f"own {next(self.numbers)}", STEPS[0]]), label="step")
            self.record_step(claim, step, replayed=0, tokens=0, lost=data.draw(seldom, label="lost"))

    def draw_event(self, data: Any, claim: Claim) -> None:
        """Something begins, or what began last ends; mostly of that is told with the next write."""
        begun = self.begun.setdefault((claim.job.ref, claim.token), [])
        for _ in range(data.draw(st.integers(1, 4), label="events")):
            deferred = data.draw(st.booleans(), label="deferred")
            if begun and data.draw(st.booleans(), label="ends"):
                kind, how = "tool_usage_finished", {"started": begun.pop()}
            else:
                what = data.draw(st.sampled_from(["agent_execution", "tool_usage"]), label="kind")
                kind, how = f"{what}_started", {"ends": f"{what}_error"}
                if begun:
                    how |= dict.fromkeys(data.draw(relatives, label="of the one before"), begun[-1])
            trigger = kind if claim.scope.triggers.intersection((kind, "*")) else ""  # as `event_relay` names one
            event = self.defer(claim, kind, **how) if deferred else self.tell(claim, kind, **how, trigger=trigger)
            if event is not None and "ends" in how:
                begun.append(event)
        match data.draw(sending, label="and then"):
            case "go by themselves":
                self.send_late(claim)
            case "before" | "after" as when:
                self.lose_events(claim, when)
                self.log(claim)

    def end(self, data: Any) -> None:
        """How it ends, or is given back. A commit may be heard twice, the others not."""
        claim, how = self._claim(data), data.draw(task_ends, label="end")
        told = {"replayed": data.draw(counts, label="replayed"), "lost": data.draw(seldom, label="answer lost")}
        if (when := data.draw(sending, label="its events")) in ("before", "after"):
            self.lose_events(claim, when)
            told["lost"] = False
        match how:
            case "ask":
                self.ask(claim, data.draw(st.sampled_from(STEPS)), **told)
            case "commit":
                where = {"process": data.draw(st.sampled_from(["", "p0", "p1"]), label="continues")}
                where["queue"] = data.draw(st.sampled_from(["", *QUEUES]), label="takes from")
                self.commit(claim, **told, used=self._used(data, claim), **where)
            case "release":
                self.release(claim, **told)
            case "taken back":
                self.take_back(claim)
            case "retry":
                self.retry(claim, data.draw(st.sampled_from([0, 2000]), label="delay"), **told)
            case "fail":
                self.fail(claim, **told)

    def _used(self, data: Any, claim: Claim) -> ReadSet:
        """What the task looked at: some of what is earlier, or all of it; and inputs."""
        earlier = self.runs[claim.job.run_id].plan.earlier(claim.job.task)
        some = st.lists(st.sampled_from(earlier), max_size=2) if earlier else st.just([])
        tasks = data.draw(st.one_of(some, some, st.just(["*"])), label="used")
        return ReadSet(frozenset(tasks), frozenset(data.draw(st.sampled_from(["", "", "*", ["topic"], ["added"]]))))

    def _claim(self, data: Any) -> Claim:
        """One that holds, mostly; else any that there ever was."""
        names = {f"{one.job.ref} by {one.token}": one for one in self.claims}
        held = [name for name, one in names.items() if self.memory.holds(one)]
        late = not held or data.draw(seldom, label="late")
        return names[data.draw(st.sampled_from(list(names) if late else held), label="claim")]

    # -- the end

    def teardown(self) -> None:
        """One live worker is enough for every run to end, and for those that failed or were cancelled to be resumed."""
        if self.midway or not self.runs:
            return
        self.oversee(LEASE, 1000, sent=True)
        for worker in list(self.memory.memory.workers):
            self.reap(worker, only_lapsed=True)
        assert self.memory.memory.workers == {}
        for _ in range(600):  # a job whose messages were needless eight times is sent again after 21 minutes
            self._do_what_is_there("fresh")
            for run, name in self.asking():
                if run.branches[name].live:
                    self.answer(run, name, 0, '"yes"')
            lines = {(run, name): b.status for run in self.runs.values() for name, b in run.branches.items()}
            if set(lines.values()) == {"completed"}:
                break
            if not {"running", "waiting"} & set(lines.values()):
                for (run, name), status in lines.items():
                    if status != "completed":
                        self.resume(run, name)
        assert set(lines.values()) == {"completed"}, "every branch of every run ends"
        self.reap("fresh")
        stays = {entry.name for entry in self.world.entries.values() if entry.ttl < 0}
        assert stays <= {"runs_key", "expiring_key", "test"}, "nothing of a run stays for ever"

    def _do_what_is_there(self, worker: str) -> None:
        self.beat(worker, "" if worker in self.memory.memory.workers else "{}")
        self.delivered.clear()
        self.oversee(2500, 1000, sent=True)
        while queues := self.waiting():
            self.receive(queues[0])
        for job in self.delivered:
            found = self.claim(job, worker)
            while found is not None:  # of some, its process continues with what comes after them
                self.commit(found, process="p0" if next(self.numbers) % 2 else "")
                found = self.task_of(found).redis.next


@pytest.mark.timeout(0 if EXAMPLES else 600)
def test_every_history_agrees_with_the_model_and_keeps_the_laws(
    redis: Redis, line: LossyLine, clock: Clock, nonces: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_events, "call_later", lambda *_: True)
    monkeypatch.setattr(run_events, "AT_ONCE", 3)
    run_state_machine_as_test(
        lambda: Protocol(redis, line, clock, nonces), settings=settings(settings.get_profile("providers"))
    )
