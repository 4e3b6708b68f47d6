"""The data of a store in memory: runs with branches and tasks, workers with claims, messages, bundles.

All of it is text or immutable records, so no caller can change what is stored by changing what they gave, or were
given.
"""

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from runner.core.clock import Clock
from runner.core.jobs import Job
from runner.core.ledger import AccountKey, Counters
from runner.core.plan import Plan
from runner.core.plan.branching import BranchHistory, Done, unpack
from runner.core.plan.dependencies import ReadSet
from runner.core.states import RunStatus, TaskState
from runner.journal.rate_limit import RateLimiter
from runner.providers.records import CheckpointRecord, Event, HeldClaim

Place = tuple[str, str, str]  #: run, branch, task
LedgerKey = tuple[str, str, str, str]  #: branch, task, agent, model


class OpenEvent(NamedTuple):
    """The start of something that the code of a task began and did not end: how it ends when it is interrupted."""

    seq: int
    parent: int
    ends: str
    about: str


@dataclass(eq=False)
class Task:
    """A task in flight: between waiting and committed."""

    branch: "Branch" = field(repr=False)
    key: str
    state: TaskState = TaskState.queued
    attempt: int = 0
    context: tuple[str, ...] = ()
    timeout: float | None = None
    pool: str = ""
    token: int | None = None  #: of the claim that holds; with it the next three
    worker: str = ""
    process: str = ""
    nonce: str = ""
    begun: Counters = field(default_factory=Counters)  #: steps that are neither recorded nor dropped
    reserved: AccountKey | None = None  #: one of them is the step of this kind that comes next
    crashes: int = 0  #: in a row, without recording more than before; likewise
    handed: int = 0
    reached: int = 0  #: the most records that one attempt replayed or made
    failures: int = 0  #: since its branch was last resumed
    failed: int = 0  #: and since ever
    copies: int = 0  #: needless messages of its job, to another broker
    scope: int = 0  #: sequences of events: its branch's start, its own, this claim's
    started: int = 0
    claimed: int = 0
    open: list[OpenEvent] = field(default_factory=list)
    began: int | None = None
    ended: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    step: str = ""  #: what it asked a person, and where the answer belongs
    question: str = ""
    error: str = ""
    trace: str = ""
    failed_on: str = ""  #: the worker

    @property
    def place(self) -> Place:
        """Where it is, as the indexes name it."""
        return self.branch.run.id, self.branch.name, self.key

    @property
    def job(self) -> Job:
        """The job of its present attempt."""
        return Job(*self.place, self.attempt)

    def noted(self, *, unused: bool) -> Counters:
        """The steps under way as they were noted; if that is ``unused``, without the note reserved for the next."""
        return self.begun.beyond(Counters([self.reserved])) if unused and self.reserved is not None else self.begun


class Output(NamedTuple):
    """A committed output. ``text`` is its record as JSON."""

    seq: int
    token: int
    used: ReadSet
    text: str


@dataclass(eq=False)
class Branch:
    """One line of history. Its outputs are in the order of their commits, edited ones first."""

    run: "Run" = field(repr=False)
    name: str
    status: RunStatus = RunStatus.running
    seq: int = 0
    left: int = 0
    parent: str = ""
    parent_seq: int = 0
    start: str = ""  #: the checkpoint at which it left its parent
    head: str = ""  #: its newest checkpoint
    rerun_mask: str = ""  #: what it does itself, packed; "" for all
    void: frozenset[str] = frozenset()  #: in a plan that grows, what of its parents' does not count on it
    inputs: str = "{}"  #: those that differ from the run's
    laid: str = "{}"  #: merged over the values that the tasks of a growing plan share
    created_at: int | None = None
    ended_at: int | None = None
    error: str = ""
    outputs: dict[str, Output] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    tasks: dict[str, Task] = field(default_factory=dict)
    journals: dict[str, dict[str, str]] = field(default_factory=dict)
    checkpoints: list[CheckpointRecord] = field(default_factory=list)
    steps: dict[str, dict[str, int]] = field(default_factory=dict)
    """By task: its steps, by the sequence of the first checkpoint within it since they were recorded."""
    version: str = ""  #: of the texts that the tasks of a growing plan share
    shared: dict[str, str] = field(default_factory=dict)
    asked: int = 0  #: tasks that wait for a person
    aside: set[str] = field(default_factory=set)  #: in flight, and not to be done by the plan of the last resume
    scope: int = 0  #: the event that started it
    begun: tuple[int, int] = (0, 0)  #: that start, and the first claim since
    opener: str = ""  #: the first task that was ever claimed on it

    @property
    def live(self) -> bool:
        """Whether anything more may happen on it without being resumed."""
        return self.status in (RunStatus.running, RunStatus.waiting)

    @property
    def is_active(self) -> bool:
        """Whether work on it leads to more of it. Several branches may run at the same time."""
        return self.status is RunStatus.running

    def ancestry(self) -> "Iterator[tuple[Branch, float]]":
        """The branch, its parent and so on, each with the sequence up to which it is seen."""
        upto, branch = float("inf"), self
        yield branch, upto
        while branch.parent:
            branch, upto = self.run.branches[branch.parent], min(upto, branch.parent_seq)
            yield branch, upto

    def output(self, task: str) -> Output | None:
        """The output of a task that is surely committed there: of the nearest branch that has it."""
        for branch, upto in self.ancestry():
            found = branch.outputs.get(task)
            if found is not None and found.seq <= upto:
                return found
        return None


@dataclass(eq=False)
class Run:
    """A run, with the fields that it was created with."""

    memory: "Memory" = field(repr=False)
    id: str
    plan: Plan
    fields: dict[str, str]
    created_at: int
    status: RunStatus = RunStatus.running
    branch: str = "main"
    error: str = ""
    ended_at: int | None = None
    expires_at: int | None = None
    branches: dict[str, Branch] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    ledger: dict[LedgerKey, list[int]] = field(default_factory=dict)
    token: int = 0  #: the newest
    sequence: int = 0  #: of its newest event
    events: deque[Event] = field(default_factory=deque)
    planned: int = 0  #: tasks, on any branch: what is kept of its events grows with them
    pace: RateLimiter | None = None

    @property
    def relayed(self) -> bool:
        """Whether its jobs go to a broker of another's, by way of the outbox."""
        return not self.fields.get("envelope")

    @property
    def triggers(self) -> str:
        """The events at which it wants checkpoints: each between commas; "" for none."""
        return self.fields.get("checkpoint_on", "")

    @property
    def live(self) -> int:
        """The number of its branches that run or wait."""
        return sum(branch.live for branch in self.branches.values())

    def rerun(self, name: str) -> frozenset[str]:
        """Return which tasks a branch performs itself."""
        packed = self.branches[name].rerun_mask
        return unpack(self.plan, packed) if packed else frozenset(self.plan.by_key)

    def lines(self, name: str) -> list[BranchHistory]:
        """A branch and its ancestors as `visible` takes them."""
        found = []
        for branch, _ in self.branches[name].ancestry():
            hidden = self.rerun(branch.name) if branch.rerun_mask else branch.void or None
            done = [Done(task, output.seq, output.used) for task, output in branch.outputs.items()]
            found.append(BranchHistory(branch.name, branch.parent, branch.parent_seq, hidden, done))
        return found


@dataclass
class Worker:
    """A registered worker."""

    about: str
    lapses_at: int = 0
    recheck: int = 0  #: how often claims of its were taken back while it held them
    beats: int = 0


@dataclass
class Bundle:
    """A packed crew, and how many live runs use it. ``expires_at`` is None while one does."""

    data: bytes | None
    active: int = 0
    needed_until: int = 0
    expires_at: int | None = None


@dataclass
class Batch:
    """Runs that were submitted together, by their place among the inputs; and those that ended, in order."""

    runs: dict[str, int] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    active: int = 0
    total: int | None = None
    stopped: str = ""
    expires_at: int | None = None


class Memory:
    """All of it. Readers and writers hold ``changed``, which is notified of each event and message."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.changed = threading.Condition(threading.RLock())
        self.runs: dict[str, Run] = {}
        self.workers: dict[str, Worker] = {}
        self.claims: defaultdict[str, dict[Place, HeldClaim]] = defaultdict(dict)
        self.queued: dict[Place, int] = {}  #: sent and not claimed, by when they were sent or last looked at
        self.due: dict[Place, int] = {}
        self.outbox: dict[Job, int] = {}
        self.queues: defaultdict[str, deque[Job]] = defaultdict(deque)
        self.bundles: dict[str, Bundle] = {}
        self.batches: dict[str, Batch] = {}
        self.leader: tuple[str, int] = ("", 0)

    def now(self) -> int:
        """Return the time in milliseconds."""
        return round(self.clock.now() * 1000)

    def run(self, run_id: str) -> Run | None:
        """A run; None if there is none, or it is over for longer than it is kept."""
        found = self.runs.get(run_id)
        if found is not None and found.expires_at is not None and found.expires_at <= self.now():
            del self.runs[run_id]
            return None
        return found

    def bundle(self, sha: str) -> Bundle | None:
        """Return a bundle that is still kept."""
        found = self.bundles.get(sha)
        if found is not None and found.expires_at is not None and found.expires_at <= self.now():
            del self.bundles[sha]
            return None
        return found

    def batch(self, name: str) -> Batch:
        """A batch that is still kept, or a new one."""
        found = self.batches.setdefault(name, Batch())
        if found.expires_at is not None and found.expires_at <= self.now():
            found = self.batches[name] = Batch()
        return found

    def has_code(self, sha: str) -> bool:
        """Whether a run with this bundle can be done; "" needs none."""
        found = self.bundle(sha)
        return not sha or (found is not None and found.data is not None)

    def branch(self, run_id: str, name: str) -> Branch | None:
        """A branch of a run that is kept."""
        run = self.run(run_id)
        return run.branches.get(name) if run is not None else None

    def task(self, run_id: str, branch: str, key: str) -> Task | None:
        """Return a task, if it is in flight."""
        found = self.branch(run_id, branch)
        return found.tasks.get(key) if found is not None else None

    def held(self, place: Place, token: int) -> Task | None:
        """The task there, if this token still holds it."""
        found = self.task(*place)
        return found if found is not None and found.token == token else None


C = TypeVar("C")


def atomic(kind: type[C]) -> type[C]:
    """Make each public method of a class, whose ``_memory`` it works on, atomic: all or nothing, one at a time."""

    def alone(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def locked(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            with self._memory.changed:
                return method(self, *args, **kwargs)

        return locked

    for name, one in list(vars(kind).items()):
        if isinstance(one, FunctionType) and not name.startswith("_"):
            setattr(kind, name, alone(one))
    return kind
