"""A plan performed in this process, as `kickoff()` does it: what begins when, and how often it is attempted."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Generic, TypeVar

from runner.engine.attempt import Retries, next_delay

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


def until_done(attempt: Callable[[int], R], retries: Retries, pause: Callable[[float], object]) -> R:
    """The result of the first attempt that gives one. Raises what the last one raised.

    Args:
        attempt: is told how many failed before it.
        retries: how the task is retried.
        pause: waits between attempts, for so many seconds.
    """
    failures = 0
    while True:
        try:
            return attempt(failures)
        except Exception as error:
            failures += 1
            delay = next_delay(error, failures, retries)
            if delay is None:
                raise
        pause(delay)


async def auntil_done(
    attempt: Callable[[int], Awaitable[R]], retries: Retries, pause: Callable[[float], Awaitable[object]]
) -> R:
    """`until_done` on this event loop."""
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
