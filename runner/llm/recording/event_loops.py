"""A client of httpx that a library, or a file, keeps for the process has connections of the event loop that uses it.

Each task may have a loop of its own, and leave it open; another loop may be shared by many, and run beside it.
"""

import asyncio
import copy
import threading
import weakref
from typing import Any

_lock = threading.Lock()


def follow_loop(transport: Any) -> None:
    """See to it that the transport uses none of another loop's connections: they can neither be used nor closed here.

    Those of a loop that has ended are dropped.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # another kind of loop
        return
    before = vars(transport).get("used_in")
    if before is not None and before() is loop:
        return
    with _lock:  # two loops may use it for the first time at once
        before = vars(transport).get("used_in")
        if before is not None:
            pool, opened_in = getattr(transport, "_pool", None), before()
            if isinstance(pool, _PoolOfEachLoop):
                return
            if opened_in is not None and opened_in.is_running():
                if hasattr(pool, "_connections"):
                    transport._pool = _PoolOfEachLoop(pool, opened_in)
                return
            connections = getattr(pool, "_connections", None)
            if isinstance(connections, list):
                connections.clear()
        transport.used_in = weakref.ref(loop)


class _PoolOfEachLoop:
    """Pools of connections alike, one for each loop that runs: it is whichever belongs to the loop that asks."""

    def __init__(self, first: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._first, self._by_loop = first, {loop: first}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._here(), name)

    def _here(self) -> Any:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._first
        with _lock:
            if loop not in self._by_loop:
                self._by_loop = {one: pool for one, pool in self._by_loop.items() if one.is_running()}
                self._by_loop[loop] = _empty(self._first)
            return self._by_loop[loop]


def _empty(pool: Any) -> Any:
    """A pool like this one, without its connections."""
    made = copy.copy(pool)
    made._connections, made._requests = [], []
    made._optional_thread_lock = type(pool._optional_thread_lock)()
    return made
