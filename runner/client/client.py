"""The verbs: submit a crew, inspect runs, resume, fork and cancel them, answer their questions."""

import secrets
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from runner.client import local_worker
from runner.client.batch import AT_ONCE, Batch, ExistingBatch, Numbered
from runner.client.handle import RunHandle, RunResult
from runner.client.ids import RUN_ID, batch_id_for, check_key, run_id_for
from runner.client.store import Store, named_urls, open_store
from runner.core import fault_points
from runner.core.errors import BundleDamaged, Conflict, NotFound, NoWorker, UsageError
from runner.core.plain_text import printable
from runner.core.plan import Plan
from runner.core.settings import KEEP
from runner.providers.records import CheckpointRecord, RunRecord
from runner.providers.redis.keys import name_of
from runner.providers.redis.partitions import ALONE, Part
from runner.providers.redis.waiting_client import repeated, wait_while_unavailable

if TYPE_CHECKING:  # to read a crew's code, or to fork, imports four times as much: what needs it imports it itself
    from runner.client.forking import Edit
    from runner.client.submission import Prepared
    from runner.core.diff import Diff

T = TypeVar("T")

WORKER_GAVE_UP = 70  #: the exit code by which a worker says that it does not start
WORKER_TRIES = 3  #: how often one is started that ends with an error at once

__all__ = ["Client", "RunHandle", "RunResult"]


def new_run_id() -> str:
    """Return a random run id."""
    return "r-" + secrets.token_hex(6)


class Client:
    """Submits, inspects, resumes and forks the runs of a store. Use it in a ``with`` statement, or close it.

    Args:
        redis_url: the URL of the store's Redis; several, separated by commas, are one store. Default:
            ``RUNNER_REDIS_URL``, else the embedded server.
        state_dir: the folder with the embedded server's data.

    Methods may be called from any thread. A ``run_id`` may also be the key that the run was submitted with. All methods
    raise `NotFound` if a run or branch does not exist, and `StoreUnreachable`.
    """

    partitioned: ClassVar[type["Client"]]  #: of several servers (`runner.client.partitions`)
    away: tuple[str, ...] = ()  #: which servers the last list of runs lacks, each in a sentence

    def __new__(cls, redis_url: str | None = None, **_: Any) -> "Client":
        """Return the client of a partitioned store if several servers are named."""
        return super().__new__(cls if cls is not Client or len(named_urls(redis_url)) < 2 else cls.partitioned)

    def __init__(self, redis_url: str | None = None, *, state_dir: Path | None = None, part: Part = ALONE) -> None:
        self.store: Store = open_store(redis_url, state_dir=state_dir, part=part).confirm()
        self._known_bundles: set[str] = set()
        self._looked_for_worker = 0.0
        self._worker: subprocess.Popen[bytes] | None = None
        self._broken = 0

    def close(self) -> None:
        """Close the connections. The embedded server stops if no process uses it any more."""
        self.store.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def of(self, run: str) -> "Client":  # noqa: ARG002 - there is one store
        """Return the client of the partition that has a run, given its id or the key that it was submitted with."""
        return self

    @property
    def embedded(self) -> bool:
        """Whether the store is the embedded server."""
        return self.store.membership is not None

    # -- submitting

    def submit(
        self,
        target: "str | Path | Prepared",
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        max_checkpoints: int | None = None,
        checkpoint_on: list[str] | None = None,
        queue: str | None = None,
        keep: float = KEEP,
        models: str = "",
        new_id: Callable[[], str] = new_run_id,
    ) -> RunHandle:
        """Submit a crew, flow or agent. Once this has returned, the run ends or awaits input, whatever crashes.

        Args:
            target: a path, ``path:object`` or ``package.module:object``.
            inputs: JSON values by name.
            id: an idempotency key: submitting again with the same key returns the same run.
            max_checkpoints: how many checkpoints each branch keeps.
            checkpoint_on: the types of events at which checkpoints are written.
            queue: the queue of the run's jobs.
            keep: for how many seconds a finished run is kept.
            models: "demo" or "offline" for built-in answers instead of a vendor's.
            new_id: returns the run's id if no ``id`` is given.

        Returns the handle of the run. Raises `BadCrew`, `BadInput` or `UsageError` before anything is stored,
        `Conflict` if ``id`` was used for another crew or inputs, `StoreUnreachable` if the store stays away.
        """
        from runner.client.submission import Prepared, prepare, run_fields

        run_id = run_id_for(id) if id is not None else new_id()
        if not isinstance(target, Prepared):
            known = partial(self.known_calls, id) if id is not None else None
            target = prepare(str(target), inputs=inputs, known=known)
        prepared = target
        given = prepared.given(inputs)
        prepared.refuse_missing(given)
        fields = run_fields(
            prepared,
            given,
            self.store.queue(queue),
            max_checkpoints=max_checkpoints,
            checkpoint_on=checkpoint_on,
            keep=keep,
            models=models,
        )
        answer = self.accept(prepared, lambda: self.store.runs.create(run_id, prepared.plan, fields))
        fault_points.reached("run created, nothing waited for")
        if answer == "exists":
            self._refuse_other(run_id, id, fields)
        self.ensure_worker(fields["queue"], prepared.plan)
        return RunHandle(self, run_id, created=answer == "created" or id is None)

    def submit_many(
        self,
        target: "str | Path | Prepared",
        inputs: Iterable[Mapping[str, Any]],
        *,
        id: str | None = None,
        at_once: int = AT_ONCE,
        **options: Any,
    ) -> Batch:
        """Submit a crew once for each of ``inputs``, at most ``at_once`` at a time. ``options`` are those of `submit`.

        Returns a `Batch`. Iterating over it submits the runs, reading inputs as needed, and yields ``(number, result)``
        for each run that is over. With the ``id`` and inputs of an earlier batch, that batch continues: no input is
        submitted twice. If the batch is cancelled meanwhile, no more are submitted, and the iteration ends earlier.
        """
        from runner.client.batch_sources import by_first

        if id is not None:
            check_key(id)
        known = partial(self.known_calls, id, batch=True) if id is not None else None
        prepared, numbered = by_first(target, inputs, known)
        batch = batch_id_for(id if id is not None else secrets.token_hex(8))
        total = len(inputs) if isinstance(inputs, Sized) else None
        return self.submit_batch(prepared, numbered, batch, at_once, total=total, **options)

    def submit_batch(
        self, prepared: "Prepared", inputs: Iterable[Numbered], id: str, at_once: int, **how: Any
    ) -> Batch:
        """Like `submit_many`, for numbered inputs and a batch with an id; ``total`` is how many there are, if known."""
        from runner.client.batch_sources import new_runs, submission

        return Batch(self, id, at_once, submission(self, prepared, new_runs(prepared, inputs, id), id, **how))

    def resume_many(self, batch: str, *, at_once: int = AT_ONCE, **how: bool) -> Batch:
        """Resume the failed and cancelled runs of a batch. ``how`` takes the options of `resume`. Raises `NotFound`."""
        from runner.client.batch_sources import resumption

        return Batch(self, batch, at_once, resumption(self, batch, **how))

    def batch(self, id: str) -> Batch:
        """Return the batch with this id, whoever submits it: its state, its runs, to wait for them or cancel them.

        Iterating over it submits nothing: it yields ``(number, result)`` for each run that is over, until all are.
        Raises `NotFound`.
        """
        return ExistingBatch(self, id)

    def accept(self, prepared: "Prepared", create: Callable[[], T]) -> T:
        """Store the crew's code and call ``create``, again if its answer is lost; return what it returns."""
        runs, packed = self.store.runs, prepared.packed
        for _ in range(3):
            if packed.sha256 not in self._known_bundles:
                if not repeated(lambda: runs.put_bundle(packed.sha256, None)):
                    repeated(lambda: runs.put_bundle(packed.sha256, packed.data))
                self._known_bundles.add(packed.sha256)
            answer = repeated(create)
            if answer not in ("no bundle", ["no bundle"]):
                return answer
            self._known_bundles.discard(packed.sha256)
        raise Conflict("the store lost the bundle twice while the run was being created: submit again")

    def _refuse_other(self, run_id: str, id: str | None, fields: dict[str, str]) -> None:
        """Raise `Conflict` if the id was used for another crew or other inputs."""
        for name, what in (("crew", "another crew"), ("inputs", "other inputs")):
            if self.store.runs.field(run_id, name) != fields[name]:
                raise Conflict(f"the id {id!r} was already used for {what} (run {run_id}): choose another id")

    # -- reading and steering

    def id_of(self, run: str) -> str:
        """Return the id of a run, given its id or the key that it was submitted with (``submit(id=...)``)."""
        if RUN_ID.fullmatch(run):
            return run
        try:
            keyed = run_id_for(run)
        except UsageError:  # no run was submitted with it
            return printable(run)
        return keyed if self.store.runs.existing([keyed]) else run

    def run(self, run_id: str, branch: str | None = None) -> RunHandle:
        """Return the handle of a run, or of one ``branch`` of it. Raises `NotFound`."""
        run_id = self.id_of(run_id)
        self.store.runs.status(run_id, branch)
        return RunHandle(self, run_id, branch=branch)

    def runs(self, limit: int = 50) -> list[RunRecord]:
        """List the newest ``limit`` runs, newest first."""
        return self.store.runs.newest(limit)

    def checkpoints(self, run_id: str, branch: str | None = None) -> list[CheckpointRecord]:
        """List the checkpoints of a run, or of one ``branch``: by branch, oldest first."""
        runs, run_id = self.store.runs, self.id_of(run_id)
        runs.get(run_id)
        if branch is not None:
            runs.branch(run_id, branch)
        return [c for name in runs.branches(run_id) if branch in (None, name) for c in runs.checkpoints(run_id, name)]

    def resume(
        self,
        run_id: str,
        *,
        checkpoint: str | None = None,
        branch: str | None = None,
        accept_code_change: bool = False,
        keep_code: bool = False,
    ) -> RunHandle:
        """Resume the current branch of a run, or ``branch``, which becomes current unless the current one is running.

        Committed tasks are not run again, and recorded steps are replayed.

        Args:
            checkpoint: an id, or its beginning. If it is not the newest of its branch, the run resumes on a new branch.
            accept_code_change: if the crew's files have changed since, use them as they are now.
            keep_code: if they have changed, use them as they were submitted.

        Returns the handle of the branch that resumes. Raises `Conflict` if it is running or awaits input, or if its
        code has changed and neither option is given, and `UsageError` if both are.
        """
        from runner.client import resuming  # to read a crew's code imports what most verbs do without

        return resuming.resume(
            self,
            self.id_of(run_id),
            checkpoint=checkpoint,
            branch=branch,
            accept_code_change=accept_code_change,
            keep_code=keep_code,
        )

    def answer(
        self,
        run_id: str,
        text: str | None = None,
        *,
        approve: bool = False,
        reject: str | None = None,
        task: str | None = None,
        branch: str | None = None,
    ) -> RunHandle:
        """Answer a run's question and resume the run. ``task`` names the task that asked, if several did.

        Give one of ``text``, ``approve`` (accept the task's output), or ``reject`` with the reason: the task then runs
        again, and asks again. Empty text approves. Returns the handle of the branch that resumes. Raises `Conflict` if
        there is no question, and `BadInput` if the answer does not fit it.
        """
        from runner.client import answering  # with it the words of flows, which most verbs do without

        return answering.answer(
            self, self.id_of(run_id), text, approve=approve, reject=reject, task=task, branch=branch
        )

    def fork(
        self,
        run_id: str,
        *,
        checkpoint: str | None = None,
        branch: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        edits: "Mapping[str, Edit] | None" = None,
        source: str | None = None,
    ) -> RunHandle:
        """Start a new branch of a run, whatever the state of its other branches, which are not affected.

        Args:
            checkpoint: where the branch starts. Default: the head of the branch ``source``.
            branch: its name. Default: a generated one.
            inputs: values by name that replace the run's inputs.
            edits: outputs by task, as text or JSON, that replace committed ones.
            source: the branch to fork. Default: the current one.

        Tasks that used a replaced input or output run again, and so do tasks that were not committed there. Returns the
        handle of the new branch; its ``to_do`` is the number of tasks it starts with. Raises `Conflict` if a branch of
        that name exists, and `BadInput` for an edit that does not fit.
        """
        from runner.client import forking

        run_id = self.id_of(run_id)
        name, where = forking.fork(
            self.store.client,
            run_id,
            checkpoint=checkpoint,
            source=source,
            branch=branch,
            inputs=inputs or {},
            edits=edits or {},
        )
        fault_points.reached("forked, nothing waited for")
        self.ensure_worker(where.queue)
        notes = forking.warnings(self.store.client, where, inputs or (), edits or {})
        return RunHandle(self, run_id, branch=name, to_do=where.to_do, notes=notes, _from=where.newest_event)

    def diff(self, run_id: str, a: str, b: str) -> "Diff":
        """Compare two branches or checkpoints of a run: inputs, outputs, ledgers. Raises `NotFound`."""
        from runner.client import comparison
        from runner.core.diff import compare

        run_id = self.id_of(run_id)
        return compare(*(comparison.side(self.store.runs, run_id, name) for name in (a, b)))

    def known_calls(self, id: str, *, batch: bool = False) -> dict[str, str]:
        """Return what models answered while the crew's file was read, so that they are not asked again.

        ``id`` is that of the earlier `submit`, or of `submit_many` for a ``batch``. Returns nothing if there is no such
        run.
        """
        first = self.store.batches.runs(batch_id_for(id), limit=1) if batch else [(1, run_id_for(id))]
        try:
            return self.calls_at_import(self.store.runs.get(first[0][1]).bundle) if first else {}
        except NotFound:
            return {}

    def calls_at_import(self, sha: str) -> dict[str, str]:
        """Return what models answered to a bundle's code where that was read; nothing if the bundle is lost."""
        from runner.bundles import unpacking  # most verbs, and most resumes, have no use for it

        try:
            return unpacking.calls_in(self.store.runs.bundle(sha), sha)
        except (NotFound, BundleDamaged):
            return {}

    # -- keeping things alive

    def ensure_worker(self, queue: str, plan: Plan | None = None) -> None:
        """Make sure that a worker for this plan is running or starting, if the store is the embedded server."""
        if self.store.membership is None:
            return
        if time.monotonic() - self._looked_for_worker > 2.0:
            folder = self.store.state_dir
            if self._worker is not None and self._broke_off(self._worker.poll()):
                raise NoWorker(
                    f"the worker did not start: {local_worker.last_words(folder)} (see {folder / 'worker.log'}); "
                    "fix that, then `runner wait` continues the run"
                )
            # Threads are started where they are wanted: the start of a worker is what a small run waits for.
            pool = "auto" if plan is not None and any(task.pool for task in plan.tasks) else "prefork"
            self._worker = local_worker.ensure(folder, name_of(queue), pool) or self._worker
            self._looked_for_worker = time.monotonic()

    def _broke_off(self, code: int | None) -> bool:
        """Whether the worker that this process started cannot start: it said so, or failed several times."""
        if code == 1:
            self._worker, self._broken = None, self._broken + 1
        return code == WORKER_GAVE_UP or self._broken >= WORKER_TRIES

    def patient(self, call: Callable[[], T], handle: RunHandle, keep_waiting: Callable[[], bool] = lambda: True) -> T:
        """Call ``call``, retrying while the store is away. A run that is waited for always has a worker.

        Raises `StillAway` if the store is, and ``keep_waiting`` returns false. What was answered is not asked again.
        """
        found = wait_while_unavailable(call, keep_waiting)
        if self.store.membership is not None and time.monotonic() - self._looked_for_worker > 2.0:
            queue = wait_while_unavailable(partial(self.store.runs.field, handle.id, "queue"), keep_waiting)
            self.ensure_worker(queue or self.store.queue(None))
        return found
