"""Simulated time, for the engine and a store in memory."""

from collections.abc import Callable

START = 1_700_000_000  #: seconds since 1970


class ManualClock:
    """A `runner.engine.ports.Clock` that advances only when told to, or when code sleeps on it: then at once.

    Counted in nanoseconds, so that it is exact however often it advances.
    """

    def __init__(self, start: float = START) -> None:
        self._ns = round(start * 1e9)

    def now(self) -> float:
        """The time, in seconds since 1970."""
        return self._ns / 1e9

    def monotonic(self) -> float:
        """The same."""
        return self._ns / 1e9

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._ns += round(seconds * 1e9)

    def sleep(self, seconds: float, /) -> None:
        """Advance by ``seconds``, without waiting."""
        self.advance(seconds)

    def wait(self, asleep: Callable[[float], object], seconds: float, /) -> None:  # noqa: ARG002 - the port's names
        """The same."""
        self.advance(seconds)

    async def sleep_async(self, seconds: float, /) -> None:
        """The same."""
        self.advance(seconds)
