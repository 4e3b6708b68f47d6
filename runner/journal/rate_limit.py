"""Rate limits: ``max_rpm`` of crews and agents, in model calls per minute.

A call over the limit waits before it is made, outside any step, so it can be stopped. On the fleet the limit is the
run's: it is in the store, and applies to all workers together.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from runner.core.clock import SYSTEM, Clock
from runner.core.ledger import caller
from runner.journal.cancellation.cancel_scope import CancelScope

MINUTE = 60.0
LOOK = 0.1  #: seconds between looks of who awaits its turn whether the task is to stop

Limit = tuple[str, int]
"""Whose calls, and how many of them in a minute."""


class Pacer(Protocol):
    """Counts the calls of a minute."""

    def acquire(self, limits: Sequence[Limit]) -> float:
        """Count a call under all of these limits and return 0, or return the seconds until one of them admits it."""


class RateLimiter:
    """Counts in this process."""

    def __init__(self, minute: float = MINUTE, clock: Clock = SYSTEM) -> None:
        self._minute = minute
        self._clock = clock
        self._lock = threading.Lock()
        self._taken: dict[str, deque[float]] = {}

    def acquire(self, limits: Sequence[Limit]) -> float:
        """Count a call and return 0, or return the seconds to wait."""
        now = self._clock.monotonic()
        with self._lock:
            wait = 0.0
            for name, most in limits:
                taken = self._taken.setdefault(name, deque())
                while taken and taken[0] <= now - self._minute:
                    taken.popleft()
                if len(taken) >= most:
                    wait = max(wait, taken[len(taken) - most] + self._minute - now)
            if not wait:
                for name, _ in limits:
                    self._taken[name].append(now)
            return wait

    def __deepcopy__(self, memo: dict[int, Any]) -> "RateLimiter":
        return self  # the calls of a copy go to the same service

    def __reduce__(self) -> Any:
        return RateLimiter, (self._minute,)


def wait(pacer: Pacer | None, limits: Sequence[Limit], cancel_scope: CancelScope) -> None:
    """Wait until the limits admit a call. Raises the stop of its task."""
    while pacer is not None and limits and (left := pacer.acquire(limits)) > 0:
        cancel_scope.sleep(left)


def delays(
    pacer: Pacer | None, limits: Sequence[Limit], cancel_scope: CancelScope, clock: Clock = SYSTEM
) -> Iterator[float]:
    """The same for an awaited call: yields how long to sleep by this clock, repeatedly."""
    while pacer is not None and limits and (left := pacer.acquire(limits)) > 0:
        end = clock.monotonic() + left
        while (left := end - clock.monotonic()) > 0:
            cancel_scope.check()
            yield min(left, LOOK)


class Turns:
    """The rate limits of one task's model calls."""

    clock: Clock
    cancel_scope: CancelScope
    standin: str | None = None  #: who answers what its models are asked, if not they
    limits: Mapping[str, int] = MappingProxyType({})  #: how many of whose calls
    pacing: Callable[[], Pacer | None] = staticmethod(lambda: None)
    """Gives who counts its calls, where only so many may be made in a minute."""

    def limit(self, whose: str, per_minute: int) -> None:
        """Add a limit: so many calls per minute for this agent or crew."""
        self.limits = {**self.limits, whose: per_minute}

    def wait_for_turn(self) -> None:
        """Wait until the next model call may be made."""
        if not self.limits and not caller.get().per_minute:
            return
        pacer, limits = self._pace()
        if pacer is not None:
            wait(pacer, limits, self.cancel_scope)

    def delays(self) -> Iterator[float]:
        """The same for an awaited call: yields how long to sleep by the ``clock``, repeatedly."""
        return delays(*self._pace(), self.cancel_scope, self.clock)

    def _pace(self) -> tuple[Pacer | None, list[Limit]]:
        by = caller.get()
        own = [(f"agent {by.agent}", by.per_minute)] if by.per_minute else []
        limits = [*self.limits.items(), *own]
        pacer = self.pacing() if limits and self.standin is None else None
        return pacer, limits
