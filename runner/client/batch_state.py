"""The state of a batch: how many of its runs were submitted, how they stand, and what they cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from operator import itemgetter
from typing import Any

from runner.core.ledger import LedgerRow, spent
from runner.core.prices import NO_PRICES
from runner.core.states import RunStatus
from runner.llm.list_prices import configured
from runner.providers.records import RunRecord

LISTED = 20  #: runs that failed, or await input, that a state names at most: the first
_WORST = (RunStatus.running, RunStatus.failed, RunStatus.cancelled, RunStatus.waiting)


@dataclass
class BatchState:
    """The state of a batch when it was read.

    ``total`` is the number of inputs, None where the submitter did not know it; ``stopped`` is why no more are
    submitted, "" if they are. ``runs`` counts its runs by status, and those that are gone from the store as "gone".
    """

    id: str
    total: int | None = None
    stopped: str = ""
    crew: str = ""
    created_at: int | None = None
    ended_at: int | None = None
    runs: Counter[str] = field(default_factory=Counter)
    recoveries: int = 0
    listed: list[tuple[int, RunRecord]] = field(default_factory=list)
    """The first `LISTED` runs that failed or await input, after their numbers."""
    _counts: Counter[str] = field(default_factory=Counter)
    _rows: dict[tuple[str, str, str, str], LedgerRow] = field(default_factory=dict)
    _standin: str = ""

    @property
    def submitted(self) -> int:
        """The number of runs that were submitted."""
        return self.runs.total()

    @property
    def left(self) -> int:
        """The number of inputs that were not submitted, as far as it is known."""
        return max((self.total or 0) - self.submitted, 0)

    @property
    def status(self) -> str:
        """Running while a run is; else failed, cancelled, waiting (also for inputs to be submitted) or completed."""
        found = next((one for one in _WORST if self.runs[one]), RunStatus.completed)
        if found is RunStatus.running or not (self.stopped or self.left or self.runs["gone"]):
            return found.value
        if self.runs["gone"] or found is RunStatus.failed:
            return RunStatus.failed.value
        return (RunStatus.cancelled if self.stopped or found is RunStatus.cancelled else RunStatus.waiting).value

    @property
    def ledger(self) -> dict[str, Any]:
        """Return the account of all its runs, as that of a run; its calls are listed by task, agent and model."""
        tools = {name.removeprefix("tools_"): many for name, many in self._counts.items() if name.startswith("tools_")}
        steps = {name: many for name, many in self._counts.items() if not name.startswith("tools_")}
        rows = sorted(self._rows.values(), key=lambda row: (row.branch != "main", row.branch, row.task, row.agent))
        prices = NO_PRICES if self._standin or not rows else configured(self.created_at)
        by = [row.to_dict(prices) for row in rows]
        return {**steps, "tools": tools, **spent(rows, prices), "by": by}

    def include(self, total: int | None, stopped: str) -> None:
        """Add what one of its servers knows of the batch."""
        self.total, self.stopped = self.total or total, self.stopped or stopped

    def add(
        self, runs: Sequence[tuple[int, str]], found: Sequence[tuple[RunRecord | None, Sequence[LedgerRow]]]
    ) -> None:
        """Add these runs of it, by number: their records and their calls of models."""
        for (number, _), (run, rows) in zip(runs, found, strict=True):
            if run is None:
                self.runs["gone"] += 1
                continue
            self.runs[run.status] += 1
            self.crew, self._standin = run.crew, run.standin
            self.recoveries += run.recoveries
            self.created_at = min(self.created_at or run.created_at, run.created_at)
            self.ended_at = max(self.ended_at or 0, run.ended_at or 0) or None
            self._count(run.ledger)
            for row in rows:
                self._include(row)
            if run.status in (RunStatus.failed, RunStatus.waiting):
                self.listed.append((number, run))
        self.listed = nsmallest(LISTED, self.listed, key=itemgetter(0))  # each server has some of the first

    def _count(self, ledger: dict[str, Any]) -> None:
        for name, many in ledger.items():
            if name == "tools":
                self._counts.update({f"tools_{kind}": count for kind, count in many.items()})
            else:
                self._counts[name] += many

    def _include(self, row: LedgerRow) -> None:
        key = row.branch, row.task, row.agent, row.model
        known = self._rows.get(key)
        if known is not None:
            numbers = {name: getattr(known, name) + getattr(row, name) for name in _NUMBERS}
            row = replace(row, **numbers)
        self._rows[key] = row

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``runner show --json`` prints."""
        runs = {status.value: self.runs[status] for status in RunStatus}
        return {
            "batch_id": self.id,
            "status": self.status,
            "crew": self.crew,
            "total": self.total,
            "submitted": self.submitted,
            "runs": runs | ({"gone": self.runs["gone"]} if self.runs["gone"] else {}),
            "ledger": self.ledger,
            "recoveries": self.recoveries,
            "error": self.stopped or None,
            "created_at": self.created_at,
            "ended_at": self.ended_at if not self.runs[RunStatus.running] else None,
            "listed": [
                {"line": number, "run_id": run.id, "status": run.status.value, "error": run.error or None}
                for number, run in self.listed
            ],
        }


_NUMBERS = [name for name in LedgerRow.__slots__ if name not in ("branch", "task", "agent", "model")]
