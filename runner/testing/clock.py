"""Simulated time, for the engine and a store in memory."""

from collections.abc import Callable

START = 1_700_000_000  #: seconds since 1970


class ManualClock:
    """A `runner.engine.ports.Clock` that moves only when a test advances it, or when code sleeps on it.

    Time is counted in nanoseconds, so it stays exact however often it advances.
    """

    def __init__(self, start: float = START) -> None:
        self._ns = round(start * 1e9)

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self._ns / 1e9

    def monotonic(self) -> float:
        """Return the same time."""
        return self._ns / 1e9

    def advance(self, seconds: float) -> None:
        """Advance the clock by ``seconds``."""
        self._ns += round(seconds * 1e9)

    def sleep(self, seconds: float, /) -> None:
        """Advance by ``seconds``, without waiting."""
        self.advance(seconds)

    def wait(self, asleep: Callable[[float], object], seconds: float, /) -> None:  # noqa: ARG002 - the port's names
        """Advance by ``seconds``, without waiting."""
        self.advance(seconds)

    async def sleep_async(self, seconds: float, /) -> None:
        """Advance by ``seconds``, without waiting."""
        self.advance(seconds)
