"""Several stores as one: each run lives whole on one of them, its partition, and every call about it goes there."""

import hashlib
import re
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from runner.client.client import Client, new_run_id
from runner.client.handle import RunHandle
from runner.client.submission import run_id_for
from runner.core.errors import StoreUnreachable, UsageError
from runner.core.redaction import redact_url
from runner.providers.records import RunRecord
from runner.providers.redis.address import identity
from runner.providers.redis.connection import reach
from runner.providers.redis.runs import Runs

_RUN_ID = re.compile(r"r-[0-9a-f]{12}")
_BETWEEN = re.compile(r",(?=[a-z+]+://)")  # between sentinels there are commas, too


def split(urls: str) -> tuple[str, ...]:
    """The URLs in a text that has commas between them. Raises `UsageError` if two of them are one store."""
    found = tuple(one.strip() for one in _BETWEEN.split(urls.strip()))
    if len({identity(one) for one in found}) < len(found):
        raise UsageError("two of the store's URLs lead to one database: each partition needs its own")
    return found


def ranked(run_id: str, urls: Iterable[str]) -> list[str]:
    """The URLs, the run's own partition first.

    Neither their order nor their passwords count, and another URL takes only the runs that it comes first for (the
    highest random weight): a run that is older than the last partition is at its second place, and so on.
    """
    return sorted(urls, key=lambda url: hashlib.sha256(f"{identity(url)}|{run_id}".encode()).digest(), reverse=True)


class PartitionedClient:
    """The verbs of `Client`, over several stores. What it returns works as what `Client` returns.

    A store that does not answer keeps its own runs waiting; new runs without an ``id`` of their own go to the others.
    """

    def __init__(self, urls: Iterable[str]) -> None:
        self.urls = tuple(urls)
        self._open: dict[str, Client] = {}

    def __enter__(self) -> "PartitionedClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to all partitions."""
        for client in self._open.values():
            client.close()
        self._open.clear()

    def at(self, url: str) -> Client:
        """The client of one partition. Raises `StoreUnreachable` if its store does not answer now."""
        if url not in self._open:
            self._open[url] = Client(url)
        client = self._open[url]
        reach(client.store.watcher, f"Redis at {redact_url(url)}", url, "--redis-url")
        return client

    def of(self, run: str) -> Client:
        """The client of the partition that has a run, by its id or the key that it was submitted with.

        A run that none has belongs to the first of `ranked`. Raises `StoreUnreachable` if it may be where nothing
        answers.
        """
        try:
            run_id = run if _RUN_ID.fullmatch(run) else run_id_for(run)
        except UsageError:  # no run was submitted with it
            run_id = run
        own, *others = ranked(run_id, self.urls)
        away: StoreUnreachable | None = None
        for url in (own, *others):
            try:
                client = self.at(url)
                if Runs(client.store.watcher).existing([run_id]):
                    return client
            except StoreUnreachable as error:
                away = away or error
        if away is not None:
            raise StoreUnreachable(f"run {run_id} may be there: {away}")
        return self.at(own)

    def submit(self, target: Any, inputs: Any = None, *, id: str | None = None, **options: Any) -> RunHandle:
        """As `Client.submit`.

        With an ``id`` that no partition in reach has, it raises `StoreUnreachable` while one is away: the run may be
        there, and would be done twice.
        """
        if id is not None:
            return self.of(id).submit(target, inputs, id=id, **options)
        away: StoreUnreachable | None = None
        for url in ranked(new_run_id(), self.urls):
            try:
                client = self.at(url)
            except StoreUnreachable as error:
                away = away or error
                continue
            return client.submit(target, inputs, new_id=self.ids_of(url), **options)
        raise away or UsageError("no store is named")

    def ids_of(self, url: str) -> Callable[[], str]:
        """What makes ids of runs that belong to the partition at ``url``."""

        def new_id() -> str:
            while True:
                run_id = new_run_id()
                if ranked(run_id, self.urls)[0] == url:
                    return run_id

        return new_id

    def run(self, run_id: str, branch: str | None = None) -> RunHandle:
        """As `Client.run`."""
        return self.of(run_id).run(run_id, branch)

    def resume(self, run_id: str, **how: Any) -> RunHandle:
        """As `Client.resume`."""
        return self.of(run_id).resume(run_id, **how)

    def answer(self, run_id: str, text: str | None = None, **how: Any) -> RunHandle:
        """As `Client.answer`."""
        return self.of(run_id).answer(run_id, text, **how)

    def fork(self, run_id: str, **how: Any) -> RunHandle:
        """As `Client.fork`."""
        return self.of(run_id).fork(run_id, **how)

    def runs(self, limit: int = 50) -> tuple[list[RunRecord], list[str]]:
        """List the newest ``limit`` runs of all partitions, newest first; and in words which partitions are away."""
        found: list[RunRecord] = []
        away: list[str] = []
        for url in self.urls:
            try:
                found += self.at(url).runs(limit)
            except StoreUnreachable as error:
                away.append(str(error))
        return sorted(found, key=lambda run: run.created_at, reverse=True)[:limit], away
