"""Waiting for what must come, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], what: str, *, within: float = 30.0, every: float = 0.005) -> T:
    """The first true answer of ``look``. Raises TimeoutError."""
    end = time.monotonic() + within
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"not within {within:g} s: {what}")
        time.sleep(every)
