"""The pause before the next attempt: of a task, of a call, of a loop that polls a server."""

import random

LONGEST = 300.0


def delay(failures: int, first: float, rand: random.Random | None = None, *, most: float = LONGEST) -> float:
    """The retry delay of attempt ``failures + 1``, in seconds: doubling from ``first`` to ``most``; half jitter."""
    whole = min(first * 2.0 ** min(failures - 1, 30), most)
    return whole / 2 + (rand or random.Random()).uniform(0, whole / 2)


class Backoff:
    """The pauses of a loop that tries again.

    They grow, so that a server which is away for long is not asked all the time, and are jittered, so that thousands
    who lost it at one moment do not all ask at one moment when it is back.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most, self._failures = first, most, 0

    def pause(self) -> float:
        """Seconds until the next attempt, after one more that failed."""
        self._failures += 1
        return delay(self._failures, self._first, most=self._most)

    def reset(self) -> None:
        """An attempt succeeded."""
        self._failures = 0


def jittered(period: float) -> float:
    """A pause of ``period`` seconds on average, up to a quarter shorter or longer: those of many do not coincide."""
    return random.uniform(0.75, 1.25) * period
