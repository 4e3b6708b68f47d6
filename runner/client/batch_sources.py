"""What begins the runs of a batch: new inputs, or those of its runs that failed."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from runner.client.batch import CHUNK, Begun, Numbered
from runner.client.handle import ClientPort
from runner.client.resuming import check_code_choice
from runner.client.submission import Prepared, prepare, run_fields
from runner.core.errors import Conflict, no_batch
from runner.core.inputs import stored
from runner.core.states import RunStatus
from runner.providers.records import NewRun

_RESUMED = (RunStatus.failed, RunStatus.cancelled)
_GO_ON = (*_RESUMED, RunStatus.running)  #: of a batch that is resumed: these are waited for


def by_first(
    target: str | Path | Prepared,
    inputs: Iterable[Mapping[str, Any]],
    known: Callable[[], Mapping[str, str]] | None = None,
) -> tuple[Prepared, Iterable[Numbered]]:
    """Prepare the crew with the first of ``inputs``, and return it with all numbered inputs.

    The first is needed because what a file runs, and which crew its classes create, can depend on the inputs. ``known``
    is as in `prepare`.
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
    client: ClientPort,
    prepared: Prepared,
    source: Iterator[NewRun],
    batch: str,
    *,
    stopped: threading.Event | None = None,
    total: int | None = None,
    queue: str | None = None,
    **options: Any,
) -> Callable[[int], Begun | None]:
    """Return a function that submits the next few runs. Runs that exist already stay as they are.

    Nothing more is submitted once the batch is cancelled. ``stopped`` is set then; ``total`` is how many there are, if
    that is known; ``options`` are those of `run_fields`.
    """
    fields = run_fields(prepared, None, client.store.queue(queue), **options)
    taken: list[NewRun] = []  # and not accepted yet
    stopped = stopped or threading.Event()

    def begin(room: int) -> Begun | None:
        runs = [*taken] or list(islice(source, min(room, CHUNK)))
        if stopped.is_set() or not runs:
            return None
        taken[:] = runs
        batches = client.store.batches
        answers = client.accept(prepared, lambda: batches.create(batch, prepared.plan, fields, runs, total))
        if "taken" in answers:
            raise Conflict(
                f"the id {runs[answers.index('taken')].id} is another run's: choose another id for the batch"
            )
        client.ensure_worker(fields["queue"], prepared.plan)
        there = [run.id for run, answer in zip(runs, answers, strict=True) if answer == "exists"]
        over = {run_id for run_id, status in zip(there, batches.statuses(there), strict=True) if status and status.over}
        taken.clear()
        if "stopped" in answers:
            stopped.set()
        return [
            (run.number, run.id, run.id not in over)
            for run, answer in zip(runs, answers, strict=True)
            if answer != "stopped"
        ]

    return begin


def resumption(
    client: ClientPort, batch: str, *, accept_code_change: bool = False, keep_code: bool = False
) -> Callable[[int], Begun | None]:
    """Return a function that resumes a batch's next failed or cancelled runs. Raises `NotFound` or `UsageError`."""
    check_code_choice(accept_code_change=accept_code_change, keep_code=keep_code)
    batches = client.store.batches
    if not batches.runs(batch, limit=1):
        raise no_batch(batch)

    taken: dict[int, str] = {}  # and not resumed yet
    started, after = False, 0

    def begin(room: int) -> Begun | None:
        nonlocal started, after
        if not started:
            batches.stop(batch, "")  # the rest of a batch that was cancelled may be submitted again, too
            started = True
        elif batches.about(batch)[1]:
            return None
        while len(taken) < room and (found := batches.runs(batch, after)):
            statuses = batches.statuses([run_id for _, run_id in found])
            taken.update(one for one, status in zip(found, statuses, strict=True) if status in _GO_ON)
            after = found[-1][0]
        begun = list(islice(taken.items(), room))
        # As they are now: the answer that one was resumed may have been lost, and this is called again.
        statuses = batches.statuses([run_id for _, run_id in begun])
        for (_, run_id), status in zip(begun, statuses, strict=True):
            if status in _RESUMED:
                client.resume(run_id, accept_code_change=accept_code_change, keep_code=keep_code)
        for number, _ in begun:
            del taken[number]
        return [(number, run_id, True) for number, run_id in begun] or None

    return begin
