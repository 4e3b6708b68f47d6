"""Batches: a stream of runs of one crew with many inputs, with a limit on active runs."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from runner.client.batch_state import BatchState
from runner.client.handle import ClientPort, Pace, RunHandle, RunResult, lost_result, result_of
from runner.client.store import Store
from runner.core.errors import Conflict, NotFound, no_batch
from runner.core.states import RunStatus
from runner.providers.records import ReadRun, RunRecord
from runner.providers.redis.runs import Runs
from runner.providers.redis.waiting_client import StillAway

T = TypeVar("T")

AT_ONCE = 100  #: runs that are active, unless it is said otherwise
CHUNK = 50  #: runs that one script creates at most: others wait meanwhile, and workers for the first of them
PAGE = 500  #: runs of which one round trip reads the statuses, or the ledgers, at most
RESULTS = 100  #: runs of which one round trip reads the results at most: outputs may be large
LOOK_EVERY = 5.0  #: seconds between two looks at all active runs: no event says that one awaits input
NEXT_WITHIN = 5.0  #: seconds in which a submitter that lives submits the next run

Numbered = tuple[int, Mapping[str, Any]]
Begun = list[tuple[int, str, bool]]  #: numbers and ids of runs, and whether they are active


_CANCELLED_FROM = (RunStatus.running, RunStatus.waiting)


class Batch:
    """Runs that are submitted together. Iterating submits them, and yields ``(number, result)`` for each that is over.

    At most ``at_once`` are active; the next one is submitted when one is over or awaits input. If the caller stops
    iterating, active runs continue and no more are submitted.
    """

    stopped = False  #: whether the iteration is to end, or has ended, although runs are active
    until = math.inf  #: the time (`time.monotonic`) from which nothing more is waited for: the iteration is stopped
    begun_elsewhere = False  #: whether others submit its runs
    waits = False  #: whether a store that is away is waited for from the start, not only after its first run

    def __init__(self, client: ClientPort, id: str, at_once: int, begin: Callable[[int], Begun | None]) -> None:
        self.id = id
        self.on_begun: Callable[[], None] = lambda: None
        """Called when there are more of them."""
        self._client, self._at_once, self._begin = client, at_once, begin
        self._active: dict[str, int] = {}
        self._begun = 0
        self._look_at = time.monotonic() + LOOK_EVERY

    @property
    def active(self) -> int:
        """The number of active runs."""
        return len(self._active)

    def stop(self) -> None:
        """End the iteration soon, from another thread. Active runs continue."""
        self.stopped = True

    @property
    def begun(self) -> int:
        """The number of its runs that this object has submitted, resumed or found so far."""
        return self._begun

    def __iter__(self) -> Iterator[tuple[int, RunResult]]:
        """Submit runs and wait until all are over. Raises what `Client.submit` raises for the next input."""
        try:
            yield from self._followed()
        except StillAway:
            self.stopped = True

    def _followed(self) -> Iterator[tuple[int, RunResult]]:
        batches = self._client.store.batches
        after = self._patient(partial(batches.last_ended, self.id))
        over, pace, more = 0, Pace(), True
        while not self.stopped:
            while more and len(self._active) < self._at_once:
                begun = self._patient(partial(self._begin, self._at_once - len(self._active)))
                more = begun is not None
                self._active |= {run_id: number for number, run_id, active in begun or () if active}
                if begun:
                    self._begun += len(begun)
                    self.on_begun()
                over_before = {run_id: number for number, run_id, active in begun or () if not active}
                for result in self._results(list(over_before)):
                    yield over_before[result.run_id], result
            if not self._active and not self._has_more():
                return
            if time.monotonic() > self.until:
                self.stopped = True
                return
            if over and len(self._active) > 1:
                time.sleep(pace.rest(len(self._active), over))  # several end meanwhile, which are read together
            ended, after = self._ended(after)
            for result in self._results([run_id for run_id in ended if run_id in self._active]):
                if result.status != RunStatus.running:
                    over += 1
                    yield self._active.pop(result.run_id), result
            more = more or self.begun_elsewhere

    def _has_more(self) -> bool:
        """Whether more of its runs are to come although none is active."""
        return False

    def _ended(self, after: str) -> tuple[Iterable[str], str]:
        """Return the runs that have ended since ``after``; wait briefly for the first."""
        batches = self._client.store.batches
        ended, last = self._patient(lambda: batches.ended(self.id, after, 500))
        if time.monotonic() > self._look_at:
            self._look_at = time.monotonic() + LOOK_EVERY
            active = list(self._active)
            statuses = self._patient(lambda: batches.statuses(active))
            ended += [run_id for run_id, status in zip(active, statuses, strict=True) if status is None or status.over]
        return dict.fromkeys(ended), last

    def _results(self, run_ids: Sequence[str]) -> Iterator[RunResult]:
        """Return the results of runs that are over, in this order; they are read `RESULTS` at a time."""
        for start in range(0, len(run_ids), RESULTS):
            yield from self._patient(partial(self._read, run_ids[start : start + RESULTS]))

    def _read(self, run_ids: Sequence[str]) -> list[RunResult]:
        store = self._client.store
        read, runs = store.batches.read(run_ids), store.runs
        return [self._result(runs, run_id, read.get(run_id)) for run_id in run_ids]

    def _result(self, runs: Runs, run_id: str, read: ReadRun | None) -> RunResult:
        """Return the result of a run that is over; where its record is gone from the store, that it failed."""
        try:
            return result_of(runs, run_id, read=read)
        except NotFound as error:
            return lost_result(run_id, str(error))

    def _patient(self, call: Callable[[], T]) -> T:
        """What ``call`` gives, however long that takes. Raises `StillAway` where the iteration is to end."""
        if not (self.waits or self._begun):
            return call()
        return self._client.patient(call, RunHandle(self._client, next(iter(self._active), "")), self._is_followed)

    def _is_followed(self) -> bool:
        return not self.stopped and time.monotonic() < self.until

    # -- all of it, whoever submits it

    def state(self) -> BatchState:
        """Return how many of its runs were submitted, run and are over, and what they cost. Raises `NotFound`."""
        state = BatchState(self.id)
        for store in self._stores():
            state.include(*store.batches.about(self.id))
            for found in self._pages(store):
                state.add(found, store.batches.tally([run_id for _, run_id in found]))
        if not state.submitted:
            raise no_batch(self.id)
        return state

    def total(self) -> int | None:
        """Return the number of its inputs; None if its submitter does not know it."""
        return next(filter(None, (store.batches.about(self.id)[0] for store in self._stores())), None)

    def why_stopped(self) -> str:
        """Return the reason for which no more of its runs are submitted; "" if they are."""
        return next(filter(None, (store.batches.about(self.id)[1] for store in self._stores())), "")

    def runs(self, limit: int = 50) -> list[tuple[int, RunRecord]]:
        """List its newest ``limit`` runs, each after its number, newest first. Raises `NotFound`."""
        found = [one for store in self._stores() for one in store.batches.newest(self.id, limit)]
        if not found:
            raise no_batch(self.id)
        return sorted(found, key=lambda one: one[0], reverse=True)[:limit]

    def cancel(self, reason: str = "cancelled by a person") -> int:
        """Cancel its runs that run or await input. No more are submitted, until it is resumed.

        Returns how many were cancelled. Raises `Conflict` if it is over, and `NotFound`.
        """
        stores = self._stores()
        about = [store.batches.about(self.id) for store in stores]
        total = next((many for many, _ in about if many), 0)
        was_stopped = any(why for _, why in about)
        # First: a run that is submitted at this moment is cancelled below.
        known = [store.batches.stop(self.id, why or reason) for store, (_, why) in zip(stores, about, strict=True)]
        if not any(known):
            raise no_batch(self.id)
        cancelled = submitted = 0
        for store in stores:
            for found in self._pages(store):
                submitted += len(found)
                statuses = store.batches.statuses([run_id for _, run_id in found])
                for (_, run_id), status in zip(found, statuses, strict=True):
                    if status in _CANCELLED_FROM:
                        cancelled += store.runs.cancel(run_id, reason) in _CANCELLED_FROM
        if cancelled or not (was_stopped or 0 < total <= submitted):
            return cancelled
        if was_stopped:
            raise Conflict(f"batch {self.id} is cancelled already: `runner resume {self.id}` resumes it")
        for store in stores:
            store.batches.stop(self.id, "")
        raise Conflict(f"batch {self.id} is over: there is nothing to cancel")

    def _stores(self) -> Sequence[Store]:
        """The stores that its runs are in."""
        return [self._client.store]

    def _pages(self, store: Store) -> Iterator[list[tuple[int, str]]]:
        """Return its runs there by number, as many at a time as are read at once."""
        after = 0
        while found := store.batches.runs(self.id, after, PAGE):
            yield found
            after = found[-1][0]


class ExistingBatch(Batch):
    """A batch that another process submits, or has submitted. Iterating waits for its runs, and submits none.

    It is over when all that were submitted are; where inputs are left, `NEXT_WITHIN` seconds later.
    """

    begun_elsewhere = waits = True

    def __init__(self, client: ClientPort, id: str, whole: Batch | None = None) -> None:
        super().__init__(client, id, PAGE, self._find)
        self._whole = whole or self  #: of which this is what one of several servers has
        self._last, self._idle_since = 0, 0.0
        if not client.store.batches.runs(id, limit=1):
            raise no_batch(id)

    def _find(self, room: int) -> Begun | None:
        batches = self._client.store.batches
        found = batches.runs(self.id, self._last, min(room, PAGE))
        if not found:
            return None
        statuses = batches.statuses([run_id for _, run_id in found])
        self._last, self._idle_since = found[-1][0], 0.0
        return [
            (number, run_id, status is RunStatus.running)
            for (number, run_id), status in zip(found, statuses, strict=True)
        ]

    def _has_more(self) -> bool:
        total, stopped = self._patient(partial(self._client.store.batches.about, self.id))
        self._idle_since = self._idle_since or time.monotonic()
        left = total and self._whole.begun < total and not stopped
        return bool(left and time.monotonic() < self._idle_since + NEXT_WITHIN)
