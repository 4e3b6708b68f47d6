"""How long to wait before the next attempt."""

import random

LONGEST = 300.0


def delay(failures: int, first: float, rand: random.Random | None = None) -> float:
    """The retry delay of attempt ``failures + 1``, in seconds: doubling from ``first``, at most 300; half jitter."""
    whole = min(first * 2.0 ** min(failures - 1, 30), LONGEST)
    return whole / 2 + (rand or random.Random()).uniform(0, whole / 2)
