"""A plan performed in this process, as `kickoff()` does it: what begins when, where steps go, what stops them."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Generic, TypeVar

from runner.core.errors import Interrupted
from runner.core.jobs import Claim
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage
from runner.core.output import UsageMetrics
from runner.engine.attempt import Retries, next_delay
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.cancellation.timing import timed
from runner.journal.nested import ChildJournal
from runner.journal.recorder import DoneStep, one_by_one

R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound="Future[Any] | asyncio.Task[Any]")


class Schedule(Generic[T, F]):
    """Tasks side by side, each begun as soon as it may run, and none once one failed: those in flight end as they do.

    ``begin`` starts a task and gives its future, whose result are the tasks that may run because it is done.
    """

    def __init__(self, begin: Callable[[T], F], ready: Iterable[T]) -> None:
        self._begin = begin
        self.in_flight = {begin(one): None for one in ready}  # in the order in which they began
        self.failure: BaseException | None = None
        """What the first task that failed raised."""

    def ended(self, done: set[F]) -> None:
        """Take those that ended, and begin what may run now."""
        for one in [one for one in self.in_flight if one in done]:
            del self.in_flight[one]
            self.failure = self.failure or one.exception()
            if self.failure is None:
                self.in_flight.update((self._begin(next_one), None) for next_one in one.result())


def perform(begin: Callable[[T], "Future[list[T]]"], ready: Iterable[T]) -> None:
    """Perform the tasks and all that follow from them. Raises what the first that failed raised, when all have ended.

    Args:
        begin: starts a task in another thread; its result are the tasks that may run because it is done.
        ready: the tasks to begin with.
    """
    schedule = Schedule(begin, ready)
    while schedule.in_flight:
        schedule.ended(wait(schedule.in_flight, return_when=FIRST_COMPLETED).done)
    if schedule.failure is not None:
        raise schedule.failure


async def aperform(begin: Callable[[T], "asyncio.Task[list[T]]"], ready: Iterable[T]) -> None:
    """`perform` on this event loop. Where this is cancelled, so is what is in flight."""
    schedule = Schedule(begin, ready)
    try:
        while schedule.in_flight:
            schedule.ended((await asyncio.wait(schedule.in_flight, return_when=asyncio.FIRST_COMPLETED))[0])
    finally:
        for one in schedule.in_flight:
            one.cancel()
    if schedule.failure is not None:
        raise schedule.failure


async def auntil_done(
    attempt: Callable[[int], Awaitable[R]], retries: Retries, pause: Callable[[float], Awaitable[object]]
) -> R:
    """The result of the first attempt that gives one, on this event loop. Raises what the last one raised.

    Args:
        attempt: is told how many failed before it.
        retries: how the task is retried.
        pause: waits between attempts, for so many seconds.
    """
    failures = 0
    while True:
        try:
            return await attempt(failures)
        except Exception as error:
            failures += 1
            delay = next_delay(error, failures, retries)
            if delay is None:
                raise
        await pause(delay)


class Steps:
    """The steps of one task, in ``known``: they are kept over its attempts, and are in checkpoints."""

    def __init__(
        self,
        known: dict[str, str],
        nest: ChildJournal | None = None,
        key: str = "",
        usage: UsageMetrics | None = None,
    ) -> None:
        self._known, self._nest, self._under = known, nest, f"{key}:"
        self._usage = usage

    @property
    def recorded(self) -> dict[str, str]:
        """Those that are done."""
        outer = self._nest.recorded(self._under) if self._nest is not None else {}
        return {**outer, **self._known}

    def begin_step(
        self, entry: AccountKey = STEP, *, supersedes: Sequence[AccountKey] = (), intent_only: bool = False
    ) -> None:
        """Nothing can be in doubt in one process; in a task around it, it can."""
        if self._nest is not None:
            self._nest.begin(entry, supersedes=supersedes, intent_only=intent_only)

    def mark_sent(self, entry: AccountKey) -> None:
        """A call that was only intended is being sent."""
        if self._nest is not None:
            self._nest.mark_sent(entry)

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        """It raised; nothing to keep."""
        if self._nest is not None:
            self._nest.drop(entry, intent_only=intent_only)

    @property
    def can_wait(self) -> bool:
        """Here the terminal is asked; inside of a task of the fleet, that task waits."""
        return self._nest is not None and self._nest.can_wait

    def place(self, step: str) -> str:
        """A step's name in the journal of the task around it, if there is one."""
        return self._nest.place(f"{self._under}{step}") if self._nest is not None else step

    def record_step(
        self, step: str, value: str, *, entry: AccountKey | None = STEP, usage: Usage = NO_TOKENS, **about: Any
    ) -> None:
        """Keep it, and with it the task around it, if there is one."""
        self._known[step] = value
        if self._usage is not None and entry is not None and entry.kind == "model":
            self._usage.add(usage.prompt_tokens, usage.completion_tokens)
        if self._nest is not None:
            self._nest.record(f"{self._under}{step}", value, entry=entry, usage=usage, **about)

    def record_steps(self, done: Sequence[DoneStep], *, dropped: int = 0, begins: int = 0, replayed: Counters) -> None:
        """Keep what steps side by side gave, one by one."""
        one_by_one(self, done, dropped=dropped, begins=begins, replayed=replayed)

    def end(self, replayed: Counters) -> None:
        """The task is done: what was replayed since the last record counts in the task around it."""
        if self._nest is not None:
            self._nest.replayed(replayed)


class LocalStops:
    """What stops tasks of this process: their timeouts, and the end of all of them."""

    draining = False

    def __init__(self) -> None:
        self._cancel_scopes = set[CancelScope]()
        self._stop: Interrupted | None = None
        self._stopped = threading.Event()

    def ready(self) -> None:
        """Signals are the program's own."""

    def stop(self, why: str) -> None:
        """Let every task end at its next step; what is in a step ends that first, and it is recorded."""
        self._stop = Interrupted(why)
        for cancel_scope in list(self._cancel_scopes):
            cancel_scope.ask(self._stop)
        self._stopped.set()

    def pause(self, seconds: float) -> None:
        """Wait between attempts, unless all is to end."""
        self._stopped.wait(seconds)

    @contextlib.contextmanager
    def watching(self, cancel_scope: CancelScope, claim: Claim, timeout: float | None) -> Iterator[None]:  # noqa: ARG002
        """Stops reach the task while in this context; ``timeout`` is in seconds."""
        self._cancel_scopes.add(cancel_scope)
        try:
            if self._stop is not None:
                cancel_scope.ask(self._stop)
            cancel_scope.check()
            with timed(cancel_scope, timeout):
                yield
        finally:
            self._cancel_scopes.discard(cancel_scope)
