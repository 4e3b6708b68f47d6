"""One history of a fleet, from a seed: workers on a store in memory, a clock, messages, and what befalls them.

Everything that is left to chance is drawn from the seed, and one thread runs at a time: the same seed gives the same
history.
"""

import contextvars
import random
import sys
import tempfile
import types
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

from account import Account, SeenStore
from actors import Actor, point

from runner.core import backoff
from runner.core.jobs import Job
from runner.core.states import RunStatus, TaskState
from runner.engine.jobs import JobExecutor
from runner.engine.local import LocalStops
from runner.journal import shared_memory, step_map
from runner.journal.human_answers import Answer
from runner.journal.map_threads import Kept
from runner.providers.memory import MemoryBroker, MemoryStore
from runner.testing import ManualClock
from runner.testing.in_process import QUEUE, InProcess, Prepared, prepare

CREWS = Path(__file__).parent / "crews"
WORKERS = 3
LEASE = 5000  #: ms
MOST_TURNS = 20_000
RUN = "r-1"
WIDTH = 4  #: steps at once of a map


class Wrong(AssertionError):
    """A law was broken. The message begins with the seed."""


class ActorsClock(ManualClock):
    """The world's time, as one of its actors sees it: who sleeps lets others go on."""

    def __init__(self, actor: Actor, clock: ManualClock) -> None:
        self._actor = actor
        self.now, self.monotonic = clock.now, clock.monotonic

    def sleep(self, seconds: float, /) -> None:
        self._actor.sleep(self.now() + seconds)


class InTurn:
    """What makes the steps of a map: not on threads, but where they begin, in an order that is drawn."""

    def __init__(self, random: random.Random, do: Callable[[Any, Kept], None], _most: int, _scope: object) -> None:
        self._random, self._do = random, do

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        pass

    def begin(self, steps: Sequence[Any]) -> None:
        """Make these."""
        for one in self._random.sample(steps, len(steps)):
            contextvars.copy_context().run(self._do, one, Kept())


class World:
    """A run of one crew, and those who do it. ``faults`` is how much trouble there is, until it stops."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self._folder = seed, folder
        self.random = random.Random(seed)
        self.clock, self.account = ManualClock(), Account()
        self.store = MemoryStore(self.clock)
        self.broker = MemoryBroker()
        self.relayed = self.random.random() < 0.3  #: whether its jobs go by the broker
        self.crew = self.random.choice(["graph", "graph", "wide", "flow"])
        self.faults = self.random.randint(0, 12)
        self.troubles = self.random.randint(0, 3)
        self._time_slice = self.random.choice([0.0, 1.0, 3600.0])
        self.trace: list[str] = []
        self._processes = 0
        self._frozen: set[str] = set()
        self._executors: dict[Actor, JobExecutor] = {}
        self._actors = {f"w{i}": self._actor(f"w{i}") for i in range(WORKERS)}

    # -- the course of things

    def run(self) -> None:
        """Let it all happen. Raises `Wrong`."""
        with (
            patch.object(backoff, "delay", partial(backoff.delay, rand=self.random)),
            patch.multiple(step_map, MapThreads=partial(InTurn, self.random), FEW=1),
        ):
            self._run()

    def _run(self) -> None:
        simulated.world = self
        read = crew_of(self.crew)
        self.store.runs.put_bundle(read.bundle.sha256, read.bundle.data)
        self.store.runs.create(RUN, read.plan, {**read.fields, **({"envelope": ""} if self.relayed else {})})
        try:
            for _ in range(MOST_TURNS):
                if self.store.runs.status(RUN) is RunStatus.completed and not self._busy():
                    return self._end()
                self._turn()
                self._look()
        finally:
            simulated.world = None
            for actor in self._actors.values():
                actor.kill()
        raise self._wrong(f"it hangs: {self.store.runs.in_flight(RUN, 'main')}")

    def _turn(self) -> None:
        waiting = self._queue
        acts: list[tuple[int, Callable[[], None]]] = [(1, self._pass_time)]
        if self._awake():
            acts.append((12, self._go_on))
        if waiting and self._idle():
            acts.append((6, self._deliver))
        if self.faults:
            if self._busy():
                acts += [(1, self._kill), (1, self._reap_a_living_one)]
            if waiting:
                acts += [(1, self._lose_message), (1, self._double_message)]
            acts += [(1, self._freeze), (1, self._cancel)]
        weights, choices = zip(*acts, strict=True)
        self.random.choices(choices, weights)[0]()

    def _go_on(self) -> None:
        actor = self.random.choice(self._awake())
        actor.go_on()
        if actor.error is not None:
            raise self._wrong(f"an executor raised {actor.error!r}") from actor.error

    def _deliver(self) -> None:
        actor, job = self.random.choice(self._idle()), self._queue.popleft()
        self._note(f"{job} to {actor.worker}")
        executor = self._executors.get(actor) or self._executors.setdefault(actor, self._executor(actor))
        actor.begin(lambda: _do_all(executor, job))

    def _pass_time(self) -> None:
        """Leases are prolonged, the dead are noticed, what is due is sent, what is lost again; people answer."""
        ms = self.random.choice([10, 500, 2000])
        self.clock.advance(ms / 1000)
        workers = self.store.workers
        for worker, actor in self._actors.items():
            if actor.dead:
                self._recovered(workers.reap(worker, process=actor.process, reason="it died", max_attempts=99))
                self._actors[worker] = self._actor(worker)
            elif worker not in self._frozen and not workers.beat(worker, LEASE).stood:
                workers.beat(worker, LEASE, "{}")
        for worker, _ in workers.lapsed(self.store.memory.now()):
            self._recovered(workers.reap(worker, reason="its lease lapsed", max_attempts=99, only_lapsed=True))
        self._frozen.clear()
        workers.move_due()
        workers.redeliver(1000, depth=self.broker.depth)
        for job in workers.outbox():
            self.broker.send(job, QUEUE)
            if self.random.random() < 0.9:  # who sent it may have died before it said so
                workers.sent(job)
        for question in self.store.runs.questions(RUN, "main"):
            self.store.runs.answer(RUN, "main", question, Answer("blue").dump())

    # -- what befalls them

    def _kill(self) -> None:
        actor = self.random.choice(self._busy())
        self._fault(f"{actor.worker} dies")
        actor.kill()

    def _reap_a_living_one(self) -> None:
        actor = self.random.choice(self._busy())
        self._fault(f"{actor.worker} is taken for dead")
        how: dict[str, Any] = {"process": actor.process, "reason": "by mistake", "max_attempts": 99}
        self._recovered(self.store.workers.reap(actor.worker, **how))

    def _freeze(self) -> None:
        worker = self.random.choice(list(self._actors))
        self._fault(f"{worker} freezes")
        self._frozen.add(worker)
        self.clock.advance(LEASE / 1000)

    def _lose_message(self) -> None:
        self._fault(f"{self._queue.popleft()} is lost")

    def _double_message(self) -> None:
        self._fault(f"{self._queue[0]} is doubled")
        self._queue.append(self._queue[0])

    def _cancel(self) -> None:
        """A person stops the run, and lets it go on."""
        runs = self.store.runs
        if self.crew == "flow" or runs.status(RUN) is not RunStatus.running:
            return
        self._fault("cancelled, and resumed")
        self.account.interrupted += sum(task.state == "running" for task in runs.in_flight(RUN, "main")) * self._width
        runs.cancel(RUN, "a person said so")
        runs.resume(runs.get(RUN), "main", start=None, fields={}, plan=None)

    # -- what must hold

    def _look(self) -> None:
        """After each turn: every index is true, retention is exact, and nothing was done that may not be."""
        if self.account.wrong:
            raise self._wrong(self.account.wrong[0])
        memory = self.store.memory
        branch = memory.runs[RUN].branches["main"]
        states = {(RUN, "main", key): task.state for key, task in branch.tasks.items()}
        held = {place for claims in memory.claims.values() for place in claims}
        for state, index in (
            *((TaskState.queued, memory.queued.keys()), (TaskState.delayed, memory.due.keys())),
            (TaskState.running, held),
        ):
            listed = {place for place, found in states.items() if found is state}
            if listed != set(index):
                raise self._wrong(f"{state}: {listed}, but the index has {set(index)}")
        if len(branch.checkpoints) > 3:
            raise self._wrong(f"{len(branch.checkpoints)} checkpoints are kept, not 3")

    def _end(self) -> None:
        run, account = self.store.runs.get(RUN), self.account
        outputs = {key: output.raw for key, output in self.store.runs.committed(RUN, "main").items()}
        expected = undisturbed(self.crew)
        told = list(self.store.runs.events(RUN))
        events = [event.seq for event in told]
        again = account.paid.total() - len(account.paid)
        checks = {
            f"outputs {outputs}, not {expected}": outputs == expected,
            f"commits {account.commits}": account.commits.keys() == expected.keys(),
            f"{run.paid} paid, {len(account.paid)} steps": run.paid == len(account.paid) == len(account.recorded),
            f"{again} steps done again, {run.in_doubt} in doubt": again <= run.in_doubt,
            f"{run.in_doubt} in doubt, {account.interrupted} interrupted": run.in_doubt <= account.interrupted,
            "a gap in the events": events == list(range(events[0], events[0] + len(events))),
            "an event is of one that is later": all(max(one.parent, one.started) < one.seq for one in told),
            "a tool's end has no start": all(one.started for one in told if one.type == "tool_usage_finished"),
        }
        for what, holds in checks.items():
            if not holds:
                raise self._wrong(what)

    # -- pieces

    @property
    def _width(self) -> int:
        """How many steps are under way at most of a task."""
        return WIDTH if self.crew == "wide" else 1

    @property
    def _queue(self) -> deque[Job]:
        """The messages on their way to workers."""
        return (self.broker if self.relayed else self.store.memory).queues[QUEUE]

    def _busy(self) -> list[Actor]:
        return [actor for actor in self._actors.values() if actor.busy]

    def _awake(self) -> list[Actor]:
        return [actor for actor in self._busy() if actor.wakes <= self.clock.now()]

    def _idle(self) -> list[Actor]:
        return [actor for actor in self._actors.values() if not actor.busy and not actor.dead]

    def _actor(self, worker: str) -> Actor:
        self._processes += 1
        self.store.workers.beat(worker, LEASE, "{}")
        return Actor(worker, f"p{self._processes}")

    def _executor(self, actor: Actor) -> JobExecutor:
        return JobExecutor(
            SeenStore(actor, self.store, self.account, self.random),
            worker=actor.worker,
            process=actor.process,
            cache=self._folder,
            stops=LocalStops(),
            outgoing=None,
            page=shared_memory.page(None, actor.process),
            retire=None,
            time_slice=self._time_slice,
            clock=ActorsClock(actor, self.clock),
        )

    def _recovered(self, references: list[str]) -> None:
        self.account.interrupted += len(references) * self._width

    def _fault(self, what: str) -> None:
        self.faults -= 1
        self._note(what)

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.store.memory.now()} {what}")

    def _wrong(self, what: str) -> Wrong:
        return Wrong("\n".join([f"seed {self.seed}, {self.crew}: {what}", *self.trace]))


def _do_all(executor: JobExecutor, job: Job) -> None:
    """A message's job, and what the process continues with."""
    executor.do(job)
    while (claim := executor.next) is not None:
        executor.do(claim.job)


# -- what the crews' code calls


def pay(step: str) -> str:
    """A step that costs something. Its process may die before it is done, and after."""
    point()
    if simulated.world is not None:
        simulated.world.account.pay(step)
    point()
    return step


def trouble() -> None:
    """Raises, now and then."""
    world = simulated.world
    if world is not None and world.troubles and world.random.random() < 0.3:
        world.troubles -= 1
        raise RuntimeError("as it was drawn")


simulated: Any = types.ModuleType("simulated")  #: what the crews import
simulated.pay, simulated.trouble, simulated.world, simulated.WIDTH = pay, trouble, None, WIDTH
sys.modules["simulated"] = simulated


@cache
def crew_of(name: str) -> Prepared:
    """A crew, read and packed once."""
    return prepare(CREWS / name / "crew.py")


@cache
def undisturbed(name: str) -> dict[str, str]:
    """The outputs of a run to which nothing happens."""
    world, simulated.world = simulated.world, None
    try:
        with tempfile.TemporaryDirectory() as folder:
            one = InProcess(Path(folder))
            run = one.submit(CREWS / name / "crew.py")
            while one.runs.status(run) is not RunStatus.completed:
                one.work()
                for question in one.runs.questions(run, "main"):
                    one.runs.answer(run, "main", question, Answer("blue").dump())
            return one.texts(run)
    finally:
        simulated.world = world
