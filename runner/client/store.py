"""Which Redis holds the state: the one that was named, else the embedded one."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from runner.client import embedded
from runner.providers.redis.batches import Batches
from runner.providers.redis.connection import Client, check, connect, refusing, waiting
from runner.providers.redis.patience import format_store_error
from runner.providers.redis.runs import Runs
from runner.providers.redis.workers import Workers


@dataclass
class Store:
    """An open store. ``membership`` keeps the embedded server alive while we use it; None for a named Redis.

    ``client`` waits for a server that refuses for now; ``watcher`` asks once, for loops and callers that need to
    know whether it does.
    """

    url: str
    client: Client
    watcher: Client
    membership: embedded.Membership | None = None
    state_dir: Path = field(default_factory=embedded.default_state_dir)

    @property
    def runs(self) -> Runs:
        """The runs in it."""
        return Runs(self.client)

    @property
    def batches(self) -> Batches:
        """Those that were submitted together."""
        return Batches(self.client)

    @property
    def workers(self) -> Workers:
        """The workers on it."""
        return Workers(self.client)

    def refusing(self) -> str:
        """Why the store takes no writes now, in words; "" if it does."""
        refused = refusing(self.watcher)
        return format_store_error(refused) if refused is not None else ""

    def tend(self) -> None:
        """Make sure that an embedded server still runs; cheap when it does."""
        if self.membership is not None:
            self.membership.rejoin()

    def close(self) -> None:
        """Let it go."""
        self.client.close()
        self.watcher.close()
        if self.membership is not None:
            self.membership.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def open_store(redis_url: str | None = None, *, state_dir: Path | None = None) -> Store:
    """Open the state's Redis: ``redis_url``, else ``RUNNER_REDIS_URL``, else the embedded server of ``state_dir``.

    Raises `StoreUnreachable` with the address tried.
    """
    url = redis_url or os.environ.get("RUNNER_REDIS_URL")
    folder = state_dir or embedded.default_state_dir()
    membership = None
    if not url:
        membership = embedded.join(folder)
        url = membership.url
    client = waiting(url)
    check(client, url)
    return Store(url, client, connect(url), membership, folder)
