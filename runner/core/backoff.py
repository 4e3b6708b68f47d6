"""Retry delays: for tasks, model calls, and loops that poll a server."""

import random

LONGEST = 300.0


def delay(failures: int, first: float, rand: random.Random | None = None, *, most: float = LONGEST) -> float:
    """Return the retry delay after so many failures, in seconds: doubled from ``first`` to ``most``, half jittered."""
    whole = min(first * 2.0 ** min(failures - 1, 30), most)
    return whole / 2 + (rand or random.Random()).uniform(0, whole / 2)


class Backoff:
    """The growing delays of a loop that retries, jittered so that thousands of clients do not return together."""

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most, self._failures = first, most, 0

    def pause(self) -> float:
        """Return the seconds until the next attempt, after another failure."""
        self._failures += 1
        return delay(self._failures, self._first, most=self._most)

    def reset(self) -> None:
        """An attempt succeeded."""
        self._failures = 0


def jittered(period: float) -> float:
    """Return a pause of ``period`` seconds, up to a quarter shorter or longer, so that many loops do not coincide."""
    return random.uniform(0.75, 1.25) * period
