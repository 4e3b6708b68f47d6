"""Doing one job: claim, perform, and store what came of it.

Performing a task gives a decision; storing it is a step of its own. Everything in between may be killed.
"""

import contextvars
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from runner.bundles import loader, task_files
from runner.bundles.run_dir import Home, homes
from runner.core import fault_points
from runner.core import output as outputs
from runner.core.clock import SYSTEM
from runner.core.errors import (
    ClaimLost,
    DiskTrouble,
    InputRequired,
    Interrupted,
    TaskTimeout,
    TimedOut,
)
from runner.core.idempotency import task_origin
from runner.core.jobs import Claim, Job, Refusal
from runner.core.ledger import Tally
from runner.core.output import TaskOutput
from runner.core.plan import Plan
from runner.core.plan.branching import branch_plan
from runner.core.plan.dependencies import Used
from runner.core.plan.growth import Branch, Grow
from runner.engine import adapters, observers
from runner.engine.attempt import NOT_INSTALLED, next_delay
from runner.engine.code_cache import CodeCache, Loaded, Signatures
from runner.engine.decisions import Ask, Commit, Decision, Fail, Grown, Lost, Release, Retry
from runner.engine.event_relay import TaskEvents
from runner.engine.failures import describe, trace_of
from runner.engine.folder import AttemptFolder
from runner.engine.observers import LogObserver, Observers
from runner.engine.ports import ClaimedTask, Clock, Store
from runner.engine.tool_events import ToolObserver
from runner.engine.work import Work
from runner.journal.cancellation.gate import Gate
from runner.journal.enclosing import inside_of
from runner.journal.journal import Journal
from runner.journal.task_marks import Page
from runner.llm.recording.loading import watch_imports
from runner.modelserver import stubs

DISK_ATTEMPTS = 8  #: at a task, of which each failed of some machine's disk: for about a minute, then its run fails
REGISTER_WAIT = 5.0  #: seconds that a job waits for its worker's lease


class Stops(Protocol):
    """Where the tasks in flight of a process are known to those who stop them."""

    def ready(self) -> None:
        """From here on, a signal that ends the process hands back first."""

    def watching(self, gate: Gate, claim: Claim, timeout: float | None) -> AbstractContextManager[None]:
        """Stops reach the task while in this context; ``timeout`` is in seconds."""

    @property
    def draining(self) -> bool:
        """Whether this process takes no more tasks."""


Outgoing = Callable[[str], None] | None
"""Where a process says which calls of its task have left it, for who looks when it is dead."""

Retire = Callable[[str], None] | None
"""Has this process end after its job, one of the adapter of that name."""


class Executor:
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
        clock: Clock = SYSTEM,
    ) -> None:
        self._store = store
        self._clock = clock
        self._code = CodeCache(store, cache)
        self._signatures = Signatures(store.signature)
        self._worker = worker
        self._process = process
        self._stops = stops
        self._outgoing = outgoing
        self._page = page
        self._homes = homes(store.id, cache)
        self._workdirs = task_files.workdirs(store.id, cache)
        self._retire = retire
        watch_imports()
        self._observers = Observers((LogObserver(), *observers.installed()))

    def do(self, job: Job) -> Decision | Refusal:
        """Do one job. What it returns is already stored."""
        fault_points.reached("job received, not claimed")
        self._stops.ready()
        if self._stops.draining:
            self._store.return_job(job)
            return Refusal("draining")
        try:
            self._page.claiming(job.ref)
            claim = self._claim(job)
            if isinstance(claim, Refusal):
                return claim
            self._page.claimed(job.ref, claim.token)
            self._observers.task_started(claim)
            began = self._clock.monotonic()
            decision = self._do(claim)
            self._observers.task_ended(claim, decision, self._clock.monotonic() - began)
            return decision
        finally:
            self._page.over()

    def _do(self, claim: Claim) -> Decision:
        if self._retire is not None and adapters.is_disposable(claim.adapter):
            self._retire(claim.adapter)
        fault_points.reached("claimed, not begun")
        gate = Gate(self._clock)
        task = self._store.task(claim, self._outgoing, self._page.log)
        journal = Journal(claim.recorded, self._observers.steps(claim, task), gate, clock=self._clock)
        place = task_files.new_place(self._workdirs, self._worker)
        folder = AttemptFolder(claim, self._store, self._code, place)
        # Each task has a context of its own: Celery's pools leak context variables from one to the next.
        context, events = contextvars.Context(), TaskEvents(claim, task, gate)
        try:
            try:
                decision = context.run(self._perform, claim, task, journal, gate, events, folder)
            finally:
                journal.close()
            self._record(decision, task, journal)
            self._page.over()
        except ClaimLost:
            return Lost()
        finally:
            events.close()
            folder.leave()
        context.run(_tell, events, decision)
        fault_points.reached("task committed, job not ended")
        return decision

    def _claim(self, job: Job) -> Claim | Refusal:
        """Claim it. A worker whose lease was lost is about to register again; if it does not, the job is sent on."""
        end = self._clock.monotonic() + REGISTER_WAIT
        while True:
            unfit = adapters.disposable() if self._retire is None else ()
            claim = self._store.claim(job, worker=self._worker, process=self._process, unfit=unfit)
            if not (isinstance(claim, Refusal) and claim.reason == "unregistered"):
                return claim
            if self._clock.monotonic() > end or self._stops.draining:
                self._store.return_job(job)
                return claim
            self._clock.sleep(0.05)

    def _perform(
        self, claim: Claim, task: ClaimedTask, journal: Journal, gate: Gate, events: TaskEvents, folder: AttemptFolder
    ) -> Decision:
        failed: BaseException
        loaded: Loaded | None = None
        began = self._clock.monotonic()
        events.begin()
        task_origin.set(_origin(claim.job))
        try:
            self._signatures.check(claim.job.run_id, claim.bundle, claim.module, claim.attr, claim.adapter)
            for prepare in adapters.preparations(claim.adapter):
                prepare(self._home(claim.job))
            root = folder.enter(journal)
            loaded = self._code.get(claim.bundle, claim.module, claim.attr, claim.crew, claim.inputs, root=root)
            plan = self._plan_of(claim, loaded)
            planned = plan.task(claim.job.task)
            own = branch_plan(plan, claim.todo) if claim.todo else plan
            growing = loaded.growing
            loaded.adapter.warm(loaded.crew, planned.key)
            with (
                loader.using(claim.bundle),
                self._stops.watching(gate, claim, planned.timeout),
                inside_of(journal, strays=True),
                stubs.using(stubs.named(claim.standin)) if claim.standin else nullcontext() as journal.standin,
            ):
                source = loaded.adapter.source(loaded.crew, planned.key)
                events.started(loaded.crew, source, growing.in_words if growing else None)
                journal.pacing = partial(self._store.pacer, claim.job.run_id)
                journal.watched = events.wants("llm_call_started", "llm_call_completed", "llm_call_failed")
                work = self._work(claim, plan, own, task, journal, gate)
                for name in loaded.made_with:
                    work.uses.input(name)
                if events.wants("tool_usage_started", "tool_usage_finished", "tool_usage_error"):
                    work = replace(work, watch=lambda name, function: ToolObserver(source, name, function))
                if growing is None:
                    output = loaded.adapter.perform(loaded.crew, work)
                else:
                    grow = growing.grow(loaded.crew, work)
            left = folder.left()
            if line := folder.not_kept():
                work.note("task_log", line)
            fault_points.reached("task done, not committed")
            if growing is not None:
                assert work.line is not None
                if left:
                    grow.record.update(task_files.beside(outputs.load(grow.record)[0], left))
                return Grown(grow, work.line, Used(files=bool(left)), int((self._clock.monotonic() - began) * 1000))
            used = replace(
                work.uses.found(planned.context or (), lambda: len(plan.earlier(planned.key))), files=bool(left)
            )
            output = folder.with_files(output, left, loaded)
            unlocks = own.dependents[planned.key]
            return Commit(output, unlocks, used, int((self._clock.monotonic() - began) * 1000))
        except ClaimLost:
            return Lost()
        except InputRequired as asked:
            fault_points.reached("question put, not asked")
            return Ask(asked.step, json.dumps({"message": asked.question, **asked.about}, ensure_ascii=False))
        except Interrupted:
            fault_points.reached("asked to stop, not handed back")
            return Release()
        except TimedOut as stopped:
            failed = TaskTimeout(str(gate.stopping)).with_traceback(stopped.__traceback__)
        except BaseException as error:  # sys.exit() in a task fails the task, not its worker
            failed = error
        if isinstance(gate.stopping, ClaimLost):
            return Lost()
        if isinstance(gate.stopping, Interrupted) or (self._stops.draining and _exits(failed)):
            return Release()  # what it raised came of being interrupted
        fault_points.reached("attempt failed, not recorded")
        return _after_failure(failed, claim, loaded)

    def _home(self, job: Job) -> Home:
        """Where the run keeps on this machine what is in no store."""
        store = self._store
        parent = partial(store.parent, job.run_id)
        return Home(self._homes, store.id, job.run_id, job.branch, parent, store.existing)

    def _plan_of(self, claim: Claim, loaded: Loaded) -> Plan:
        """The plan from the code; the stored one where the code plans differently on this machine."""
        if loaded.plan.digest == claim.plan_digest:
            return loaded.plan
        return self._store.plan(claim.job.run_id)

    def _work(self, claim: Claim, plan: Plan, own: Plan, task: ClaimedTask, journal: Journal, gate: Gate) -> Work:
        job = claim.job
        branch = partial(self._store.branch, job.run_id, job.branch)

        def note(kind: str, text: str) -> None:
            with gate.write():
                task.note(kind, text)
            gate.check()

        return Work(
            run_id=job.run_id,
            branch=job.branch,
            attempt=job.attempt,
            key=job.task,
            plan=plan,
            inputs=claim.inputs,
            journal=journal,
            fetch=partial(self._store.outputs, job.run_id, job.branch),
            note=note,
            given={key: _task_output(key, stored) for key, stored in claim.context.items()},
            goes_on=True,
            failed=claim.failed,
            part=own,
            opens=claim.scope.opens,
            line=branch() if plan.grows else None,
            beside=lambda keys: branch().records(keys),
        )

    def _record(self, decision: Decision, task: ClaimedTask, journal: Journal) -> None:
        replayed = journal.take_replayed()
        match decision:
            case Commit(output, unlocks, used, ms):
                task.commit(output, unlocks, replayed=replayed, used=used, ms=ms)
            case Grown(grow, branch, used, ms):
                self._grow(task, grow, branch, replayed, used, ms)
            case Ask(step, question):
                task.ask(step, question, replayed=replayed)
            case Retry(delay, reason, trace):
                task.retry(delay, reason, replayed=replayed, trace=trace)
            case Fail(reason, trace):
                task.fail(reason, replayed=replayed, trace=trace)
            case Release():
                task.release(replayed=replayed)
            case Lost():
                pass

    def _grow(self, task: ClaimedTask, grow: Grow, branch: Branch, replayed: Tally, used: Used, ms: int) -> None:
        """Commit what a task adds to its branch as that stands; where it was changed meanwhile, look again."""
        while True:
            shared = branch.shared()
            try:
                growth = grow(shared)
            except Exception as error:  # a loop without end, a state that no longer fits
                task.fail(describe(error), replayed=replayed)
                return
            fault_points.reached("growth decided, not committed")
            if task.grow(growth, shared.version, replayed=replayed, used=used, ms=ms):
                return


def _tell(events: TaskEvents, decision: Decision) -> None:
    """Let the crew's handlers know what was stored, and give them time."""
    match decision:
        case Commit(output):
            events.completed(json.loads(output))
        case Grown(grow):
            events.completed(grow.record)
        case Ask():
            events.asked()
        case Fail(reason):
            events.failed(reason)
    events.settle()


def _origin(job: Job) -> str:
    """What the keys of its tools begin with: the same for each attempt, another one on another branch."""
    return ":".join((job.run_id, *([] if job.branch == "main" else [job.branch]), job.task))


def _exits(error: BaseException) -> bool:
    return isinstance(error, SystemExit) or isinstance(error.__cause__, SystemExit)


def _after_failure(error: BaseException, claim: Claim, loaded: Loaded | None) -> Decision:
    failures, host = claim.failures + 1, f"(on worker host {socket.gethostname()})"
    if _is_of_the_disk(error) and failures < DISK_ATTEMPTS:
        retries, reason = (DISK_ATTEMPTS, 1.0), f"{describe(error)} {host}"
    elif loaded is None:  # where it was submitted from, the code could be read
        retries, reason = (0, 0.0), f"{describe(error)} {host}"
    else:
        retries, reason = loaded.adapter.retry(loaded.crew, claim.job.task), describe(error)
    if isinstance(error, NOT_INSTALLED):  # also by an import inside a function
        reason = f"{loader.explain(error, Path())} {host}; install it there and resume the run"
    delay, trace = next_delay(error, failures, retries), trace_of(error)
    return Fail(reason, trace) if delay is None else Retry(delay, reason, trace)


def _is_of_the_disk(error: BaseException) -> bool:
    """Whether it comes of this machine's disk, whatever was made of that."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        if isinstance(one, DiskTrouble):
            return True
        seen.add(id(one))
        one = one.__cause__ or one.__context__
    return False


def _task_output(key: str, stored: Mapping[str, Any]) -> TaskOutput:
    return outputs.from_record(stored, name=key)
