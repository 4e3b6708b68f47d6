"""The store in Redis passes the published suite. That in memory does in `tests/unit/providers`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import pytest
from redis import Redis

from runner.core.jobs import Job
from runner.providers.records import Position
from runner.providers.redis import forks
from runner.providers.redis.batches import Batches
from runner.providers.redis.connection import connect
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.pipelined import Replicas
from runner.providers.redis.runs import Runs
from runner.providers.redis.store import RedisStore
from runner.testing import RedisServer, StoreConformance
from runner.testing.store_driver import QUEUE, StoreDriver

from .checks import job_of
from .conftest import Clock


class OnRedis(StoreDriver):
    envelope = DIRECT

    def __init__(self, url: str, redis: Redis, clock: Clock) -> None:
        self.redis, self.clock = redis, clock
        self.store = RedisStore(url, name="runner:w0:p0", replicas=Replicas())
        self.runs, self.workers, self.batches = Runs(redis), self.store.workers, Batches(connect(url))
        super().__init__()

    def close(self) -> None:
        self.store._line.close()
        self.store._client.close()
        self.batches.client.close()

    def receive(self) -> Job | None:
        message = self.redis.rpop(QUEUE)
        return Job(*job_of(message)) if message else None

    def go_on(self, ms: int) -> None:
        self.clock.go_on(ms)

    def position(self, run_id: str, checkpoint: str | None, outputs: Sequence[str]) -> Position:
        return forks.position(self.redis, run_id, checkpoint=checkpoint, outputs=outputs)

    def leave(self, where: Position, name: str, *, rerun: frozenset[str], kept: frozenset[str],
              edits: Mapping[str, str]) -> str:  # fmt: skip
        how = {"rerun": rerun, "kept": kept, "edits": edits, "overrides": where.overrides}
        return forks.create(self.redis, where, name, **how)


class TestRedis(StoreConformance):
    @pytest.fixture
    def driver(self, server: RedisServer, redis: Redis, clock: Clock) -> Iterator[StoreDriver]:
        # Left to the collector, a socket may be found before the connection that closes it, and warns.
        with closing(OnRedis(server.url, redis, clock)) as driver:
            yield driver
