"""Selects the Redis that holds the state: the one that was named, else the embedded one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from runner.client import embedded
from runner.core.errors import UsageError
from runner.core.settings import default_queue, queue_name, setting
from runner.providers.redis import partitions
from runner.providers.redis.address import several
from runner.providers.redis.batches import Batches
from runner.providers.redis.connection import Client, check, connect, refusing
from runner.providers.redis.keys import queue_in
from runner.providers.redis.outages import format_store_error
from runner.providers.redis.partitions import ALONE, Part
from runner.providers.redis.runs import Runs
from runner.providers.redis.waiting_client import waiting
from runner.providers.redis.workers import Workers


@dataclass
class Store:
    """An open store.

    ``membership`` keeps the embedded server alive while this process uses it; None for a Redis that was named.
    ``client`` retries while a server refuses; ``watcher`` tries once, for loops and callers that must know.
    """

    url: str
    client: Client
    watcher: Client
    membership: embedded.Membership | None = None
    state_dir: Path = field(default_factory=embedded.default_state_dir)
    part: Part = ALONE

    def confirm(self) -> "Store":
        """Raise `UsageError` if the server is another partition than this one. Returns the store."""
        partitions.confirm(self.client, self.url, self.part)
        return self

    @property
    def runs(self) -> Runs:
        """The runs in the store."""
        return Runs(self.client)

    @property
    def batches(self) -> Batches:
        """The batches in the store."""
        return Batches(self.client)

    @property
    def workers(self) -> Workers:
        """The workers of the store."""
        return Workers(self.client)

    def refusing(self) -> str:
        """Return why the store refuses writes now; "" if it accepts them."""
        refused = refusing(self.watcher)
        return format_store_error(refused) if refused is not None else ""

    def queue(self, name: str | None) -> str:
        """Return the queue's name on this store; the default queue if ``name`` is None. Raises `UsageError`."""
        return queue_in(self.client.home, queue_name(name or default_queue(embedded=self.membership is not None)))

    def tend(self) -> None:
        """Make sure that an embedded server still runs; cheap if it does."""
        if self.membership is not None:
            self.membership.rejoin()

    def close(self) -> None:
        """Close the connections and leave the embedded server."""
        self.client.close()
        self.watcher.close()
        if self.membership is not None:
            self.membership.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def named_urls(redis_url: str | None = None) -> tuple[str, ...]:
    """Return the URLs of the store's servers: ``redis_url``, else ``RUNNER_REDIS_URL``; none for the embedded server.

    Each partition of a Redis Cluster has a URL of its own, which the nodes report: raises `StoreUnreachable`.
    """
    url = redis_url or setting("RUNNER_REDIS_URL")
    return tuple(one for named in several(url) for one in partitions.urls_of(named)) if url else ()


class Server(NamedTuple):
    """One server of the store, and its broker: "" if it is the same. ``url`` is "" for the embedded one."""

    url: str = ""
    broker: str = ""
    part: Part = ALONE

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables for a process that serves only this server."""
        given = {"RUNNER_REDIS_URL": self.url, "RUNNER_BROKER_URL": self.broker}
        return {name: value for name, value in given.items() if value}

    def open(self) -> Store:
        """Open this server's store. Raises `StoreUnreachable`."""
        return open_store(self.url, part=self.part)


def named_servers(partition: int | None = None) -> list[Server]:
    """Return the servers of the store, or only number ``partition``, counted from 1. Raises `UsageError`."""
    urls = named_urls() or ("",)
    brokers = several(setting("RUNNER_BROKER_URL", ""))
    if any("+cluster://" in one for one in brokers):
        raise UsageError("a Redis Cluster is the broker of its own runs only: name it with --redis-url alone")
    if len(brokers) == 1 and len(several(setting("RUNNER_REDIS_URL", ""))) == 1:
        brokers *= len(urls)  # of a cluster: the queues of its partitions differ in their names
    if brokers[0] and len(brokers) != len(urls):
        raise UsageError(f"{len(urls)} servers and {len(brokers)} brokers are named: each server needs its own broker")
    found = [
        Server(url, broker, Part(place, len(urls)))
        for place, (url, broker) in enumerate(zip(urls, brokers * (len(urls) // len(brokers)), strict=True))
    ]
    if partition is not None and not 1 <= partition <= len(found):
        there = "there is only 1 partition" if len(found) == 1 else f"there are only {len(found)} partitions"
        raise UsageError(f"--partition {partition}: {there} in --redis-url (RUNNER_REDIS_URL), counted from 1")
    return found if partition is None else [found[partition - 1]]


def open_store(redis_url: str | None = None, *, state_dir: Path | None = None, part: Part = ALONE) -> Store:
    """Open the state's Redis: ``redis_url``, else ``RUNNER_REDIS_URL``, else the embedded server of ``state_dir``.

    ``part`` says which of several partitions it is. Raises `StoreUnreachable` with the address that was tried.
    """
    url = redis_url or setting("RUNNER_REDIS_URL")
    folder = state_dir or embedded.default_state_dir()
    membership = None
    if not url:
        membership = embedded.join(folder)
        url = membership.url
    url = partitions.urls_of(url)[0]
    client = waiting(url)
    check(client, url)
    if membership is not None:
        client.tend = membership.rejoin
    return Store(url, client, connect(url), membership, folder, part)
