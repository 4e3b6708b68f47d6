"""A lock that is released in a forked child."""

import os
import threading
from typing import Any

_generation = 0  # how many forks lie between the first process and this one
_guard = threading.Lock()


class ForkSafeLock:
    """A reentrant lock. In a forked child it is free, even if another thread of the parent held it.

    So the child may see the protected data half changed, and must tolerate that.
    """

    def __init__(self) -> None:
        self._made = _generation
        self._held = (_generation, threading.RLock())

    def _current(self) -> Any:
        generation, lock = self._held
        if generation != _generation:
            with _guard:
                if self._held[0] != _generation:
                    self._held = (_generation, threading.RLock())
                lock = self._held[1]
        return lock

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it, as `threading.RLock.acquire` does."""
        return bool(self._current().acquire(blocking, timeout))

    def release(self) -> None:
        """Release it once."""
        try:
            self._current().release()
        except RuntimeError:
            if self._made == _generation:
                raise  # else it was taken before the fork: the child's is open already

    def __enter__(self) -> "ForkSafeLock":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _in_child() -> None:
    global _generation, _guard
    _generation += 1
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_in_child)
