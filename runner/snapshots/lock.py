"""The lock of a state: reentrant, safe to fork, and with priority for signals."""

import contextlib
import threading
from collections.abc import Iterator

from runner.core.fork_safe_lock import ForkSafeLock

_PATIENCE = 1.0  #: seconds that others let an urgent holder go first


class StateLock(ForkSafeLock):
    """A lock of the state in which a thread that must write because of a signal goes first.

    Tasks that write checkpoints in quick succession take the lock again as soon as they release it, so such a thread
    would wait for long.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owner = 0
        self._depth = 0
        self._hurried = 0
        self._no_hurry = threading.Event()
        self._no_hurry.set()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it, as `threading.RLock.acquire` does."""
        me = threading.get_ident()
        if not self._no_hurry.is_set() and me not in (self._owner, self._hurried):
            self._no_hurry.wait(_PATIENCE)
        if not super().acquire(blocking, timeout):
            return False
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        """Release it once."""
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
        super().release()

    @contextlib.contextmanager
    def hurried(self) -> Iterator[None]:
        """Hold it with priority over other waiting threads. For one thread of the process at a time."""
        self._hurried = threading.get_ident()
        self._no_hurry.clear()
        try:
            with self:
                yield
        finally:
            self._no_hurry.set()
