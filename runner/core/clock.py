"""The `Clock` port: the engine reads time only from the clock that it is given."""

import sys
import time
from collections.abc import Callable
from typing import Protocol

from runner.core import waiting


class Clock(Protocol):
    """Tells the time, and sleeps. All times are in seconds."""

    def now(self) -> float:
        """Return the time of day, since 1970, for leases, files and display. It may be set back."""

    def monotonic(self) -> float:
        """Return a time for measuring. It never goes back, and is the same in all processes of this machine."""

    def sleep(self, seconds: float, /) -> None:
        """Return after so many seconds."""

    def wait(self, asleep: Callable[[float], object], seconds: float, /) -> None:
        """Call ``asleep`` for so many seconds; it may return sooner."""

    async def sleep_async(self, seconds: float, /) -> None:
        """`sleep`, to be awaited under asyncio or trio."""


class SystemClock:
    """The clock of this machine."""

    # Bound as they are: reading the clock costs no call of ours, and it is read for each step.
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(waiting.sleep)

    def wait(self, asleep: Callable[[float], object], seconds: float, /) -> None:
        """Call it; it sleeps by this clock itself."""
        asleep(seconds)

    async def sleep_async(self, seconds: float, /) -> None:
        """Sleep while the loop continues."""
        import asyncio  # only a program that awaits pays for it

        try:
            asyncio.get_running_loop()
        except RuntimeError:  # the vendors' clients run under trio, too
            await sys.modules["trio"].sleep(seconds)
        else:
            await asyncio.sleep(seconds)


SYSTEM: Clock = SystemClock()
"""What is used where no other clock is given."""
