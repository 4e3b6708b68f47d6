"""The connections of vendors' clients that share an event loop: thousands of calls that wait, each with one of its own.

The libraries' own pool looks at each of its connections for each request, and again for each answer.
"""

import functools
import sys
import urllib.request
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from runner.llm.clients.network import Network


def transport(client: Any, tls: Any) -> Any:
    """The transport of an asynchronous ``client``, a class derived from that of httpx or httpx2; None where the
    library's own is needed: requests go through a proxy, or the library is another one than we know."""
    if urllib.request.getproxies().keys() - {"no"}:
        return None
    library = library_of(client)
    made = library.AsyncHTTPTransport(verify=tls)
    core = sys.modules.get(library.__name__.replace("httpx", "httpcore"))
    if core is None or type(getattr(made, "_pool", None)) is not core.AsyncConnectionPool:
        return None
    made._pool = _pool(core)(
        ssl_context=tls, keepalive_expiry=library.Limits().keepalive_expiry, network_backend=Network(core)
    )
    return made


def library_of(client: Any) -> Any:
    """The library that a client's class comes from: httpx or httpx2."""
    return sys.modules[next(one.__module__ for one in client.__mro__ if one.__module__ in ("httpx", "httpx2"))]


@functools.cache
def _pool(core: Any) -> Any:
    class Pool(core.AsyncConnectionPool):  # type: ignore[misc]
        """It looks at what has lasted too long and at what it takes, and at nothing else."""

        def __init__(self, **how: Any) -> None:
            super().__init__(**how)
            self._idle: dict[Any, deque[Any]] = {}  # those of each origin; who was idle last comes last

        async def handle_async_request(self, request: Any) -> Any:
            """Send it, and give the answer's head."""
            origin = request.url.origin
            idle = self._idle.setdefault((origin.scheme, origin.host, origin.port), deque())
            while idle and idle[0].has_expired():
                await idle.popleft().aclose()
            connection = None
            while idle and connection is None:
                connection = idle.pop()
                if connection.has_expired():
                    await connection.aclose()
                    connection = None
            if connection is None:
                connection = self.create_connection(origin)
            try:
                response = await connection.handle_async_request(request)
            except BaseException:  # it has closed itself, unless it is as good as before
                if connection.is_available():
                    idle.append(connection)
                raise
            response.stream = _Body(response.stream, connection, idle)
            return response

        async def aclose(self) -> None:
            """Close those that are idle."""
            for idle in self._idle.values():
                while idle:
                    await idle.pop().aclose()
            await super().aclose()

    return Pool


class _Body:
    """The body of an answer, after which its connection is there for another request."""

    def __init__(self, stream: Any, connection: Any, idle: deque[Any]) -> None:
        self._stream, self._connection, self._idle = stream, connection, idle

    def __aiter__(self) -> AsyncIterator[bytes]:
        found: AsyncIterator[bytes] = self._stream.__aiter__()
        return found

    async def aclose(self) -> None:
        """It was read, or is left."""
        connection, self._connection = self._connection, None
        await self._stream.aclose()
        if connection is not None and connection.is_available():
            self._idle.append(connection)
