"""The store in memory passes the published suite. That in Redis does in `tests/integration/providers`."""

from collections.abc import Mapping, Sequence

import pytest

from runner.core.jobs import Job
from runner.providers.memory import MemoryStore
from runner.providers.records import Position
from runner.testing import ManualClock, StoreConformance
from runner.testing.store_driver import QUEUE, StoreDriver


class OnMemory(StoreDriver):
    envelope = "to its own queue"

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.runs, self.workers, self.batches = self.store.runs, self.store.workers, self.store.batches
        super().__init__()

    def receive(self) -> Job | None:
        return self.store.workers.take([QUEUE])

    def go_on(self, ms: int) -> None:
        self.clock.advance(ms / 1000)

    def position(self, run_id: str, checkpoint: str | None, outputs: Sequence[str]) -> Position:
        return self.store.runs.position(run_id, checkpoint=checkpoint, outputs=outputs)

    def leave(self, where: Position, name: str, *, rerun: frozenset[str], kept: frozenset[str],
              edits: Mapping[str, str]) -> str:  # fmt: skip
        return self.store.runs.fork(where, name, rerun=rerun, kept=kept, edits=edits, overrides=where.overrides)


class TestMemory(StoreConformance):
    @pytest.fixture
    def driver(self) -> StoreDriver:
        return OnMemory()
