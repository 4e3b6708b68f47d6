"""Records that a store returns: runs, branches, checkpoints, outputs, events and claims, as of when they were read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypedDict

from runner.core import stored_output
from runner.core.jobs import event_id_of
from runner.core.ledger import Counters, LedgerRow
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.branching import Done
from runner.core.plan.dependencies import ReadSet
from runner.core.states import RunStatus

if TYPE_CHECKING:
    from runner.core.output import TaskOutput

COUNTERS = (
    *("paid", "replayed", "in_doubt", "prompt_tokens", "completion_tokens"),
    *("cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens"),
    *("replayed_tokens", "tools_paid", "tools_replayed", "tools_in_doubt"),
)
"""What a run counts of its steps."""
_OF_TOOLS = {name: name.removeprefix("tools_") for name in COUNTERS if name.startswith("tools_")}

_OF_STEPS = [name for name in COUNTERS if name not in _OF_TOOLS]
_counts_of_steps = attrgetter(*_OF_STEPS)

EVENTS_KEPT, EVENTS_PER_TASK = 2000, 50
"""How many events of a run are kept, the newest: at least so many, and so many more for each task that was planned."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run of a batch that is to be created: its place among the inputs, and these as they are stored."""

    id: str
    number: int
    inputs: str
    initial_state: str = ""  #: what the tasks of a plan that grows begin with

    @property
    def fields(self) -> dict[str, str]:
        """The fields that it does not share with the others."""
        return {"inputs": self.inputs, **({"beginning": self.initial_state} if self.initial_state else {})}


def tools_by_name(counters: Iterable[tuple[str, int | str]]) -> dict[str, dict[str, int]]:
    """What a run's counters say of each tool; others are passed over."""
    found: dict[str, dict[str, int]] = {}
    for name, many in counters:
        what, colon, tool = name.partition(":")
        if colon and what in _OF_TOOLS:
            found.setdefault(tool, dict.fromkeys(_OF_TOOLS.values(), 0))[_OF_TOOLS[what]] = int(many)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as it stands. Times are the server's, in milliseconds."""

    id: str
    status: RunStatus
    crew: str
    branch: str
    created_at: int
    ended_at: int | None
    error: str
    queue: str
    bundle: str
    plan_digest: str
    inputs: dict[str, Any]
    standin: str = ""
    paid: int = 0
    replayed: int = 0
    in_doubt: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    recoveries: int = 0
    replayed_tokens: int = 0
    tools_paid: int = 0
    tools_replayed: int = 0
    tools_in_doubt: int = 0

    @property
    def has_steps(self) -> bool:
        """Whether it has taken a step, or called a model."""
        return any(_counts_of_steps(self))

    @property
    def has_tools(self) -> bool:
        """Whether it has called a tool."""
        return bool(self.tools_paid or self.tools_replayed or self.tools_in_doubt)

    @property
    def ledger(self) -> dict[str, Any]:
        """The account of the run's steps: a person's own and calls of models; apart from them, what tools did."""
        return {
            **dict(zip(_OF_STEPS, _counts_of_steps(self), strict=True)),
            "tools": {"paid": self.tools_paid, "replayed": self.tools_replayed, "in_doubt": self.tools_in_doubt},
        }


class ReadRun(NamedTuple):
    """All that a run's result is made of: the run and a branch of it, what is committed there, and its account."""

    run: RunRecord
    branch: "BranchRecord"
    committed: Mapping[str, "Committed"]
    calls: Sequence[LedgerRow] = ()  #: of models, as `runner.engine.ports.Runs.ledger` returns them
    tools: Mapping[str, Mapping[str, int]] = {}  #: as `runner.engine.ports.Runs.tools` returns them


class DeferredEvent:
    """An event of a task's code that goes to the store with the next write of its task."""

    __slots__ = ("place", "sequence")

    def __init__(self, sequence: int | None = None) -> None:
        self.sequence = sequence  #: its number among the run's; None until the store has said it, 0 if it refused it
        self.place = 0  #: among those that it is sent with, from 1


class EventDetails(TypedDict, total=False):
    """What an event of a task's code has beside its type: further fields, and its relatives, 0 for none.

    They are the event in whose scope it happened, the one that it ends, and the one that brought it about. ``ends`` is,
    for one that opens a scope, the type that ends that when the task is interrupted.
    """

    more: Mapping[str, Any] | None
    parent: int | DeferredEvent
    started: int | DeferredEvent
    cause: int | DeferredEvent
    ends: str


class Ending(TypedDict, total=False):
    """What is stored with a task's output: what was replayed since its last record, and what it used.

    ``ms`` is how long its last attempt took. ``process`` and ``queue``: what is claimed with it, see
    `runner.engine.ports.ClaimedTask.commit`.
    """

    replayed: Required[Counters | int]
    used: ReadSet
    ms: int | None
    process: str
    queue: str


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed output: where in the branch's sequence it stands, and what it is.

    ``ms`` is how long the attempt took that gave it; the tokens are those of all its steps. A person gave an
    ``edited`` one. ``files`` are those that it left, by path, as `runner.bundles.task_files` stores them; no dict
    where that is unknown. ``usage`` is what its framework counts of it; ``flow`` what a flow records beside it.
    ``branch`` did it, in so many ``attempts``, the last by ``worker``; times are the server's, in milliseconds. None of
    that is known of what a person gave, nor of what a worker of before claimed.
    ``record`` is all that is stored of it.
    """

    seq: int
    raw: str
    json: Any
    ms: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    edited: bool = False
    files: dict[str, Any] | None = None
    usage: dict[str, int] | None = None
    branch: str = ""
    worker: str = ""
    attempts: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    flow: dict[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    def as_task_output(self, name: str) -> "TaskOutput":
        """Return the output as the crew's code sees it."""
        from runner.core import output as outputs  # pydantic takes a while to import

        return outputs.from_record(self.record, name=name)


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A named position on a branch."""

    id: str
    branch: str
    seq: int
    created_at: int
    parent: str
    trigger: str
    task: str


@dataclass(frozen=True, slots=True)
class BranchRecord:
    """A branch as it stands. ``parent``, ``parent_seq`` and ``checkpoint`` say where it left another one; "" for main.

    ``inputs`` are those that differ from the run's.
    """

    name: str
    status: RunStatus
    seq: int
    left: int
    parent: str = ""
    parent_seq: int = 0
    checkpoint: str = ""
    head: str = ""
    error: str = ""
    created_at: int | None = None
    ended_at: int | None = None
    inputs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InFlight:
    """A task that is neither waiting nor committed.

    ``attempt`` is the number of the one that runs, or comes next. ``trace`` is where the last one that failed was
    raised; ``started_at`` when the first began since the task was last resumed, ``ended_at`` when it failed for good,
    in the server's milliseconds. Of a task that failed, ``worker`` is where.
    """

    task: str
    state: str
    attempt: int
    worker: str
    error: str
    trace: str = ""
    started_at: int | None = None
    ended_at: int | None = None

    @property
    def attempts(self) -> int:
        """The number of attempts that were begun."""
        return self.attempt if self.state == "running" else max(self.attempt - 1, 0)


@dataclass(frozen=True, slots=True)
class Question:
    """What a task asked a person: ``about`` has the message, the labels to choose from, the output in question."""

    task: str
    step: str
    about: dict[str, Any]

    @property
    def message(self) -> str:
        """The question itself."""
        return str(self.about.get("message") or "")

    @property
    def labels(self) -> list[str]:
        """What may be answered, if that is not free."""
        return [str(label) for label in self.about.get("emit") or ()]

    @property
    def may_be_judged(self) -> bool:
        """Whether there is something to approve or reject."""
        return self.about.get("method_output") is not None or {"approve", "reject"} <= set(self.labels)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {"task": self.task, **self.about}

    def shown(self) -> str:
        """As a person reads it: the question, what it is about, and why the last answer was none."""
        output = self.about.get("method_output", "")
        refused = self.about.get("refused")
        lines = (
            f"{self.task}: {self.message}" + (f" ({', '.join(self.labels)})" if self.labels else ""),
            output
            if isinstance(output, str)
            else json.dumps(output, ensure_ascii=False, indent=2)
            if output is not None
            else "",
            f"the last answer was rejected: {refused}" if refused else "",
        )
        return "".join(f"{line}\n" for line in lines if line)


INTERRUPTED = "interrupted"  #: the error of an event by which the store ends what a handed back task was in


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. ``id`` is the stream's: milliseconds and a counter.

    ``parent``, ``started`` and ``cause`` are the sequences of its relatives, 0 for none: in whose scope it happened,
    which one it ends, which one brought it about. The properties say the same as a local event does.
    """

    id: str
    seq: int
    type: str
    fields: dict[str, str] = field(default_factory=dict)
    run_id: str = ""
    parent: int = 0
    started: int = 0
    cause: int = 0

    @property
    def at(self) -> int:
        """The time of the event in milliseconds."""
        return int(self.id.split("-")[0])

    @property
    def emission_sequence(self) -> int:
        """Its number, one sequence per run over all workers."""
        return self.seq

    @property
    def event_id(self) -> str:
        """Its id."""
        return event_id_of(self.run_id, self.seq) or ""

    @property
    def parent_event_id(self) -> str | None:
        """The id of the open event around it."""
        return event_id_of(self.run_id, self.parent)

    @property
    def started_event_id(self) -> str | None:
        """The id of the event that it ends."""
        return event_id_of(self.run_id, self.started)

    @property
    def previous_event_id(self) -> str | None:
        """The id of the event before it."""
        return event_id_of(self.run_id, self.seq - 1)

    @property
    def triggered_by_event_id(self) -> str | None:
        """The id of the event that brought it about."""
        return event_id_of(self.run_id, self.cause)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        ids = ("event_id", "parent_event_id", "started_event_id", "previous_event_id", "triggered_by_event_id")
        found = {"seq": self.seq, "at": self.at, "type": self.type, **self.fields, "emission_sequence": self.seq}
        return {**found, **{name: value for name in ids if (value := getattr(self, name)) is not None}}


@dataclass(frozen=True, slots=True)
class Position:
    """A point in a run's history. ``done`` are the tasks committed by then, each with the branch it is on."""

    run_id: str
    branch: str
    seq: int
    checkpoint: str
    plan: Plan
    digest: str
    bundle: str
    queue: str
    inputs: dict[str, Any]
    overrides: dict[str, Any]
    done: dict[str, tuple[str, Done]]
    outputs: dict[str, Committed]
    """Those that were asked for."""
    shapes: str
    """What the code declared outputs to be, where some were asked for (`runner.client.reading.shapes`)."""
    newest_event: str
    """The stream id of the run's newest event then; "0" if there was none."""
    named: bool = False
    """Whether a checkpoint was named: then what tasks in flight recorded later does not count."""
    to_do: int = 0
    """With how many tasks a fork that left here began."""

    @property
    def used(self) -> dict[str, ReadSet]:
        """What each of the tasks used."""
        return {task: done.used for task, (_, done) in self.done.items()}


@dataclass(frozen=True, slots=True)
class Regrown:
    """How a branch of a growing plan begins: the tasks to run, and its parents' void ones.

    ``laid`` are inputs merged over what its tasks share, ``kept`` the tasks that begin from what they have recorded.
    """

    ready: Sequence[PlannedTask]
    void: frozenset[str]
    laid: Mapping[str, Any]
    kept: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """One claim as the worker's lease lists it. ``deadline`` is the server's time in ms, 0 for none."""

    ref: str
    token: int
    process: str
    deadline: int


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat. ``stood`` is False where the lease was gone: other workers hold the claims now.

    ``number`` counts the beats of a registration; it only grows, unless the store was restored to an earlier state.
    """

    stood: bool
    recheck: int
    at: int
    claims: tuple[HeldClaim, ...]
    number: int


def committed_record(stored: dict[str, Any], branch: str = "") -> Committed:
    """From its stored JSON, on the branch that did it."""
    prompt, completion = stored.get("tokens", (0, 0))
    worker, attempts, began, took = stored.get("by", ("", None, None, 0))
    return Committed(
        stored["seq"],
        *stored_output.load(stored),
        ms=stored.get("ms"),
        prompt_tokens=prompt,
        completion_tokens=completion,
        edited="edited" in stored,
        files=stored.get("files"),
        usage=stored.get("usage"),
        branch=branch,
        worker=worker,
        attempts=attempts,
        started_at=began,
        ended_at=None if began is None else began + took,
        flow=stored.get("flow", {}),
        record=stored,
    )


def files_in(stored: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The files that the tasks of these stored outputs left, the oldest output's first; see `Committed.files`."""
    found = []
    for record in sorted(stored, key=lambda one: int(one["seq"])):
        raw = stored_output.load(record)[0]
        found.append({path: raw if text is None else text for path, text in record.get("files", {}).items()})
    return found
