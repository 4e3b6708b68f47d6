"""Vendors' clients that are awaited, where many tasks share one event loop: they are kept, and shared, too.

There is one TLS context for all, which takes a megabyte and tens of milliseconds to make. Where requests go through a
proxy, a client looks through all of its connections for each: then there are several, each for a few calls at a time.
"""

import contextlib
import functools
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio

from runner.core import waiting
from runner.llm.clients.connections import library_of, transport

AT_ONCE = 64  #: calls of one client that looks through its connections


class SharedClients:
    """The clients of one model of one service. ``make`` makes one, given more of its arguments."""

    def __init__(self, make: Callable[..., Any], http: Any) -> None:
        self._make, self._http = make, http
        self._at_once: float = AT_ONCE
        self._kept: list[list[Any]] = []  # clients, and how many calls each has in flight

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """A client for one call: of this call alone, unless the event loop is there for many."""
        if not waiting.is_shared_loop():
            async with self._make() as client:
                yield client
            return
        kept = self._free()
        kept[1] += 1
        try:
            yield kept[0]
        finally:
            kept[1] -= 1

    def warm(self) -> Any:
        """A client, made now; and what an event loop imports with its first connection. Not for the loop's thread."""
        anyio.run(anyio.sleep, 0)
        client, _ = self._free()
        return client

    def _free(self) -> list[Any]:
        """One of the clients that have room for a call, and how many are in flight there."""
        kept = next((one for one in self._kept if one[1] < self._at_once), None)
        if kept is None:
            tls = _tls(self._http)
            how: dict[str, Any] = {"verify": tls}
            if (ours := transport(self._http, tls)) is not None:
                how["transport"], self._at_once = ours, math.inf
            kept = [self._make(http_client=self._http(**how)), 0]
            self._kept.append(kept)
        return kept


@functools.cache
def _tls(http: Any) -> Any:
    """As the library itself makes one."""
    return library_of(http).create_ssl_context()
