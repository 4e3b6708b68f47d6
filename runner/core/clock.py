"""The `Clock` port: the engine reads time only from the clock that it is given."""

import sys
import time
from collections.abc import Callable
from typing import Protocol

from runner.core import waiting


class Clock(Protocol):
    """What time it is, and how to let some of it pass. All of it is in seconds."""

    def now(self) -> float:
        """The time of day, since 1970: of leases, of files, of what people read. It may be set back."""

    def monotonic(self) -> float:
        """The time since some moment: to measure with. It never goes back, and is the same in all processes here."""

    def sleep(self, seconds: float, /) -> None:
        """Return when so much has passed."""

    def wait(self, asleep: Callable[[float], object], seconds: float, /) -> None:
        """Let so much pass in a call of ``asleep``, which may return sooner."""

    async def sleep_async(self, seconds: float, /) -> None:
        """The same as `sleep` for who awaits it, under asyncio or trio."""


class SystemClock:
    """The time of this machine."""

    # Bound as they are: reading the clock costs no call of ours, and it is read for each step.
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(waiting.sleep)

    def wait(self, asleep: Callable[[float], object], seconds: float, /) -> None:
        """It sleeps by this time itself."""
        asleep(seconds)

    async def sleep_async(self, seconds: float, /) -> None:
        """Let the loop run meanwhile."""
        import asyncio  # only a program that awaits pays for it

        try:
            asyncio.get_running_loop()
        except RuntimeError:  # the vendors' clients run under trio, too
            await sys.modules["trio"].sleep(seconds)
        else:
            await asyncio.sleep(seconds)


SYSTEM: Clock = SystemClock()
"""What is used where no other clock is given."""
