"""Observers: notified of tasks and calls in this process, without changing anything. For logs, metrics, traces.

A package adds one as an entry point of the group ``crew_runner.observers``.
"""

import functools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

from runner.core.clock import SYSTEM
from runner.core.jobs import Claim
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage
from runner.core.redaction import CLEAN, redact
from runner.engine.decisions import Ask, Commit, Decision, Fail, Grown, Lost, Release, Retry
from runner.journal.recorder import BegunStep, DoneStep, Recorder

log = logging.getLogger(__name__)
log_of_tasks = logging.getLogger("runner.tasks")

GROUP = "crew_runner.observers"


class Observer:
    """Override the methods that you need. An entry point returns an instance; each process of a worker has its own.

    Exceptions are logged and have no other effect. The task waits for each call, so be quick. Calls come in the task's
    thread or, for steps, in the thread that does the step.
    """

    def task_started(self, claim: Claim) -> None:
        """A task was claimed and starts."""

    def step_recorded(self, claim: Claim, step: str, entry: AccountKey, usage: Usage) -> None:
        """A step was recorded: a model call with its tokens, a tool call, or an author's step. No replays."""

    def task_ended(self, claim: Claim, decision: Decision, seconds: float) -> None:
        """An attempt has ended after ``seconds``, and its decision is stored."""


class Observers:
    """Several observers as one: an exception in one reaches neither the task nor the others."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        self._of_steps = [one for one in observers if type(one).step_recorded is not Observer.step_recorded]

    def task_started(self, claim: Claim) -> None:
        """Notify each."""
        for one in self._observers:
            try:
                one.task_started(claim)
            except Exception:
                _ignore(one.task_started)

    def task_ended(self, claim: Claim, decision: Decision, seconds: float) -> None:
        """Notify each."""
        for one in self._observers:
            try:
                one.task_ended(claim, decision, seconds)
            except Exception:
                _ignore(one.task_ended)

    def steps(self, claim: Claim, recorder: Recorder) -> Recorder:
        """Return the recorder of a task, observed; unchanged if no observer wants steps."""
        return ObservedRecorder(recorder, claim, self._of_steps) if self._of_steps else recorder


class DelegatingRecorder:
    """Delegates to another recorder; a subclass does more with some of the calls."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.begin_step, self.begin_steps, self.drop_step = (
            recorder.begin_step,
            recorder.begin_steps,
            recorder.drop_step,
        )
        self.place = recorder.place

    @property
    def can_wait(self) -> bool:
        """Whether the task can stop for a person."""
        return self._recorder.can_wait


class WaitNotifier(DelegatingRecorder):
    """Notifies the worker's pool once that a task waits for a model, and needs no core meanwhile."""

    def __init__(self, recorder: Recorder, notify: Callable[[], None]) -> None:
        super().__init__(recorder)
        self._notify, self._notified = notify, False
        self.record_step, self.record_steps = recorder.record_step, recorder.record_steps

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent now."""
        self._recorder.mark_sent(entry)
        if entry.kind == "model" and not self._notified:
            self._notified = True
            self._notify()


class ObservedRecorder(DelegatingRecorder):
    """Reports to observers what it has recorded."""

    def __init__(self, recorder: Recorder, claim: Claim, observers: Sequence[Observer]) -> None:
        super().__init__(recorder)
        self._claim, self._observers = claim, observers
        self.mark_sent = recorder.mark_sent

    def record_step(
        self,
        step: str,
        value: str,
        *,
        replayed: Counters,
        entry: AccountKey | None = STEP,
        usage: Usage = NO_TOKENS,
        reported: bool = False,
    ) -> None:
        """Record it, then notify each observer."""
        self._recorder.record_step(step, value, replayed=replayed, entry=entry, usage=usage, reported=reported)
        self._report(step, entry, usage)

    def record_steps(
        self, done: Sequence[DoneStep], *, dropped: int = 0, begins: Sequence[BegunStep] = (), replayed: Counters
    ) -> None:
        """Record them, then notify each observer."""
        self._recorder.record_steps(done, dropped=dropped, begins=begins, replayed=replayed)
        for step in done:
            self._report(step.step, step.entry, step.usage)

    def _report(self, step: str, entry: AccountKey | None, usage: Usage) -> None:
        for one in self._observers if entry is not None else ():
            _notify(one.step_recorded, self._claim, step, entry, usage)


@functools.cache  # looking for them costs milliseconds
def installed() -> tuple[Observer, ...]:
    """Return the installed observers."""
    return tuple(point.load() for point in entry_points(group=GROUP))


def _notify(observe: Callable[..., None], *about: object) -> None:
    try:
        observe(*about)
    except Exception:
        _ignore(observe)


def _ignore(observe: Callable[..., None]) -> None:
    log.exception("%s raised; the exception is ignored", observe.__qualname__)


@functools.cache  # one for all executors of this process
def of_jobs() -> Observers:
    """Return the observers of jobs: the log, then the installed ones."""
    return Observers((LogObserver(), *installed()))


class LogObserver(Observer):
    """Logs that each task starts, and how it ends: names, ids and reasons, without content."""

    def task_started(self, claim: Claim) -> None:
        """Log that it starts."""
        _say(logging.INFO, claim, "started")

    def task_ended(self, claim: Claim, decision: Decision, seconds: float) -> None:
        """Log how it ended."""
        failed = f"failed after {seconds:.3f} s"
        match decision:
            case Commit() | Grown():
                _say(logging.INFO, claim, f"completed in {seconds:.3f} s")
            case Ask():
                _say(logging.INFO, claim, "is awaiting input")
            case Retry(delay, reason, trace):
                _say(logging.WARNING, claim, f"{failed}; retrying in {delay:.1f} s", reason, trace)
            case Fail(reason, trace):
                _say(logging.ERROR, claim, failed, reason, trace)
            case Release():
                _say(logging.INFO, claim, "handed back")
            case Lost():
                _say(logging.WARNING, claim, "belongs to another worker by now: its result was discarded")


def _say(level: int, claim: Claim, what: str, reason: str = "", trace: str = "") -> None:
    if not log_of_tasks.isEnabledFor(level):
        return
    job = claim.job
    ids = {"run": job.run_id, "branch": job.branch, "task": job.task, "attempt": job.attempt}
    text = f"task {job.task} {what} (run {job.run_id}, branch {job.branch}, attempt {job.attempt})"
    text += f": {redact(reason)}" if reason else ""
    # The trace is masked already; and to mask what is but ids costs as much as doing a small task.
    text = f"{text}\n{trace}" if trace else text
    record = logging.LogRecord.__new__(logging.LogRecord)
    same = _same(level, os.getpid(), threading.get_ident())
    now = SYSTEM.now()
    record.__dict__.update(same, **ids, args=(text,), created=now, msecs=now % 1 * 1000 // 1)
    record.relativeCreated += (now - same["created"]) * 1000
    log_of_tasks.handle(record)


@functools.lru_cache(maxsize=64)
def _same(level: int, pid: int, thread: int) -> dict[str, Any]:  # noqa: ARG001 - what it is the same for
    """A log record with the fields that all lines share, which are more expensive to compute than to format."""
    return {**logging.LogRecord(log_of_tasks.name, level, __file__, 0, "%s", (), None).__dict__, CLEAN: True}
