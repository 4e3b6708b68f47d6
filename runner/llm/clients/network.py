"""The network of vendors' clients that share an event loop: asyncio's own, beneath httpcore or httpcore2.

What these have themselves works with any event loop, by a library that has a scope, an event and a task for each wait:
a third of what a call costs. Here a wait is a future, and the time that it may take a timer.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

NEXT_ADDRESS = 0.25  #: seconds until another address of a host is tried, too, as RFC 8305 recommends
PIECE = 65536  #: bytes that are read at a time where all is encrypted
AHEAD = 262144  #: bytes that came and were not asked for, beyond which nothing is read


class Network:
    """A network backend. ``core`` is the library: httpcore or httpcore2."""

    def __init__(self, core: Any) -> None:
        self._core = core

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> "Stream":
        """Connect to a host, by whichever of its addresses answers."""
        loop, core = asyncio.get_running_loop(), self._core
        how: dict[str, Any] = {} if _is_address(host) else {"happy_eyeballs_delay": NEXT_ADDRESS}
        if local_address is not None:
            how["local_addr"] = (local_address, 0)
        try:
            async with asyncio.timeout(timeout):
                _, stream = await loop.create_connection(partial(Stream, core, loop), host, port, **how)
        except TimeoutError as error:
            raise core.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise core.ConnectError(str(error)) from error
        for option in socket_options or ():
            stream.get_extra_info("socket").setsockopt(*option)
        return stream

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Stream(asyncio.Protocol):
    """A connection: a protocol of asyncio, and a network stream of the library."""

    def __init__(self, core: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._core, self._loop = core, loop
        self._transport: Any = None
        self._received = bytearray()
        self._is_over = self._is_full = self._has_paused = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[bool] | None = None
        self._writer: asyncio.Future[bool] | None = None

    # -- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Something came."""
        self._received += data
        if len(self._received) > AHEAD:
            self._has_paused = True
            self._transport.pause_reading()
        _end(self._reader)

    def eof_received(self) -> None:
        """Nothing more will come. What has come can be read still; asyncio closes it."""
        self._is_over = True
        _end(self._reader)

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed."""
        self._is_over, self._error = True, error or self._error
        _end(self._reader)
        _end(self._writer)

    def pause_writing(self) -> None:
        """The other side does not keep up."""
        self._is_full = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self._is_full = False
        _end(self._writer)

    # -- for the library

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What came; nothing when it has ended."""
        if not self._received and not self._is_over:
            self._reader = self._loop.create_future()
            await self._until(self._reader, timeout, self._core.ReadTimeout)
        if not self._received and self._error is not None:
            raise self._core.ReadError(str(self._error)) from self._error
        piece = bytes(self._received[:max_bytes])
        del self._received[:max_bytes]
        if self._has_paused and not self._received:
            self._has_paused = False
            self._transport.resume_reading()
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send it: all of it has left, or is about to."""
        if not self._is_over and buffer:
            self._transport.write(buffer)
            if self._is_full and not self._is_over:
                self._writer = self._loop.create_future()
                await self._until(self._writer, timeout, self._core.WriteTimeout)
        if self._is_over:
            raise self._core.WriteError(str(self._error or "it was closed")) from self._error

    async def _until(self, over: "asyncio.Future[bool]", timeout: float | None, late: Callable[[], Exception]) -> None:
        timer = None if timeout is None else self._loop.call_later(timeout, _end, over, False)
        try:
            if not await over:
                raise late()
        finally:
            if timer is not None:
                timer.cancel()

    async def aclose(self) -> None:
        """Close it at once: what has not left does not leave."""
        self._transport.abort()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "TlsStream":
        """The same connection, encrypted."""
        core, stream = self._core, TlsStream(self, self._core, ssl_context, server_hostname)
        try:
            async with asyncio.timeout(timeout):
                await stream.shake_hands()
        except BaseException as error:
            await self.aclose()
            if isinstance(error, TimeoutError):
                raise core.ConnectTimeout(str(error)) from error
            if isinstance(error, core.NetworkError | ssl.SSLError):
                raise core.ConnectError(str(error)) from error
            raise
        return stream

    def get_extra_info(self, info: str) -> Any:
        """What the library asks of a connection, by its names."""
        if info == "is_readable":
            return self._is_over or bool(self._received)
        named = {"client_addr": "sockname", "server_addr": "peername", "socket": "socket"}.get(info)
        return None if named is None else self._transport.get_extra_info(named)


def _end(over: "asyncio.Future[bool] | None", in_time: bool = True) -> None:
    if over is not None and not over.done():
        over.set_result(in_time)


class TlsStream:
    """An encrypted connection. asyncio's own has a buffer of 256 KB for each."""

    def __init__(self, inner: Stream, core: Any, context: ssl.SSLContext, host: str | None) -> None:
        self._inner, self._core = inner, core
        self._came, self._leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._came, self._leaves, server_hostname=host)

    async def shake_hands(self) -> None:
        """Agree on how it is encrypted, and check who the other side is. Raises `ssl.SSLError`."""
        await self._do(self._object.do_handshake, None)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What came; nothing when it has ended."""
        try:
            return await self._do(partial(self._object.read, max_bytes), timeout)
        except ssl.SSLEOFError:  # it was closed without a word, as many servers do: HTTP itself says what is whole
            return b""
        except ssl.SSLError as error:
            raise self._core.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send it."""
        rest = memoryview(buffer)
        try:
            while rest:
                rest = rest[await self._do(partial(self._object.write, rest), timeout) :]
        except ssl.SSLError as error:
            raise self._core.WriteError(str(error)) from error

    async def _do(self, do: Callable[[], T], timeout: float | None) -> T:
        while True:
            try:
                found = do()
            except ssl.SSLWantReadError:
                await self._send(timeout)
                if piece := await self._inner.read(PIECE, timeout):
                    self._came.write(piece)
                else:
                    self._came.write_eof()
            else:
                await self._send(timeout)
                return found

    async def _send(self, timeout: float | None) -> None:
        if self._leaves.pending:
            await self._inner.write(self._leaves.read(), timeout)

    async def aclose(self) -> None:
        """Close it."""
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        """What the library asks of a connection, by its names."""
        return self._object if info == "ssl_object" else self._inner.get_extra_info(info)
