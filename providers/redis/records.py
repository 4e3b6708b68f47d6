"""What the store tells of runs, branches, checkpoints, outputs and events: as it was when it was read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.core.ledger import Line
from runner.core.output import TaskOutput, from_record
from runner.core.states import RunStatus
from runner.events.ids import event_id_of
from runner.providers.redis.protocol import name_of
from runner.providers.redis.stream import fields_of

COUNTERS = (
    *("paid", "replayed", "in_doubt", "prompt_tokens", "completion_tokens"),
    *("cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens"),
    *("replayed_tokens", "tools_paid", "tools_replayed", "tools_in_doubt"),
)
"""What a run's hash counts of its steps."""

RUN_FIELDS = (
    *("status", "crew", "branch", "created_at", "ended_at", "error", "queue", "bundle", "plan", "inputs", "standin"),
    *(*COUNTERS, "recoveries"),
)
"""What of a run's hash is in its record."""


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
    def ledger(self) -> dict[str, Any]:
        """The account of the run's steps: a person's own and calls of models; apart from them, what tools did."""
        return {
            **{name: getattr(self, name) for name in COUNTERS if not name.startswith("tools_")},
            "tools": {"paid": self.tools_paid, "replayed": self.tools_replayed, "in_doubt": self.tools_in_doubt},
        }


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed output: where in the branch's sequence it stands, and what it is.

    ``ms`` is how long the attempt took that gave it; the tokens are those of all its steps. A person gave an
    ``edited`` one. ``files`` are those that it left, by path, as `runner.bundles.task_files` stores them; no dict
    where nobody looked. ``usage`` is what CrewAI counts of it; ``flow`` what a flow records beside it.
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

    def as_task_output(self, name: str) -> TaskOutput:
        """As the crew's code sees it."""
        return from_record(self.record, name=name)


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
        """How many were begun."""
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
    def is_of_output(self) -> bool:
        """Whether there is something to approve or reject."""
        return self.about.get("method_output") is not None

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
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
            f"the last answer was refused: {refused}" if refused else "",
        )
        return "".join(f"{line}\n" for line in lines if line)


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
        """When, in milliseconds."""
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
        """As ``--json`` prints it."""
        ids = ("event_id", "parent_event_id", "started_event_id", "previous_event_id", "triggered_by_event_id")
        found = {"seq": self.seq, "at": self.at, "type": self.type, **self.fields, "emission_sequence": self.seq}
        return {**found, **{name: value for name in ids if (value := getattr(self, name)) is not None}}


def event_record(run_id: str, stream_id: str, fields: dict[str, str]) -> Event:
    """From an entry of the stream."""
    left = fields_of(fields)
    seq, kind = int(left.pop("seq")), left.pop("type")
    parent, started, cause = (int(left.pop(name, 0)) for name in ("parent", "started", "cause"))
    return Event(stream_id, seq, kind, left, run_id, parent, started, cause)


def branch_record(name: str, found: dict[str, str]) -> BranchRecord:
    """From the fields of its hash."""
    return BranchRecord(
        name=name,
        status=RunStatus(found["status"]),
        seq=int(found["seq"]),
        left=int(found.get("left", 0)),
        parent=found.get("parent", ""),
        parent_seq=int(found.get("parent_seq", 0)),
        checkpoint=found.get("from", ""),
        head=found.get("head", found.get("from", "")),
        error=found.get("error", ""),
        created_at=int(float(found["created_at"])) if found.get("created_at") else None,
        ended_at=int(float(found["ended_at"])) if found.get("ended_at") else None,
        inputs=json.loads(found.get("inputs", "{}")),
    )


def in_flight(
    task: str,
    state: str | None,
    attempt: str | None,
    worker: str | None,
    by: str | None,
    error: str | None,
    trace: str | None,
    began: str | None,
    ended: str | None,
) -> InFlight:
    """From the fields of its hash."""
    times = (int(at) if at else None for at in (began, ended))
    return InFlight(task, state or "", int(attempt or 0), worker or by or "", error or "", trace or "", *times)


def ledger_line(field: str, counts: str, details: str | None) -> Line:
    """From a field of the run's ledger, its value, and what the run has of its tokens."""
    branch, task, agent, model = json.loads(field)
    numbers = json.loads(counts)[:6] + json.loads(details or "[]")
    return Line(branch, task, agent, model, *(int(count) for count in numbers))


def present(values: Sequence[str | None]) -> dict[str, str]:
    """The `RUN_FIELDS` that a run has, from what was read of it."""
    return {name: value for name, value in zip(RUN_FIELDS, values, strict=True) if value is not None}


def run_record(run_id: str, found: Mapping[str, str]) -> RunRecord:
    """From the fields of its hash."""
    counters = (*COUNTERS, "recoveries")
    return RunRecord(
        id=run_id,
        status=RunStatus(found["status"]),
        crew=found.get("crew", ""),
        branch=found.get("branch", "main"),
        created_at=int(float(found["created_at"])),
        ended_at=int(float(found["ended_at"])) if found.get("ended_at") else None,
        error=found.get("error", ""),
        queue=name_of(found.get("queue", "")),
        bundle=found.get("bundle", ""),
        plan_digest=found.get("plan", ""),
        inputs=json.loads(found.get("inputs", "{}")),
        standin=found.get("standin", ""),
        **{name: int(found.get(name, 0)) for name in counters},
    )
