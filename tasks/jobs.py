"""The one Celery task, which runs a job, and the state that each process keeps between jobs."""

import itertools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, cast

from billiard.process import current_process
from celery import Task
from celery.app.task import Context
from celery.concurrency.base import BasePool
from celery.exceptions import Retry as CeleryRetry
from celery.signals import task_postrun, task_prerun, task_success, worker_process_init

from runner.bundles import relative_paths, task_logging
from runner.core import waiting
from runner.core.jobs import Claim, Job, Refusal
from runner.core.redaction import redact
from runner.core.settings import WorkerSettings, cache_dir, setting
from runner.engine import adapters, observers
from runner.engine.code_cache import CodeCache
from runner.engine.decisions import Decision, Fail, Release, Retry
from runner.engine.failures import without_code
from runner.engine.jobs import JobExecutor
from runner.engine.sharing import NO_SHARING, code_of
from runner.journal import shared_memory
from runner.providers.redis import scripts, store
from runner.providers.redis.address import identity
from runner.providers.redis.connection import connect
from runner.providers.redis.envelope import JOB, Message, argument_text, message_of
from runner.providers.redis.keys import name_of
from runner.providers.redis.outages import REFUSED
from runner.providers.redis.pipelined import Replicas
from runner.providers.redis.store import RedisStore
from runner.tasks import capacity, environments, pool, shared_process
from runner.tasks.app import app, own_broker, pools, state_url
from runner.tasks.request import WATCHED, JobRequest, TaskFailed, continues
from runner.tasks.stops import DRAINS, TaskStops

log = logging.getLogger(__name__)
log_of_celery = logging.getLogger("celery.app.trace")

OUT = ""  #: the file that says which calls of this worker are out


class Process:
    """The state of a process between jobs: how its tasks are stopped, and an executor for each thread or task."""

    def __init__(self, *, on_main_thread: bool) -> None:
        self.worker = setting("RUNNER_WORKER_ID", "")
        self.settings = WorkerSettings()
        self.stops = TaskStops(
            self.settings.drain_timeout,
            self._hold,
            self._mark,
            on_main_thread=on_main_thread,
        )
        self._replicas = Replicas(self.settings.wait_replicas, self.settings.wait_timeout)
        self._on_main_thread = on_main_thread
        self._place = getattr(current_process(), "index", None) if on_main_thread else None
        self._outgoing = shared_memory.slot(self._place)
        self.tell = pool.continues if on_main_thread else continues
        self._threads = itertools.count()
        self._local = threading.local()
        self._environments = environments.here()
        self._own_broker = own_broker()
        self.shared = shared_process.SharedProcess(
            self._do_in_thread,
            self._drain_all,
            pool.waits,
            lambda: self.stops.draining,
            self.settings.max_attempts,
        )
        self._shares = on_main_thread and capacity.shared() > 0
        self._shared_code: CodeCache | None = None

    def _hold(self, claims: Sequence[Claim]) -> Sequence[bool]:
        """On a separate connection, because it may come at any time. Most processes never need it."""
        with connect(state_url(), name=f"runner:{self.worker}:probe", timeout=2.0) as client:
            return store.hold(client, claims)

    def _mark(self, claims: Iterable[Claim], trigger: str) -> None:
        """The same."""
        with connect(state_url(), name=f"runner:{self.worker}:mark", timeout=2.0) as client:
            for claim in claims:
                store.mark(client, claim.job, trigger)

    def _drain_all(self) -> None:
        os.kill(os.getpid(), DRAINS[signal.SIGTERM])

    def name(self) -> str:
        """The name of this process in claims: its pid; with the thread, if each task has one."""
        if self._on_main_thread:
            thread = shared_process.thread_number()
            return str(os.getpid()) if thread is None else f"{os.getpid()}-{thread}"
        waiter = waiting.here()
        return f"{os.getpid()}-{threading.get_ident() if waiter is None else waiter.local.place}"

    def _kept(self) -> Any:
        waiter = waiting.here() if waiting.shared else None
        return self._local if waiter is None else waiter.local

    def do(self, job: Job) -> Decision | Refusal | None:
        """Perform one job; None if it broke off, and then give the claim back, so that the task is not stuck."""
        try:
            kept = self._kept()
            executor: JobExecutor = getattr(kept, "executor", None) or self._executor()
            return executor.do(job, kept.queue)
        except Exception:
            log.exception(
                "job %s.%s attempt %d failed inside the runner; handing its task back",
                job.run_id,
                job.task,
                job.attempt,
            )
            try:
                self._store().workers.reap(
                    self.worker,
                    process=self.name(),
                    reason="an error inside the runner, see the worker's log",
                    max_attempts=self.settings.max_attempts,
                )
            except REFUSED as error:  # it stays listed as ours, and the next heartbeats see that no process performs it
                log.error("handing it back was refused, too (%s); the worker's heartbeat will hand it back", error)
            self._kept().executor = None  # it may hold a claim that was handed back
            return None

    def delegate(self, job: Job) -> bool:
        """Offer the job to a shared process that runs the same code. Returns whether one accepted it."""
        if not self._shares or self.stops.draining or not self.shared.may_share_process(job):
            return False
        code = self._store().code(job.run_id)
        return code is not None and shared_process.delegate(job, code_of(*code))

    def _do_in_thread(self, job: Job) -> None:
        """Run a job, and those that it continues with, in a thread of a shared process."""
        self.begin_slice("")
        while True:
            self.do(job)
            if (following := self.next()) is None:
                return
            job, _ = following

    def prepare(self) -> None:
        """Create what the first job would create: for a rescheduled task, a tenth of a second matters."""
        self._executor()

    def begin_slice(self, queue: str) -> None:
        """A message of this queue arrived: for its time slice, the process takes further jobs from there itself."""
        kept = self._kept()
        kept.slice = (queue if self._own_broker else "", time.monotonic() + self.settings.time_slice)
        self._may_take(kept, True)

    def _may_take(self, kept: Any, may: bool) -> None:
        queue, ends = kept.slice
        retires = self._on_main_thread and pool.retires()
        kept.queue = queue if may and not retires and time.monotonic() < ends else ""

    def next(self, may_take: bool | None = None) -> tuple[Job, Message] | None:
        """Return the job with which this process continues: what its last commit claimed, else the queue's oldest.

        ``may_take``: whether the commit after it may take a job from that queue: within the time slice; None leaves it
        as it is.
        """
        kept = self._kept()
        if may_take is not None:
            self._may_take(kept, may_take)
        executor: JobExecutor | None = getattr(kept, "executor", None)
        if executor is not None and (claim := executor.next) is not None:
            return claim.job, message_of(claim.job, claim.crew)
        if not kept.queue or self.stops.draining or (message := self._store().take(kept.queue)) is None:
            return None
        return Job(*message.arguments.values()), message

    def _store(self) -> RedisStore:
        """One for each thread: a connection is for one caller at a time, unless it is made for many."""
        found: RedisStore | None = getattr(self._local, "store", None)
        if found is None:
            shared = waiting.here() is not None
            name = f"runner:{self.worker}:{os.getpid() if shared else self.name()}"
            found = RedisStore(state_url(), name=name, replicas=self._replicas, shared=shared)
            self._local.store = found
        return found

    def _code(self) -> CodeCache | None:
        """The code cache that the tasks of one thread share."""
        if waiting.here() is not None and not hasattr(self._local, "code"):
            self._local.code = CodeCache(self._store(), cache_dir())
        return getattr(self._local, "code", None)

    def _executor(self) -> JobExecutor:
        kept = self._kept()
        found: JobExecutor | None = getattr(kept, "executor", None)
        if found is None:
            in_shared_process = shared_process.thread_number() is not None
            alone = self._on_main_thread and not in_shared_process
            found = JobExecutor(
                self._store(),
                worker=self.worker,
                process=self.name(),
                cache=cache_dir(),
                stops=self.stops,
                outgoing=None if in_shared_process else self._outgoing,
                page=shared_memory.page(self._page(), self.name(), in_shared_process=in_shared_process),
                retire=pool.retire if self._on_main_thread else None,
                waits=pool.waits if alone else None,
                is_wanted=self._is_wanted if not in_shared_process else lambda: False,
                time_slice=self.settings.time_slice,
                serves=["" if one == "process" else one for one in pools()],
                code=self._shared_code if in_shared_process else self._code(),
                environments=self._environments,
                sharing=self.shared if self._shares else NO_SHARING,
            )
            kept.executor = found
            if alone:
                self._shared_code = found.code
        return found

    def _is_wanted(self) -> bool:
        """Whether messages wait for a process; assumed if another broker has them."""
        queue = name_of(app.conf.task_default_queue)
        return not self._own_broker or self._store().workers.queue_length(queue, pools()) > 0

    def _page(self) -> int | None:
        waiter = waiting.here()
        if waiter is not None:
            return cast(int | None, waiter.local.place)
        if (thread := shared_process.thread_number()) is not None:
            return self.shared.place * shared_process.THREADS + thread
        return self._place if self._on_main_thread else next(self._threads)


def share() -> None:
    """In the main process, before its pool forks."""
    global OUT
    slots, forked = capacity.slots(), _has_children()
    task_threads = shared_process.PROCESSES * shared_process.THREADS if capacity.shared() else 0
    OUT = shared_memory.share_sent(setting("RUNNER_WORKER_ID", ""), identity(state_url()), slots if forked else 1)
    shared_memory.share(slots, forked=forked, task_threads=task_threads)
    shared_process.share()
    observers.installed()  # what each of its children would look for, and make, for itself
    adapters.names()  # this, too: it reads what each installed package says of itself
    task_logging.of_worker()
    scripts.read()


def _has_children() -> bool:
    return os.environ.get("RUNNER_POOL", "prefork") == "prefork"


_process: Process | None = None
_lock = threading.Lock()


def process(*, on_main_thread: bool = False) -> Process:
    """Return this process's state; created at first use (in a threads pool) or when a pool child starts."""
    global _process
    with _lock:
        if _process is None:
            _process = Process(on_main_thread=on_main_thread)
    return _process


@worker_process_init.connect
def _pool_child_starts(**_: Any) -> None:
    """In each new pool child, on its main thread."""
    current_process()._config["daemon"] = False  # a task may use multiprocessing, which it may in a process of its own
    process(on_main_thread=True).stops.install()
    relative_paths.enter(cache_dir())
    relative_paths.install()


def _failed(run: str, reason: str, trace: str) -> TaskFailed:
    return TaskFailed(f"{redact(reason)} (runner show {run})", without_code(trace))


@lru_cache(maxsize=1024)  # once for each run
def _leave_to_others(run: str) -> None:
    log.warning(
        "run %s needs a process for each task, but this pool has threads; leaving it to a worker with --pool prefork",
        run,
    )


@lru_cache(maxsize=1024)
def _leave_to_newer(run: str) -> None:
    log.warning("run %s was written by a newer version: leaving it to workers of that version; upgrade this one", run)


class JobTask(Task):
    """A Celery task whose trace continues: each job has a trace of its own, with its own id, signals and events."""

    _trace: Callable[..., Any] | None = None

    @cached_property
    def has_own_broker(self) -> bool:
        """Whether messages come from the state's Redis; asked for each, and the same as long as the process."""
        return own_broker()

    @property
    def __trace__(self) -> Callable[..., Any] | None:
        """Celery's trace function, which Celery sets in each process."""
        return self._trace

    @__trace__.setter
    def __trace__(self, trace: Callable[..., Any]) -> None:
        # No `partial`: a call from C takes 500 bytes of the stack that is saved for each task that waits.
        def trace_all(uuid: str, args: Any, kwargs: Any, request: dict[str, Any]) -> Any:
            return _trace_all(trace, uuid, args, kwargs, request)

        self._trace = trace_all


def _trace_all(trace: Callable[..., Any], uuid: str, args: Any, kwargs: Any, request: dict[str, Any]) -> Any:
    """Perform the job of a message, then those with which this process continues. Returns the result of the last.

    For its time slice the process takes messages from the queue itself, because each trip of a message through the main
    process costs more than a small job. After a failure, which Celery reports, it takes none.
    """
    here = process()
    here.stops.has_message = True
    try:
        here.begin_slice((request.get("delivery_info") or {}).get("routing_key") or "")
        ended = trace(uuid, args, kwargs, request)
        while True:
            if (following := here.next(may_take=ended.info is None)) is None:
                return ended
            _, message = following
            if request.get(WATCHED):
                shown = argument_text(**message.arguments)
                here.tell(uuid, ended.runtime, message.id, message.name, shown)
            ended = trace(message.id, (), message.arguments, {**request, **_about(message)})
    finally:
        if here.shared.is_open:
            here.shared.wait_until_empty()
        here.stops.has_message = False


def trace(request: dict[str, Any]) -> tuple[int, Any, float]:
    """Perform the job of a message as Celery's `fast_trace_task` does, from what it has decoded. Returns the same."""
    result, failure, seconds, text = job.__trace__(request["id"], request["args"], request["kwargs"], request)
    return (1, result, seconds) if failure else (0, text, seconds)


def _about(message: Message) -> dict[str, Any]:
    """The parts of Celery's request that differ from job to job."""
    shown = argument_text(**message.arguments)
    return {
        "id": message.id, "root_id": message.id, "shadow": message.name, "kwargs": message.arguments,
        "kwargsrepr": shown,
    }  # fmt: skip


def _is_heard(request: Context) -> bool:
    """Whether anything receives Celery's reports of each job: its events, its signals or its log."""
    return bool(
        getattr(request, WATCHED, False)
        or task_prerun.receivers
        or task_postrun.receivers
        or task_success.receivers
        or log_of_celery.isEnabledFor(logging.INFO)
    )


class StoppableRequest(JobRequest):
    """A message whose job can be stopped by itself: ``revoke(terminate=True)``."""

    def terminate(self, pool: BasePool, signal: Any = None) -> None:
        """Hand its task back, to continue elsewhere: by its process, if that performs no other tasks."""
        if type(pool).terminate_job is BasePool.terminate_job:
            process().stops.hand_back(self.id)
        else:
            super().terminate(pool, signal)


@app.task(name=JOB, base=JobTask, ignore_result=True, Request=StoppableRequest, throws=(TaskFailed,))
def job(run: str, branch: str, task: str, attempt: int) -> None:
    """Perform one task of one branch of one run. Returns nothing, because Flower would show it.

    If nothing receives Celery's reports of each job, the jobs with which this process continues share one of Celery's
    traces and its request, which says which job it is: another trace costs 67 Python calls.
    """
    here, request = process(), job.request_stack.top
    first, are_shared = Job(run, branch, task, attempt), shared_process.table[:] != shared_process.EMPTY
    if are_shared and request is not None and not _is_heard(request) and here.delegate(first):
        return
    _report(here.do(first), run)
    while request is not None and not _is_heard(request):
        if (following := here.next(may_take=True)) is None:
            break
        one, message = following
        request.update(_about(message))
        _report(here.do(one), one.run_id)


def _report(outcome: Decision | Refusal | None, run: str) -> None:
    """Report a failure to Celery."""
    match outcome:
        case Refusal("newer"):
            _leave_to_newer(run)
        case Refusal("unfit"):
            _leave_to_others(run)
        case Refusal("draining") if process().stops.leaving:
            raise SystemExit(0)  # told alone, it would refuse all that the pool gives it; the next child does not
        case Fail(reason, trace):
            raise _failed(run, reason, trace)
        case Retry(_, reason, trace):  # only for what Flower shows: the store sends the next attempt
            raise CeleryRetry(f"runner show {run}", exc=_failed(run, reason, trace))
        case Release():
            raise CeleryRetry(f"runner show {run}")
