"""Redis and memory side by side: what is done to both, and the check that the two answer, and hold, the same."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine
from redis import Redis

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim, Job
from runner.providers.memory import MemoryStore
from runner.providers.memory.state import Run
from runner.providers.memory.task import MemoryTask
from runner.providers.records import DeferredEvent
from runner.providers.redis import scripts
from runner.providers.redis.runs import Runs
from runner.providers.redis.store import ClaimedTask
from runner.providers.redis.workers import Workers
from runner.testing import ManualClock

from .checks import Laws, agree, moved
from .conftest import Clock, LossyLine
from .observed import look

QUEUES = ("jobs", "other jobs")
BUNDLES = ("b0", "b1")
REFUSED = "refused"


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


class Sides(RuleBasedStateMachine):
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
        self.pages: dict[tuple[str, int], dict[str, str]] = {}  # what the two say of their calls
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

    def task_of(self, claim: Claim) -> Task:
        place = (claim.job.ref, claim.token)
        if place not in self._tasks:
            said = self.pages[place] = {}
            line = self.line.beside(len(self._tasks))
            redis = ClaimedTask(line.side(), claim, partial(said.__setitem__, "redis"))
            memory = MemoryTask(self.memory.memory, claim, partial(said.__setitem__, "memory"))
            self._tasks[place] = Task(redis, memory, line)
        return self._tasks[place]

    def is_unheard(self, ref: str, token: int) -> bool:
        """Whether a process does not know yet that its record came."""
        task = self._tasks.get((ref, token))
        return task is not None and task.settle is not None


def answer(write: Callable[[], Any]) -> Any:
    try:
        return write()
    except ClaimLost:
        return REFUSED


def comparable(claim: Claim) -> dict[str, Any]:
    """What memory gives, too; of outputs, without whose they were among several claims, which Redis keeps."""
    found = {name: value for name, value in claim._asdict().items() if name not in ("stored_inputs", "like")}
    lasting = {key: {k: v for k, v in one.items() if k != "of"} for key, one in claim.context.items()}
    return found | {"context": lasting}
