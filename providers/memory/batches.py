"""Batches: runs that are submitted together, with one plan and many inputs."""

import time
from collections.abc import Sequence

from runner.core.plan import Plan
from runner.core.states import RunStatus
from runner.providers.memory.runs import MemoryRuns
from runner.providers.memory.state import Memory, atomic
from runner.providers.records import NewRun


@atomic
class MemoryBatches:
    """The batches in a store."""

    def __init__(self, memory: Memory, runs: MemoryRuns) -> None:
        self._memory, self._runs = memory, runs

    def create(
        self, batch: str, plan: Plan, fields: dict[str, str], runs: Sequence[NewRun], total: int | None = None
    ) -> list[str]:
        """Accept runs of one plan. See `runner.engine.ports.Batches.create`."""
        if not self._memory.has_code(fields["bundle"]):
            return ["no bundle"]
        answers = []
        for one in runs:
            found = self._memory.run(one.id)
            if found is not None:
                answers.append("exists" if found.fields.get("batch") == batch else "taken")
                continue
            if self._memory.batch(batch).stopped:
                answers.append("stopped")
                continue
            answers.append(self._runs.create(one.id, plan, {**fields, **one.fields, "batch": batch}))
            its = self._memory.batch(batch)
            its.runs[one.id] = one.number
            its.active += 1
            its.total, its.expires_at = total or its.total, None
        return answers

    def stop(self, batch: str, reason: str) -> bool:
        """Refuse new runs of a batch. See `runner.engine.ports.Batches.stop`."""
        its = self._memory.batch(batch)
        if its.runs:
            its.stopped = reason
        return bool(its.runs)

    def about(self, batch: str) -> tuple[int | None, str]:
        """How many runs it is to have, and why it refuses new ones. See `runner.engine.ports.Batches.about`."""
        its = self._memory.batch(batch)
        return its.total, its.stopped

    def runs(self, batch: str, after: int = 0, limit: int = 500) -> list[tuple[int, str]]:
        """Its runs by their numbers, from the one that follows ``after``."""
        found = self._memory.batch(batch).runs.items()
        return sorted((number, run_id) for run_id, number in found if number > after)[:limit]

    def last_ended(self, batch: str) -> str:
        """Where the list of those that are over ends now; "0" if there is none."""
        return str(len(self._memory.batch(batch).ended))

    def ended(self, batch: str, after: str, block_ms: int) -> tuple[list[str], str]:
        """The runs that were over since ``after``, and where the list ends now; waits that long for the first."""
        end = time.monotonic() + block_ms / 1000
        while len(found := self._memory.batch(batch).ended) <= int(after) and time.monotonic() < end:
            self._memory.changed.wait(end - time.monotonic())
        return found[int(after) :], str(len(found))

    def statuses(self, run_ids: Sequence[str]) -> list[RunStatus | None]:
        """How these runs stand; None for one that is gone."""
        found = [self._memory.run(run_id) for run_id in run_ids]
        return [run.status if run is not None else None for run in found]
