"""Performs a job: claims its task and has the executor perform it, with code from a bundle and a folder of its own."""

import contextlib
import contextvars
import errno
import json
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from runner.bundles import attempt_folders, loader
from runner.bundles.run_dir import Home, homes
from runner.core import fault_points, waiting
from runner.core.clock import SYSTEM
from runner.core.errors import DiskTrouble, EnvironmentFailed, RunnerError, StrayCancellation, UnknownTask
from runner.core.inputs import BEFORE_KICKOFF, as_begun
from runner.core.jobs import Claim, Job, Needed, Refusal
from runner.core.ledger import Counters
from runner.core.output import TaskOutput
from runner.core.plan import THREAD, Plan, PlannedTask
from runner.core.plan.expansion import Branch
from runner.engine import adapters, observers
from runner.engine.attempt import NOT_INSTALLED, Attempt, Loaded, next_delay
from runner.engine.code_cache import AttemptFolder, CodeCache, Signatures
from runner.engine.decisions import Ask, Commit, Decision, Fail, Grown, Lost, Release, Retry
from runner.engine.environments import ANY_ENVIRONMENT, Environments
from runner.engine.event_relay import TaskEvents
from runner.engine.executor import Executor, Stops
from runner.engine.failures import describe, trace_of
from runner.engine.ports import Clock, Store
from runner.engine.sharing import NO_SHARING, Sharing
from runner.engine.tool_events import ToolObserver
from runner.engine.work import Conversation
from runner.events.bus import event_bus
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.rate_limit import Pacer
from runner.journal.shared_memory import Page
from runner.modelserver import stubs

ATTEMPTS_ELSEWHERE = 8  #: at a task, of which each failed of what its worker is: for about a minute, then its run fails
USED_UP = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})  #: what a machine has no more of
TASKS_OF_ONE = 20  #: tasks of one run that a process does which is for one, at most
REGISTER_WAIT = 5.0  #: seconds that a job waits for its worker's lease

P = ParamSpec("P")
R = TypeVar("R")

Outgoing = Callable[[str], None] | None
"""Where a process says which calls of its task have left it, for who looks when it is dead."""

Retire = Callable[[str], None] | None
"""Has this process end after its job, one of the adapter of that name."""

Waits = Callable[[], None] | None
"""Says that the task of a process that ends after it waits for a model: another one may have the core meanwhile."""


class JobExecutor:
    """Does jobs, one at a time. One for each pool child, or for each thread of a threads pool (without ``retire``)."""

    def __init__(
        self,
        store: Store,
        *,
        worker: str,
        process: str,
        cache: Path,
        stops: Stops,
        outgoing: Outgoing,
        page: Page,
        retire: Retire,
        waits: Waits = None,
        is_wanted: Callable[[], bool] = lambda: False,
        time_slice: float = 0.0,
        serves: Collection[str] = ("", THREAD),
        code: CodeCache | None = None,
        environments: Environments = ANY_ENVIRONMENT,
        sharing: Sharing = NO_SHARING,
        clock: Clock = SYSTEM,
    ) -> None:
        """``sharing``: whether tasks of other runs are done in this process beside those of this executor.

        ``time_slice``: for how many seconds a run continues here from task to task, without a message for each.

        ``is_wanted``: whether jobs wait for a process. ``serves``: the pools of the tasks that it does. ``code``: what
        it shares with others. ``environments``: what becomes of jobs of others.
        """
        self.store, self.page, self.outgoing = store, page, outgoing
        self.code, self.signatures = code or CodeCache(store, cache), Signatures(store.signature)
        self._homes, self.cache = homes(store.id, cache), cache
        self.clock = clock
        self.worker = worker
        self._process = process
        self._stops = stops
        self._retire = retire
        self.waits, self._is_wanted = waits, is_wanted
        self._continued = 0  # with so many tasks, one after another
        self._time_slice, self._serves = time_slice, serves
        self._environments, self.sharing = environments, sharing
        self._slice_ends = 0.0
        self.queue = ""
        self._next: Claim | None = None
        self._executor = Executor(partial(JobAttempt, self), stops, observers.of_jobs(), clock)

    @property
    def next(self) -> Claim | None:
        """The claim that came with the last commit, to be performed at once."""
        return self._next

    def do(self, job: Job, queue: str = "") -> Decision | Refusal:
        """Do one job, a message's or that of `next`. What it returns is already stored.

        ``queue``: where its commit takes the next job if none of the same run becomes ready; "" for nowhere.
        """
        claim, self._next, self.queue = self._next, None, queue
        if claim is None or (claim.job is not job and claim.job != job):
            return self._do_received(job)
        self._continued += 1
        fault_points.reached("next task claimed, not begun")
        try:
            return self._executor.perform(claim)
        finally:
            self.over()

    def _do_received(self, job: Job) -> Decision | Refusal:
        fault_points.reached("job received, not claimed")
        self._continued = 0
        self._stops.ready()
        if self._stops.draining:
            self.store.return_job(job)
            return Refusal("draining")
        try:
            self.page.claiming(job.ref)
            claim = self._claim(job)
            if isinstance(claim, Refusal):
                return claim
            self.page.claimed(job.ref, claim.token)
            if self._retire is not None and adapters.is_disposable(claim.adapter):
                self._retire(claim.adapter)
            self._slice_ends = self.clock.monotonic() + self._time_slice
            return self._executor.perform(claim)
        finally:
            self.over()

    def process_to_continue(self, claim: Claim, unlocks: Collection[PlannedTask] = ()) -> str:
        """This process, if it continues with what a commit makes ready; "" if that is sent, to whichever is free."""
        if self._stops.draining:
            return ""
        for task in unlocks:
            if task.pool not in self._serves:
                return ""
        if self._retire is not None and adapters.is_disposable(claim.adapter):
            return self._process if unlocks and self._may_be_kept(claim.adapter) else ""
        return self._process if self.clock.monotonic() < self._slice_ends else ""

    def _may_be_kept(self, adapter: str) -> bool:
        """Whether a process that is for one task does the run's next.

        Its task takes seconds, so there is no slice of time: it does where no job waits for a process, and not for
        ever, as what libraries keep of tasks adds up.
        """
        may = self._time_slice > 0 and self._continued + 1 < TASKS_OF_ONE
        return may and adapters.continues(adapter) and not self._is_wanted()

    def committed(self, claimed: Claim | None) -> None:
        """A task was committed; this one was ``claimed`` with it."""
        self._next = claimed
        if claimed is not None:
            self.page.claimed(claimed.job.ref, claimed.token)

    def over(self) -> None:
        """A task is over. The process is at nothing, unless it continues."""
        if self._next is None:
            self.page.over()

    def refuse_failed(self) -> None:
        """Raise `EnvironmentFailed` where this process stands for an environment that could not be built."""
        if self._environments.failure:
            raise EnvironmentFailed(self._environments.failure)

    @property
    def is_alone(self) -> bool:
        """Whether this process does one task at a time."""
        return self._retire is not None

    def home(self, job: Job) -> Home:
        """Return the run's folder on this machine for what no store keeps."""
        store = self.store
        return Home(self._homes, store.id, job.run_id, job.branch, partial(store.parent, job.run_id), store.existing)

    def _claim(self, job: Job) -> Claim | Refusal:
        """Claim it. A worker whose lease was lost is about to register again; if it does not, the job is sent on."""
        end = self.clock.monotonic() + REGISTER_WAIT
        while True:
            unfit = adapters.disposable() if self._retire is None else ()
            claim = self.store.claim(
                job, worker=self.worker, process=self._process, unfit=unfit, environments=self._environments.accepted
            )
            if isinstance(claim, Refusal) and claim.needed is not None:
                if self._takes(claim.needed, job):
                    continue
                return claim
            if not (isinstance(claim, Refusal) and claim.reason == "unregistered"):
                return claim
            if self.clock.monotonic() > end or self._stops.draining:
                self.store.return_job(job)
                return claim
            self.clock.sleep(0.05)

    def _takes(self, needed: Needed, job: Job) -> bool:
        """Whether this process is the environment that a run asks for; else the job is sent on, if its code may run."""

        def root() -> Path:
            self.signatures.check(job.run_id, needed.bundle, needed.module, needed.attr, needed.adapter)
            return self.code.root(needed.bundle)

        try:
            return self._environments.takes(needed, root, job)
        except RunnerError:  # with a claim, it fails its run
            return self._environments.accept(needed)


class JobAttempt(Attempt):
    """An attempt at the task of a job. Its events are among the run's."""

    unattributed = is_resumable = True

    def __init__(self, jobs: JobExecutor, claim: Claim) -> None:
        fault_points.reached("claimed, not begun")
        store, cancel_scope = jobs.store, CancelScope(jobs.clock)
        self.claim, self.cancel_scope = claim, cancel_scope
        self.origin, self.conversation = _origin(claim.job), Conversation()
        self.recorder = self._task = task = store.task(claim, jobs.outgoing, jobs.page.log)
        if jobs.waits is not None and adapters.is_disposable(claim.adapter):
            self.recorder = observers.WaitNotifier(task, jobs.waits)
        self._jobs, self._store = jobs, store
        place = partial(attempt_folders.take, store.id, jobs.cache, claim.job)
        self._beside = jobs.sharing.is_open and adapters.is_disposable(claim.adapter)
        self._folder = AttemptFolder(claim, store, jobs.code, place, alone=jobs.is_alone, beside=self._beside)
        # Each task has a context of its own: Celery's pools leak context variables from one to the next.
        self._context, self._events = contextvars.Context(), TaskEvents(claim, task, cancel_scope)
        self._source: object = None

    def run(self, do: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it in the task's context."""
        return self._context.run(do, *args, **kwargs)

    def load(self, journal: Journal) -> Loaded:
        """The crew of the bundle. Raises `Unsigned`, `BadCrew` or `MissingDependency`."""
        claim, jobs = self.claim, self._jobs
        self._events.begin()
        jobs.refuse_failed()
        jobs.signatures.check(claim.job.run_id, claim.bundle, claim.module, claim.attr, claim.adapter)
        if self._beside:
            adapters.prepare_shared_task(claim.adapter, jobs.home(claim.job))
        for prepare in () if self._beside else adapters.preparations(claim.adapter):
            prepare(jobs.home(claim.job))
        root, code = self._folder.enter(journal), (claim.bundle, claim.module, claim.attr)
        how: dict[str, Any] = {"root": root, "adapter": claim.adapter, "journal": journal}
        read = partial(jobs.code.get, *code, claim.crew, claim.inputs, **how)
        while self.waiter is not None and not jobs.code.has(*code):  # reading it may block
            if (found := self.waiter.once(code, read)) is not None:
                return found
        if not adapters.is_disposable(claim.adapter):
            return read()
        return jobs.sharing.read(claim, jobs.home(claim.job), read)

    def plan(self, loaded: Loaded) -> Plan:
        """The plan from the code; the stored one where the code plans differently on this machine."""
        return loaded.plan if loaded.plan.digest == self.claim.plan_digest else self._store.plan(self.claim.job.run_id)

    def outputs(self, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """Return the committed outputs of these tasks on the branch."""
        return self._store.outputs(self.claim.job.run_id, self.claim.job.branch, keys)

    def branch(self) -> Branch:
        """The branch in the store."""
        return self._store.branch(self.claim.job.run_id, self.claim.job.branch)

    def stored_with(self, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return what is stored with the outputs of these tasks on the branch."""
        return self.branch().records(keys)

    def pacer(self) -> Pacer:
        """Counts the run's calls of models for all its workers together."""
        return self._store.pacer(self.claim.job.run_id)

    def warm(self, loaded: Loaded) -> None:
        """Load what the task needs and its code does not import. From here on its models are those that stand in."""
        if self.claim.standin:
            stubs.choose(stubs.named(self.claim.standin))
        loaded.adapter.warm(loaded.crew, self.claim.job.task)

    def at_work(self, loaded: Loaded, journal: Journal) -> contextlib.AbstractContextManager[None]:
        """The bundle's modules stay; the crew's handlers hear that the task begins."""
        claim, events = self.claim, self._events
        if claim.standin:
            journal.standin = stubs.chosen()
        self._source = loaded.adapter.source(loaded.crew, claim.job.task)
        events.started(loaded.crew, self._source, loaded.growing.format_event if loaded.growing else None)
        journal.watched = events.wants("llm_call_started", "llm_call_completed", "llm_call_failed")
        if events.wants("tool_usage_started", "tool_usage_finished", "tool_usage_error"):
            self.watch = partial(ToolObserver, self._source)
        return loader.using(claim.bundle)

    def left(self, note: Callable[[str, str], None]) -> dict[str, Any]:
        """Return the task's new files. Raises `TaskError` if it used relative paths that lead nowhere."""
        left = self._folder.left()
        if line := self._folder.not_kept():
            note("task_log", line)
        return left

    def with_files(self, output: str, left: dict[str, Any], loaded: Loaded) -> str:
        """The task's output with what it left, and with its ``output_file``."""

        def inputs() -> Mapping[str, Any]:
            begun = self.outputs([BEFORE_KICKOFF]) if BEFORE_KICKOFF in loaded.plan.by_key else {}
            return as_begun(self.claim.inputs, begun[BEFORE_KICKOFF].raw if begun else None)

        return self._folder.with_files(output, left, loaded, inputs)

    def failed(self, error: BaseException, loaded: Loaded | None) -> Retry | Fail:
        """Another attempt may follow as the task says, or elsewhere where this machine is the reason."""
        return after_failure(error, self.claim, loaded)

    def note(self, kind: str, text: str) -> None:
        """Put a line among the run's events."""
        self._task.note(kind, text)

    def record(self, decision: Decision, replayed: Counters) -> None:
        """Store what came of it. Raises `ClaimLost` if the claim does not hold any more."""
        task = self._task
        match decision:
            case Commit(output, unlocks, used, ms):
                fault_points.reached("task done, not committed")
                process = self._jobs.process_to_continue(self.claim, unlocks)
                queue = self._jobs.queue
                task.commit(output, unlocks, replayed=replayed, used=used, ms=ms, process=process, queue=queue)
                self._jobs.committed(task.next)
            case Grown():
                fault_points.reached("task done, not committed")
                self._grow(decision, replayed)
            case Ask(step, question):
                fault_points.reached("question put, not asked")
                task.ask(step, question, replayed=replayed)
            case Retry(delay, reason, trace):
                fault_points.reached("attempt failed, not recorded")
                task.retry(delay, reason, replayed=replayed, trace=trace)
            case Fail(reason, trace):
                fault_points.reached("attempt failed, not recorded")
                task.fail(reason, replayed=replayed, trace=trace)
            case Release():
                fault_points.reached("asked to stop, not handed back")
                task.release(replayed=replayed)
            case Lost():
                pass

    def _grow(self, done: Grown, replayed: Counters) -> None:
        """Commit what a task adds to its branch as that stands; where it was changed meanwhile, look again."""
        process, branch = self._jobs.process_to_continue(self.claim), self.branch()
        while True:
            shared = branch.shared()
            try:
                expansion = done.expand(shared)
            except Exception as error:  # a loop without end, a state that no longer fits
                self._task.fail(describe(error), replayed=replayed)
                return
            fault_points.reached("growth decided, not committed")
            how: dict[str, Any] = {"used": done.used, "ms": done.ms, "process": process, "queue": self._jobs.queue}
            if self._task.expand(expansion, shared.version, replayed=replayed, **how):
                self._jobs.committed(self._task.next)
                return

    def leave(self) -> None:
        """End the attempt: its process is free, its events and its folder are closed, even if one of them raises."""
        try:
            self._jobs.over()
        finally:
            try:
                self._events.close()
            finally:
                self._folder.leave()

    def ended(self, decision: Decision) -> None:
        """Let the crew's handlers know what was stored, and give them time."""
        match decision:
            case Commit(output):
                self._events.completed(partial(json.loads, output))
            case Grown(expand):
                self._events.completed(lambda: expand.record)
            case Ask():
                self._events.asked()
            case Fail(reason):
                self._events.failed(reason)
        if event_bus.busy:  # they may be busy for long, and other tasks here need not wait
            waiting.in_thread(self._events.settle)
        fault_points.reached("task committed, job not ended")


def _origin(job: Job) -> str:
    """Return the prefix of its tools' keys: the same for each attempt, another one on another branch."""
    return ":".join((job.run_id, *([] if job.branch == "main" else [job.branch]), job.task))


def after_failure(error: BaseException, claim: Claim, loaded: Loaded | None) -> Retry | Fail:
    """Whether and when another attempt follows one that raised this."""
    failures, host = claim.failures + 1, f"(on worker host {socket.gethostname()})"
    if _is_of_the_worker(error) and failures < ATTEMPTS_ELSEWHERE:
        retries, reason = (ATTEMPTS_ELSEWHERE, 1.0), f"{describe(error)} {host}"
    elif loaded is None or isinstance(error, UnknownTask):  # where it was submitted from, the code could be read
        retries, reason = (0, 0.0), f"{describe(error)} {host}"
    else:
        retries, reason = loaded.adapter.retry(loaded.crew, claim.job.task), describe(error)
    if isinstance(error, NOT_INSTALLED):  # also by an import inside a function
        reason = f"{loader.explain(error, Path())} {host}; install it there and resume the run"
    delay, trace = next_delay(error, failures, retries), trace_of(error)
    return Fail(reason, trace) if delay is None else Retry(delay, reason, trace)


def _is_of_the_worker(error: BaseException) -> bool:
    """Whether it comes of this machine, or of how this worker reads the crew, whatever was made of that."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        if isinstance(one, DiskTrouble | StrayCancellation | UnknownTask) or (
            isinstance(one, OSError) and one.errno in USED_UP
        ):
            return True
        seen.add(id(one))
        one = one.__cause__ or one.__context__
    return False
