"""Builds records from hashes and stream entries."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runner.core.ledger import LedgerRow
from runner.core.states import RunStatus
from runner.providers.records import COUNTERS, BranchRecord, Event, InFlight, RunRecord
from runner.providers.redis.keys import name_of
from runner.providers.redis.stream import fields_of

RUN_FIELDS = (
    *("status", "crew", "branch", "created_at", "ended_at", "error", "queue", "bundle", "plan", "inputs", "standin"),
    *(*COUNTERS, "recoveries"),
)
"""What of a run's hash is in its record."""


def mapping(answer: Any) -> dict[str, str]:
    """Return what HGETALL answered: a list, or by a newer protocol a mapping."""
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))


def event_record(run_id: str, stream_id: str, fields: dict[str, str]) -> Event:
    """Return the event that an entry of the stream holds."""
    left = fields_of(fields)
    seq, kind = int(left.pop("seq")), left.pop("type")
    parent, started, cause = (int(left.pop(name, 0)) for name in ("parent", "started", "cause"))
    return Event(stream_id, seq, kind, left, run_id, parent, started, cause)


def branch_record(name: str, found: dict[str, str]) -> BranchRecord:
    """Return the record that the fields of its hash hold."""
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
        inputs=_inputs(found),
    )


def _inputs(found: Mapping[str, str]) -> dict[str, Any]:
    text = found.get("inputs", "{}")
    return json.loads(text) if text != "{}" else {}


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
    """Return the record that the fields of its hash hold."""
    times = (int(at) if at else None for at in (began, ended))
    return InFlight(task, state or "", int(attempt or 0), worker or by or "", error or "", trace or "", *times)


def ledger_line(field: str, counts: str, details: str | None) -> LedgerRow:
    """From a field of the run's ledger, its value, and what the run has of its tokens."""
    branch, task, agent, model = json.loads(field)
    numbers = json.loads(counts)[:6] + json.loads(details or "[]")
    return LedgerRow(branch, task, agent, model, *(int(count) for count in numbers))


def ledger_lines(counts: Mapping[str, str], run: Mapping[str, str]) -> list[LedgerRow]:
    """Return the rows of a run's ledger, by branch (main first), task, agent and model.

    They are made of the ledger's fields, and of those of the run that have its tokens.
    """
    lines = [ledger_line(field, many, run.get(f"tokens{field}")) for field, many in counts.items()]
    return sorted(lines, key=lambda line: (line.branch != "main", line.branch, line.task, line.agent, line.model))


def present(values: Sequence[str | None]) -> dict[str, str]:
    """The `RUN_FIELDS` that a run has, from what was read of it."""
    return {name: value for name, value in zip(RUN_FIELDS, values, strict=True) if value is not None}


def run_record(run_id: str, found: Mapping[str, str]) -> RunRecord:
    """Return the record that the fields of its hash hold."""
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
        inputs=_inputs(found),
        standin=found.get("standin", ""),
        **{name: int(found[name]) for name in counters if name in found},
    )
