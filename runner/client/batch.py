"""Batches: a stream of runs of one crew with many inputs, with a limit on active runs."""

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runner.client.handle import Pace, Read, RunHandle, RunResult, lost_result, result_of
from runner.client.submission import Prepared, check_code_choice, prepare, run_fields
from runner.core.errors import Conflict, NotFound
from runner.core.inputs import stored
from runner.core.states import RunStatus
from runner.providers.records import NewRun

if TYPE_CHECKING:
    from runner.client import Client

T = TypeVar("T")

BATCH_ID = re.compile(r"b-[0-9a-f]{12}")
AT_ONCE = 100  #: runs that are active, unless it is said otherwise
CHUNK = 50  #: runs that one script creates at most: others wait meanwhile, and workers for the first of them
LOOK_EVERY = 5.0  #: seconds between two looks at all active runs: no event says that one awaits input

Numbered = tuple[int, Mapping[str, Any]]
Begun = list[tuple[int, str, bool]]  #: numbers and ids of runs, and whether they are active


def batch_id_for(key: str) -> str:
    """Return the id of the batch with this key."""
    return "b-" + hashlib.sha256(key.encode()).hexdigest()[:12]


class Batch:
    """Runs that are submitted together. Iterating submits them, and yields ``(number, result)`` for each that is over.

    At most ``at_once`` are active; the next one is submitted when one is over or awaits input. If the caller stops
    iterating, active runs continue and no more are submitted.
    """

    stopped = False  #: whether who follows it, in another thread, is to stop

    def __init__(self, client: "Client", id: str, at_once: int, begin: Callable[[int], Begun | None]) -> None:
        self.id = id
        self._client, self._at_once, self._begin = client, at_once, begin
        self._active: dict[str, int] = {}
        self._look_at = time.monotonic() + LOOK_EVERY

    @property
    def active(self) -> int:
        """The number of active runs."""
        return len(self._active)

    def __iter__(self) -> Iterator[tuple[int, RunResult]]:
        """Submit runs and wait until all are over. Raises what `Client.submit` raises for the next input."""
        batches = self._client.store.batches
        after = batches.last_ended(self.id)
        over, pace, more = 0, Pace(), True
        while not self.stopped:
            while more and len(self._active) < self._at_once:
                begun = self._begin(self._at_once - len(self._active))
                more = begun is not None
                self._active |= {run_id: number for number, run_id, active in begun or () if active}
                for number, run_id, active in begun or ():
                    if not active:
                        yield number, self._result(run_id)
            if not self._active:
                return
            if over and len(self._active) > 1:
                time.sleep(pace.rest(len(self._active), over))  # several end meanwhile, which are read together
            ended, after = self._ended(after)
            ours = [run_id for run_id in ended if run_id in self._active]
            read: dict[str, Read] = self._patient(partial(batches.read, ours)) if ours else {}
            for run_id in ours:
                if run_id in self._active:
                    result = self._result(run_id, read.get(run_id))
                    if result.status != RunStatus.running:
                        over += 1
                        yield self._active.pop(run_id), result

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

    def _result(self, run_id: str, read: Read | None = None) -> RunResult:
        """Return the result of a run that is over; where its record is gone from the store, that it failed."""
        look = partial(result_of, self._client.store.runs, run_id, read=read)
        try:
            found: RunResult = self._client.patient(look, RunHandle(self._client, run_id))
            return found
        except NotFound as error:
            return lost_result(run_id, str(error))

    def _patient(self, call: Callable[[], T]) -> T:
        found: T = self._client.patient(call, RunHandle(self._client, next(iter(self._active))))
        return found


def by_first(
    target: str | Path | Prepared,
    inputs: Iterable[Mapping[str, Any]],
    known: Callable[[], Mapping[str, str]] | None = None,
) -> tuple[Prepared, Iterable[Numbered]]:
    """Prepare the crew with the first of ``inputs``, and return it with all numbered inputs. The first is needed
    because what a file runs, and which crew its classes create, can depend on the inputs. ``known`` is as in `prepare`.
    """
    left = iter(inputs)
    first = list(islice(left, 1))
    if not isinstance(target, Prepared):
        target = prepare(str(target), inputs=first[0] if first else None, known=known)
    return target, enumerate(chain(first, left), 1)


def new_runs(prepared: Prepared, inputs: Iterable[Numbered], batch: str) -> Iterator[NewRun]:
    """Return a numbered run for each of these inputs. Raises `BadInput`."""
    for number, given in inputs:
        values = prepared.given(given)
        prepared.refuse_missing(values)
        text = stored(values)
        run_id = "r-" + hashlib.sha256(f"{batch}|{number}|{text}".encode()).hexdigest()[:12]
        yield NewRun(run_id, number, text, prepared.beginning(values))


def submission(
    client: "Client",
    prepared: Prepared,
    source: Iterator[NewRun],
    batch: str,
    *,
    queue: str | None = None,
    **options: Any,
) -> Callable[[int], Begun | None]:
    """Return a function that submits the next few runs. Runs that exist already stay as they are.

    ``options`` are those of `run_fields`.
    """
    fields = run_fields(prepared, None, client.store.queue(queue), **options)
    taken: list[NewRun] = []  # and not accepted yet

    def begin(room: int) -> Begun | None:
        runs = [*taken] or list(islice(source, min(room, CHUNK)))
        if not runs:
            return None
        taken[:] = runs
        batches = client.store.batches
        answers = client.accept(prepared, lambda: batches.create(batch, prepared.plan, fields, runs))
        if "taken" in answers:
            raise Conflict(
                f"the id {runs[answers.index('taken')].id} is another run's: choose another id for the batch"
            )
        client.ensure_worker(fields["queue"], prepared.plan)
        there = [run.id for run, answer in zip(runs, answers, strict=True) if answer == "exists"]
        over = {run_id for run_id, status in zip(there, batches.statuses(there), strict=True) if status and status.over}
        taken.clear()
        return [(run.number, run.id, run.id not in over) for run in runs]

    return begin


def resumption(
    client: "Client", batch: str, *, accept_code_change: bool = False, keep_code: bool = False
) -> Callable[[int], Begun | None]:
    """Return a function that resumes the next few failed or cancelled runs of a batch. Raises `NotFound`, and
    `UsageError` if both options are given.
    """
    check_code_choice(accept_code_change=accept_code_change, keep_code=keep_code)
    batches = client.store.batches
    if not batches.runs(batch, limit=1):
        raise NotFound(f"there is no batch {batch} (a finished one is only kept for a while)")

    def again() -> Iterator[tuple[int, str, RunStatus | None]]:
        after = 0
        while found := batches.runs(batch, after):
            after = found[-1][0]
            statuses = batches.statuses([run_id for _, run_id in found])
            yield from ((*one, status) for one, status in zip(found, statuses, strict=True))

    source = ((n, run, s) for n, run, s in again() if s not in (None, RunStatus.completed, RunStatus.waiting))

    def begin(room: int) -> Begun | None:
        begun = list(islice(source, room))
        for _, run_id, status in begun:
            if status is not RunStatus.running:
                client.resume(run_id, accept_code_change=accept_code_change, keep_code=keep_code)
        return [(number, run_id, True) for number, run_id, _ in begun] or None

    return begin
