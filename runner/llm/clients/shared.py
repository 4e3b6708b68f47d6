"""Keeps vendors' clients: one per process for blocking calls, several for coroutines whose tasks share an event loop.

A client searches all of its connections for each request. So there are several, each for a few calls
at a time; they share one TLS context, which takes a megabyte and tens of milliseconds to create.
"""

import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import anyio

from runner.core import waiting
from runner.llm.clients.model_names import Target

C = TypeVar("C")

AT_ONCE = 16  #: calls of one client: its search costs as much for each as a sixteenth of another client


def arguments(target: Target, timeout: float | None, max_retries: int) -> dict[str, Any]:
    """Return the arguments with which a vendor's client is created."""
    about = {"api_key": target.api_key, "base_url": target.base_url, "max_retries": max_retries}
    return about if timeout is None else {**about, "timeout": timeout}


class OwnClient(Generic[C]):
    """Keeps the client for blocking calls: one for each process, because its connections do not work in a fork."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._made: tuple[int, C] | None = None

    def get(self) -> C:
        """Return this process's client, which is closed when this object is no longer used."""
        if self._made is None or self._made[0] != os.getpid():
            self._made = (os.getpid(), self._make())
            weakref.finalize(self, _close, *self._made).atexit = False
        return self._made[1]


def _close(pid: int, client: Any) -> None:
    if pid == os.getpid():
        client.close()


class SharedClients:
    """The clients of one model of one service. ``make`` creates one, with further arguments."""

    def __init__(self, make: Callable[..., Any], http: Any) -> None:
        self._make, self._http = make, http
        self._with_room: list[list[Any]] = []  # clients, and how many calls each has in flight; others are in use

    def one(self) -> Any:
        """Provide a client for one call: its own, unless the event loop is shared by many tasks."""
        return _ForOneCall(self._take(), self._with_room) if waiting.is_shared_loop() else self._make()

    def _take(self) -> list[Any]:
        kept = self._free()
        kept[1] += 1
        if kept[1] == AT_ONCE:
            self._with_room.remove(kept)
        return kept

    def warm(self) -> Any:
        """Create a client, and import what an event loop needs for its first connection. Not for the loop's thread."""
        anyio.run(anyio.sleep, 0)
        client, _ = self._free()
        return client

    def _free(self) -> list[Any]:
        """Return a client with room for a call, and the number of calls in flight there."""
        kept = next(iter(self._with_room), None)
        if kept is None:
            kept = [self._make(http_client=self._http(verify=_tls(self._http))), 0]
            self._with_room.append(kept)
        return kept


class _ForOneCall:
    """A client that others use, too. (A generator would take 500 bytes more of each agent that waits.)"""

    __slots__ = ("_kept", "_with_room")

    def __init__(self, kept: list[Any], with_room: list[list[Any]]) -> None:
        self._kept, self._with_room = kept, with_room

    async def __aenter__(self) -> Any:
        return self._kept[0]

    async def __aexit__(self, *_: object) -> None:
        if self._kept[1] == AT_ONCE:
            self._with_room.append(self._kept)
        self._kept[1] -= 1


@functools.cache
def _tls(http: Any) -> Any:
    """Create a TLS context as the library itself does."""
    library = next(one.__module__ for one in http.__mro__ if one.__module__ in ("httpx", "httpx2"))
    return sys.modules[library].create_ssl_context()
