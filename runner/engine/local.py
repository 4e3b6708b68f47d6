"""Performs a plan in this process, for `kickoff()`: scheduling, recording of steps, and stops."""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Self, TypeVar

from runner.core.errors import Interrupted
from runner.core.jobs import Claim, Job, Scope
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage
from runner.core.output import TaskOutput, UsageMetrics
from runner.core.plan import PlannedTask
from runner.engine import observers
from runner.engine.attempt import Attempt, Loaded, Retries, next_delay
from runner.engine.decisions import Fail, Retry, Stopped
from runner.engine.executor import Executor
from runner.engine.observers import Observers
from runner.journal.cancellation.cancel_scope import CancelScope, Wakeup, Write
from runner.journal.cancellation.timing import timed
from runner.journal.nested import ChildJournal
from runner.journal.recorder import OneByOne, Uncounted

T = TypeVar("T")
F = TypeVar("F", bound="Future[Any] | asyncio.Task[Any]")


class Schedule(Generic[T, F]):
    """Concurrent tasks, each started as soon as it may run. After a failure none is started, and those in flight end.

    ``begin`` starts a task and returns its future, whose result are the tasks that become ready.
    """

    def __init__(self, begin: Callable[[T], F], ready: Iterable[T]) -> None:
        self._begin = begin
        self.in_flight = {begin(one): None for one in ready}  # in the order in which they began
        self.failure: BaseException | None = None
        """What the first task that failed raised."""

    def ended(self, done: set[F]) -> None:
        """Process the finished tasks, and start those that may run now."""
        for one in [one for one in self.in_flight if one in done]:
            del self.in_flight[one]
            self.failure = self.failure or one.exception()
            if self.failure is None:
                self.in_flight.update((self._begin(next_one), None) for next_one in one.result())


def perform(begin: Callable[[T], "Future[list[T]]"], ready: Iterable[T]) -> None:
    """Perform the tasks and all that follow from them. Raises what the first failing one raised, when all have ended.

    Args:
        begin: starts a task in another thread; its result are the tasks that become ready.
        ready: the tasks to begin with.
    """
    with Wakeup() as one_more:  # what breaks into this thread ends the wait, too

        def watching(one: T) -> "Future[list[T]]":
            begun = begin(one)
            begun.add_done_callback(one_more.wake)
            return begun

        schedule = Schedule(watching, ready)
        while schedule.in_flight:
            one_more.wait()
            schedule.ended({one for one in schedule.in_flight if one.done()})
    if schedule.failure is not None:
        raise schedule.failure


async def aperform(begin: Callable[[T], "asyncio.Task[list[T]]"], ready: Iterable[T]) -> None:
    """`perform` on this event loop. A cancellation also cancels the tasks in flight."""
    schedule = Schedule(begin, ready)
    try:
        while schedule.in_flight:
            schedule.ended((await asyncio.wait(schedule.in_flight, return_when=asyncio.FIRST_COMPLETED))[0])
    finally:
        for one in schedule.in_flight:
            one.cancel()
    if schedule.failure is not None:
        raise schedule.failure


_NONE = Uncounted()  #: no task is around the kickoff


class Steps(OneByOne):
    """The recorded steps of one task, in ``known``: they are kept over its attempts, and in checkpoints."""

    def __init__(
        self, known: dict[str, str], nest: ChildJournal | None = None, key: str = "", usage: UsageMetrics | None = None
    ) -> None:
        self._known, self._nest, self._under = known, nest, f"{key}:"
        self._usage = usage
        outer: Uncounted | ChildJournal = nest or _NONE  # within one process no step can be in doubt; in a run it can
        self.can_wait = outer.can_wait  # at the terminal, none can
        self.begin_step, self.mark_sent, self.drop_step = outer.begin_step, outer.mark_sent, outer.drop_step

    @property
    def recorded(self) -> dict[str, str]:
        """Return the recorded steps."""
        outer = self._nest.recorded(self._under) if self._nest is not None else {}
        return {**outer, **self._known}

    def place(self, step: str) -> str:
        """Return a step's name in the journal of the enclosing task, if there is one."""
        return self._nest.place(f"{self._under}{step}") if self._nest is not None else step

    def record_step(
        self, step: str, value: str, *, entry: AccountKey | None = STEP, usage: Usage = NO_TOKENS, **about: Any
    ) -> None:
        """Record the step, also in the enclosing task, if there is one."""
        self._known[step] = value
        if self._usage is not None and entry is not None and entry.kind == "model":
            self._usage.add(usage.prompt_tokens, usage.completion_tokens)
        if self._nest is not None:
            self._nest.record_step(f"{self._under}{step}", value, entry=entry, usage=usage, **about)

    def end(self, replayed: Counters) -> None:
        """The task is done: count what was replayed since the last record in the enclosing task."""
        if self._nest is not None:
            self._nest.replayed(replayed)


class LocalStops:
    """Stops tasks of this process: by their timeouts, or all of them."""

    draining = False

    def __init__(self) -> None:
        self._cancel_scopes = set[CancelScope]()
        self._stop: Interrupted | None = None
        self._stopped = threading.Event()

    def ready(self) -> None:
        """Does nothing: signals belong to the program."""

    def stop(self, why: str) -> None:
        """Make every task end at its next step; a step in flight ends first, and is recorded."""
        self._stop = Interrupted(why)
        for cancel_scope in list(self._cancel_scopes):
            cancel_scope.ask(self._stop)
        self._stopped.set()

    def pause(self, seconds: float) -> None:
        """Wait between attempts, unless all tasks are to end."""
        self._stopped.wait(seconds)

    @contextlib.contextmanager
    def watching(self, cancel_scope: CancelScope, claim: Claim, timeout: float | None) -> Iterator[None]:  # noqa: ARG002 - the port's names
        """In this context, stops reach the task; ``timeout`` is in seconds."""
        self._cancel_scopes.add(cancel_scope)
        try:
            if self._stop is not None:
                cancel_scope.ask(self._stop)
            cancel_scope.check()
            with timed(cancel_scope, timeout):
                yield
        finally:
            self._cancel_scopes.discard(cancel_scope)


class StateCancelScope(CancelScope):
    """A cancellation scope whose writes change the state, atomically with their events."""

    def __init__(self, lock: contextlib.AbstractContextManager[Any]) -> None:
        super().__init__()
        self.write = _StateWrite(self.write, lock)


class _StateWrite:
    """A change of the state: no stop interrupts it, and no checkpoint is written in between."""

    def __init__(self, write: Write, lock: contextlib.AbstractContextManager[Any]) -> None:
        self._write, self._lock = write, lock

    @property
    def entries(self) -> Self:
        """Itself: whoever enters by these takes the lock, too."""
        return self

    def append(self, _: None, /) -> None:
        """Enter."""
        self.__enter__()

    def pop(self) -> None:
        """Leave."""
        self.__exit__()

    def __enter__(self) -> None:
        self._write.__enter__()
        try:
            self._lock.__enter__()
        except BaseException:
            self._write.__exit__(None, None, None)
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._lock.__exit__(None, None, None)
        finally:
            self._write.__exit__(None, None, None)


_SCOPE = Scope(branch=0, task=0, claim=0, first=False)


class LocalTasks(ABC):
    """The tasks of one kickoff, each with the only claim on it. ``done`` are the outputs that are still valid.

    ``lock`` is held while the state changes; ``nest`` is the kickoff's journal, if it is inside a task.
    """

    crew_name = adapter = plan_digest = rerun_mask = ""
    inputs: dict[str, Any]
    done: dict[str, TaskOutput]

    def __init__(
        self,
        attempt: Callable[[Claim], Attempt],
        lock: contextlib.AbstractContextManager[Any],
        nest: ChildJournal | None,
    ) -> None:
        self.lock, self.nest, self.stops = lock, nest, LocalStops()
        # A kickoff inside of a task is part of that: of its steps the task's observers hear.
        watching = Observers(observers.installed() if nest is None else ())
        self._executor = Executor(attempt, self.stops, watching)
        self.done, self._unlocked = {}, list[Job]()

    @abstractmethod
    def steps(self, key: str) -> Steps:
        """Return the recorder for the steps of a task."""

    def unlock(self, tasks: Iterable[PlannedTask]) -> None:
        """Add those of these tasks whose prerequisites are met. Call it under the lock."""
        self._unlocked += [Job("here", "main", task.key, 1) for task in tasks if task.may_run(self.done)]

    def take(self) -> list[Job]:
        """Take the tasks that may run and were not taken yet."""
        with self.lock:
            found, self._unlocked = self._unlocked, []
        return found

    def pause(self, seconds: float) -> None:
        """Wait between attempts."""
        self.stops.pause(seconds)

    def perform(self, job: Job) -> list[Job]:
        """Make attempts until one ends the task; return the tasks that become ready. Raises the last one's error."""
        while isinstance(decision := self._executor.perform(self._claim(job)), Retry):
            self.pause(decision.delay)
            job = job._replace(attempt=job.attempt + 1)
        if isinstance(decision, Stopped) and decision.error is not None:
            raise decision.error
        return self.take()

    def _claim(self, job: Job) -> Claim:
        failures = job.attempt - 1
        return Claim(
            job=job,
            worker="here",
            token=job.attempt,
            failures=failures,
            failed=failures,
            adapter=self.adapter,
            inputs=self.inputs,
            rerun_mask=self.rerun_mask,
            plan_digest=self.plan_digest,
            crew=self.crew_name,
            scope=_SCOPE,
            recorded=self.steps(job.task).recorded,
            context={},
        )


class LocalAttempt(Attempt):
    """An attempt at a task of a kickoff."""

    def __init__(self, tasks: LocalTasks, claim: Claim, retries: Retries) -> None:
        self.claim, self.cancel_scope = claim, StateCancelScope(tasks.lock)
        self.recorder = self._steps = tasks.steps(claim.job.task)
        self._retries, self._nest = retries, tasks.nest

    def outputs(self, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """Raise `KeyError`: a task that is no crew's has no outputs of others to read."""
        raise KeyError(keys)

    def unrecorded(self, where: str) -> None:
        """A model call that the journal cannot record is about to be sent: the enclosing task, if any, reports it."""
        if self._nest is not None:
            self._nest.note_unrecorded(where)

    def failed(self, error: BaseException, loaded: Loaded | None) -> Retry | Fail:  # noqa: ARG002 - it is here
        """Retry as the task says; not if the process is to end."""
        delay = next_delay(error, self.claim.failures + 1, self._retries) if isinstance(error, Exception) else None
        return Fail("", error=error) if delay is None else Retry(delay, "", error=error)
