"""Several servers as one store: each run lives whole on one of them, and every call about it goes there."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from runner.client.batch import AT_ONCE, Batch, ExistingBatch, Numbered
from runner.client.client import Client, new_run_id
from runner.client.handle import RunHandle, RunResult
from runner.client.ids import RUN_ID, run_id_for
from runner.client.store import Store, named_urls
from runner.core.errors import NotFound, StoreUnreachable, UsageError
from runner.core.redaction import redact_url
from runner.providers.records import NewRun, RunRecord
from runner.providers.redis.connection import reach
from runner.providers.redis.outages import TRANSIENT_ERRORS
from runner.providers.redis.partitions import Part, confirm, place_of, places_of, settle
from runner.providers.redis.waiting_client import StillAway, wait_while_unavailable

if TYPE_CHECKING:
    from runner.client.submission import Prepared

T = TypeVar("T")
U = TypeVar("U")
F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["Client", "PartitionedClient"]

AHEAD = 10_000  #: inputs of a batch that are read for a server which takes none: after these, others wait, too


def _at_its_server(method: F) -> F:
    """A method of `Client` that is called with a run: it is called of the client of the server that has the run."""

    @wraps(method)
    def call(self: "PartitionedClient", run_id: str, *args: Any, **how: Any) -> Any:
        return method(self.of(run_id), run_id, *args, **how)

    return cast("F", call)


class PartitionedClient(Client):
    """A `Client` of several servers, which is what `Client` is where several are named.

    A server that does not answer keeps its own runs waiting, and calls about them raise `StoreUnreachable`; new runs
    without an ``id`` of their own go to the others.
    """

    def __init__(self, redis_url: str | None = None, *, state_dir: Path | None = None) -> None:  # noqa: ARG002 - a class that is called as `Client` is
        self.urls = named_urls(redis_url)
        self._clients: dict[int, Client] = {}
        self._lock = threading.RLock()
        self._counts: tuple[int, ...] = ()

    def close(self) -> None:
        """Close the connections to all servers."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    @property
    def embedded(self) -> bool:
        """Whether the server is embedded: one of several never is."""
        return False

    def at(self, place: int) -> Client:
        """The client of one server, by its place. Raises `StoreUnreachable` if it does not answer now.

        Raises `UsageError` if that is not its place, or there are more servers by now.
        """
        url, client = self.urls[place], self._client(place)
        ask = partial(confirm, client.store.watcher, url, client.store.part)
        counts = reach(client.store.watcher, f"Redis at {redact_url(url)}", url, "--redis-url", ask)
        self._counts = counts or self._settle()
        return client

    def _client(self, place: int) -> Client:
        with self._lock:
            if place not in self._clients:
                self._clients[place] = Client(self.urls[place], part=Part(place, len(self.urls)))
            return self._clients[place]

    def _settle(self) -> tuple[int, ...]:
        """Each server gets to know its place: all have to answer."""
        with self._lock:
            return settle([(url, self._client(place).store.client) for place, url in enumerate(self.urls)])

    def of(self, run: str) -> Client:
        """The client of the server that has a run, by its id or the key that it was submitted with.

        A run that none has belongs to that where it would be created. Raises `StoreUnreachable` if it may be where
        nothing answers.
        """
        try:
            run_id = run if RUN_ID.fullmatch(run) else run_id_for(run)
        except UsageError:  # no run was submitted with it
            run_id = run
        many = len(self.urls)
        own = place_of(run_id, many)
        left, away = [own], None
        for place in left:
            try:
                client = self.at(place)
                if client.store.runs.existing([run_id]):
                    return client
            except StoreUnreachable as error:
                away = away or error
            if place == own:
                left += [one for one in places_of(run_id, self._counts or range(1, many + 1)) if one != own]
        if away is not None:
            raise StoreUnreachable(f"run {run_id} may be there: {away}")
        return self.at(own)

    def submit(self, target: Any, inputs: Any = None, *, id: str | None = None, **options: Any) -> RunHandle:
        """Submit one run, as `Client.submit` does.

        With an ``id`` it raises `StoreUnreachable` while a server is away that may have it: the run would be done
        twice.
        """
        if id is not None:
            return self.of(id).submit(target, inputs, id=id, **options)
        place, client = self._reachable(place_of(new_run_id(), len(self.urls)))
        return client.submit(target, inputs, new_id=partial(self.new_id, place), **options)

    def _reachable(self, first: int = 0) -> tuple[int, Client]:
        """A server that answers, the next from a place on, and its place. Raises `StoreUnreachable` if none does."""
        away: StoreUnreachable | None = None
        for place in (*range(first, len(self.urls)), *range(first)):
            try:
                return place, self.at(place)
            except StoreUnreachable as error:
                away = away or error
        raise away or UsageError("no server is named")

    def new_id(self, place: int) -> str:
        """An id of a run that belongs to one server."""
        while place_of(run_id := new_run_id(), len(self.urls)) != place:
            pass
        return run_id

    def submit_batch(
        self, prepared: "Prepared", inputs: Iterable[Numbered], id: str, at_once: int, **how: Any
    ) -> Batch:
        """As `Client.submit_batch`: each run goes to its server, of which each has its share of ``at_once``."""
        from runner.client.batch_sources import new_runs, submission

        self._reachable()  # says now what is wrong with the servers' places
        found = PartitionedBatch(self, id, at_once)
        stopped = threading.Event()
        dealt = _Dealt(new_runs(prepared, inputs, id), partial(found.until_reachable, self._place_now), len(self.urls))

        def part_at(place: int, share: int) -> Batch:
            client = self.at(place)
            return Batch(client, id, share, submission(client, prepared, dealt.of(place), id, stopped=stopped, **how))

        found.part_at = part_at
        return found

    def known_calls(self, id: str, *, batch: bool = False) -> dict[str, str]:
        """As `Client.known_calls`. The runs of a batch may be on any server."""
        if not batch:
            return self.of(id).known_calls(id)
        found = (self.at(place).known_calls(id, batch=True) for place in range(len(self.urls)))
        return next((calls for calls in found if calls), {})

    def resume_many(self, batch: str, *, at_once: int = AT_ONCE, **how: bool) -> Batch:
        """Resume several runs, as `Client.resume_many` does."""
        from runner.client.batch_sources import resumption

        found = PartitionedBatch(self, batch, at_once)
        found.part_at = lambda place, share: Batch(
            self.at(place), batch, share, resumption(self.at(place), batch, **how)
        )
        return found

    def batch(self, id: str) -> Batch:
        """Return the batch with this id, as `Client.batch` does."""
        found = PartitionedBatch(self, id, AT_ONCE)
        found.begun_elsewhere = True
        found.part_at = lambda place, share: ExistingBatch(self.at(place), id, found)  # noqa: ARG005 - it submits none
        found.runs(1)  # says now if there is none
        return found

    def _place_now(self, run_id: str) -> int:
        """Where a run of a batch is, or is to be: it may have been submitted when there were fewer servers."""
        own, *others = places_of(run_id, self._counts)
        return next((one for one in others if self.at(one).store.runs.existing([run_id])), own)

    def id_of(self, run: str) -> str:
        """Return the id of the run of a key, as `Client.id_of` does."""
        return self.of(run).id_of(run)

    def runs(self, limit: int = 50) -> list[RunRecord]:
        """As `Client.runs`, of the servers that answer; ``away`` says which do not. Raises if none does."""
        found: list[RunRecord] = []
        away: list[StoreUnreachable] = []
        for place in range(len(self.urls)):
            try:
                found += self.at(place).runs(limit)
            except StoreUnreachable as error:
                away.append(error)
        if len(away) == len(self.urls):
            raise away[0]
        self.away = tuple(map(str, away))
        return sorted(found, key=lambda run: run.created_at, reverse=True)[:limit]

    run, checkpoints = _at_its_server(Client.run), _at_its_server(Client.checkpoints)
    resume, answer = _at_its_server(Client.resume), _at_its_server(Client.answer)
    fork, diff = _at_its_server(Client.fork), _at_its_server(Client.diff)


class _Dealt:
    """The runs of a batch, each for the server that it belongs to. Those that are read for another one wait for it."""

    def __init__(self, source: Iterator[NewRun], place_of: Callable[[str], int | None], many: int) -> None:
        self._source, self._place_of = source, place_of
        self._waiting: list[deque[NewRun]] = [deque() for _ in range(many)]
        self._taken = threading.Condition()

    def of(self, place: int) -> Iterator[NewRun]:
        """Return the part of the batch that one server has."""
        own = self._waiting[place]
        while True:
            with self._taken:
                while not own:
                    if any(len(one) >= AHEAD for one in self._waiting):
                        self._taken.wait()
                        continue
                    run = next(self._source, None)
                    if run is None or (other := self._place_of(run.id)) is None:
                        return
                    self._waiting[other].append(run)
                run = own.popleft()
                self._taken.notify_all()
            yield run


class PartitionedBatch(Batch):
    """A batch on several servers: a thread follows each, and waits while its server is away."""

    part_at: Callable[[int, int], Batch]
    """What follows the runs of the server at a place, with its share of those that are active at once."""

    def __init__(self, client: PartitionedClient, id: str, at_once: int) -> None:
        super().__init__(client, id, at_once, lambda _: None)
        self._many, self._client_at = len(client.urls), client.at
        self._parts: dict[int, Batch] = {}
        self._over: queue.SimpleQueue[tuple[int, RunResult] | BaseException | None] = queue.SimpleQueue()

    @property
    def active(self) -> int:
        """The number of active runs."""
        return sum(part.active for part in list(self._parts.values()))

    @property
    def begun(self) -> int:
        """The number of its runs so far."""
        return sum(part.begun for part in list(self._parts.values()))

    def stop(self) -> None:
        """End the iteration soon, as `Batch.stop` does."""
        self.stopped = True
        for part in list(self._parts.values()):
            part.stop()

    def _stores(self) -> Sequence[Store]:
        return [self._client_at(place).store for place in range(self._many)]

    def __iter__(self) -> Iterator[tuple[int, RunResult]]:
        """As that of `Batch`, in the order in which runs are over."""
        for place in range(self._many):
            threading.Thread(target=self._follow, args=(place,), name=f"batch-{place}", daemon=True).start()
        unknown: list[NotFound] = []
        left = self._many
        try:
            while left:
                found = self._over.get()
                if isinstance(found, tuple):
                    yield found
                    continue
                if isinstance(found, NotFound):
                    unknown.append(found)
                elif found is not None:
                    raise found
                left -= 1
        finally:
            if left:  # it is not followed to its end
                self.stop()
        if len(unknown) == self._many:
            raise unknown[0]

    def _follow(self, place: int) -> None:
        share = max((self._at_once + self._many - 1 - place) // self._many, 1)
        try:
            part = self.until_reachable(lambda at: self.part_at(at, share), place)
            if part is None:
                self._over.put(None)
                return
            part.waits = True
            part.on_begun = lambda: self.on_begun()
            self._parts[place] = part
            part.stopped, part.until = self.stopped, self.until
            for found in part:
                self._over.put(found)
            self.stopped = self.stopped or part.stopped
        except BaseException as error:  # it is raised where the batch is followed
            self._over.put(error)
            return
        self._over.put(None)

    def until_reachable(self, call: Callable[[T], U], given: T) -> U | None:
        """What ``call`` gives, however long a server is away meanwhile; None if the batch is to stop."""
        away = StoreUnreachable, *TRANSIENT_ERRORS
        try:
            return wait_while_unavailable(partial(call, given), self._is_followed, away)
        except StillAway:
            self.stopped = True
            return None


Client.partitioned = PartitionedClient
