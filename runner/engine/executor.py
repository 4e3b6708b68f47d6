"""The executor: performs a task, for a worker's job or for a kickoff in this process.

Performing a task results in a decision; storing it is a separate step. The process may be killed anywhere in between.
"""

import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from runner.bundles import reading, task_files
from runner.core import output as outputs
from runner.core import processes, stored_output, waiting
from runner.core.clock import SYSTEM
from runner.core.errors import ClaimLost, InputRequired, Interrupted, TaskTimeout, TimedOut
from runner.core.idempotency import task_origin
from runner.core.jobs import Claim
from runner.core.plan import Plan
from runner.core.plan.branching import branch_plan
from runner.core.plan.dependencies import ReadSet
from runner.engine.attempt import Attempt, Loaded
from runner.engine.decisions import Ask, Commit, Decision, Grown, Lost, Release
from runner.engine.observers import Observers
from runner.engine.ports import Clock
from runner.engine.work import Work
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.current_journal import active_journal, code_here, inside_of
from runner.journal.journal import Journal
from runner.llm.recording.loading import watch_imports

reading.task_here = active_journal

R = TypeVar("R")


class Stops(Protocol):
    """Stops the tasks in flight of a process."""

    def ready(self) -> None:
        """From here on, a signal that ends the process first hands tasks back."""

    def watching(self, cancel_scope: CancelScope, claim: Claim, timeout: float | None) -> AbstractContextManager[None]:
        """In this context, stops reach the task; ``timeout`` is in seconds."""

    @property
    def draining(self) -> bool:
        """Whether this process takes no more tasks."""


class Executor:
    """Performs claimed tasks and stores the decisions. ``begin`` returns the `Attempt` for a claim."""

    def __init__(
        self, begin: Callable[[Claim], Attempt], stops: Stops, observers: Observers, clock: Clock = SYSTEM
    ) -> None:
        self._begin = begin
        self._stops = stops
        self._observers = observers
        self._clock = clock
        watch_imports()

    def perform(self, claim: Claim) -> Decision:
        """Make one attempt at the task. The returned decision is already stored."""
        self._observers.task_started(claim)
        began = self._clock.monotonic()
        attempt = self._begin(claim)
        if waiting.shared and not attempt.enclosed:
            attempt.waiter = waiting.here()
        steps = self._observers.steps(claim, attempt.recorder)
        journal = Journal(
            claim.recorded, steps, attempt.cancel_scope, code=claim.bundle or code_here(), clock=self._clock
        )
        journal.on_unrecorded = attempt.unrecorded
        try:
            try:
                decision = attempt.run(self._attempt, attempt, journal)
            finally:
                journal.close()
            attempt.record(decision, journal.take_replayed())
        except ClaimLost as error:
            decision = Lost(error=error)
        finally:
            attempt.leave()
            if attempt.waiter is not None:
                attempt.waiter.give_thread()
        attempt.run(attempt.ended, decision)
        self._observers.task_ended(claim, decision, self._clock.monotonic() - began)
        return decision

    def _thread(
        self, waiter: waiting.Waiter, attempt: Attempt, loaded: Loaded
    ) -> Callable[[Callable[[], R]], R] | None:
        """Return a function that calls the task's code in a separate thread, if it may block; None otherwise."""
        only_waits = getattr(loaded.adapter, "only_waits", None)
        if only_waits is not None and only_waits(loaded.crew, attempt.claim.job.task):
            return None
        with self._stops.watching(attempt.cancel_scope, attempt.claim, None):
            waiter.take_thread()
        return waiter.in_thread

    def _attempt(self, attempt: Attempt, journal: Journal) -> Decision:
        claim, cancel_scope = attempt.claim, attempt.cancel_scope
        failed: BaseException
        loaded: Loaded | None = None
        began = self._clock.monotonic()
        task_origin.set(attempt.origin)
        try:
            loaded = attempt.load(journal)
            plan = attempt.plan(loaded)
            planned = plan.by_key[claim.job.task]
            growing = loaded.growing
            own = branch_plan(plan, claim.rerun_mask) if claim.rerun_mask else plan
            attempt.warm(loaded)
            in_thread = None if attempt.waiter is None else self._thread(attempt.waiter, attempt, loaded)
            with (
                self._stops.watching(cancel_scope, claim, planned.timeout),
                inside_of(journal, unattributed=attempt.unattributed),
                attempt.at_work(loaded, journal),
            ):
                journal.pacing = attempt.pacer
                work = _work(attempt, plan, own, journal)
                for name in loaded.made_with:
                    work.uses.input(name)
                do: Callable[..., Any] = loaded.adapter.perform if growing is None else growing.expand
                # No `partial` where it waits here: a call from C takes 600 bytes of the stack that is saved for it.
                process = os.getpid()
                try:
                    done = do(loaded.crew, work) if in_thread is None else in_thread(partial(do, loaded.crew, work))
                finally:
                    if os.getpid() != process and claim.bundle:  # a worker's task, which is its parent's
                        processes.leave(sys.exception())
            if journal.failure is not None:
                raise journal.failure
            left = attempt.left(work.note)
            if growing is not None:
                if left:
                    done.record.update(task_files.record_fields(stored_output.load(done.record)[0], left))
                return Grown(done, ReadSet(files=bool(left)), int((self._clock.monotonic() - began) * 1000))
            used = work.uses.found(planned.context or (), lambda: len(plan.earlier(planned.key)))
            if left:
                used, done = replace(used, files=True), attempt.with_files(done, left, loaded)
            unlocks = own.dependents[planned.key]
            return Commit(done, unlocks, used, int((self._clock.monotonic() - began) * 1000))
        except ClaimLost as lost:
            return Lost(error=lost)
        except InputRequired as asked:
            return _ask(asked if asked.step else journal.asked or asked)  # what stopped it may not know what was asked
        except Interrupted as stop:
            return Release(error=stop)
        except TimedOut as stopped:
            failed = stopped  # it may be that of the task around this
            if isinstance(cancel_scope.stopping, TimedOut):
                failed = TaskTimeout(str(cancel_scope.stopping)).with_traceback(stopped.__traceback__)
        except BaseException as error:  # sys.exit() in a task fails the task, not its worker
            failed = journal.failure or error
        if isinstance(cancel_scope.stopping, ClaimLost):
            return Lost(error=failed)
        if isinstance(cancel_scope.stopping, Interrupted) or (self._stops.draining and _exits(failed)):
            return Release(error=failed)  # what it raised came of being interrupted
        if journal.asked is not None and isinstance(failed, Exception | BaseExceptionGroup):
            return _ask(journal.asked)  # a framework told it as an error of its own
        journal.ends_by(failed)
        return attempt.failed(failed, loaded)


def _ask(asked: InputRequired) -> Ask:
    question = json.dumps({"message": asked.question, **asked.about}, ensure_ascii=False)
    return Ask(asked.step, question, error=asked)


def _work(attempt: Attempt, plan: Plan, own: Plan, journal: Journal) -> Work:
    claim = attempt.claim
    job = claim.job

    return Work(
        run_id=job.run_id,
        branch=job.branch,
        attempt=job.attempt,
        key=job.task,
        plan=plan,
        inputs=claim.inputs,
        journal=journal,
        fetch=attempt.fetch,
        note=attempt.note_and_check,
        given={key: outputs.from_record(stored, name=key) for key, stored in claim.context.items()},
        conversation=attempt.conversation,
        watch=attempt.watch,
        is_resumable=attempt.is_resumable,
        failed=claim.failed,
        part=own,
        opens=claim.scope.opens,
        line=attempt.branch() if plan.grows else None,
        stored_with=attempt.stored_with,
    )


def _exits(error: BaseException) -> bool:
    return isinstance(error, SystemExit) or isinstance(error.__cause__, SystemExit)
