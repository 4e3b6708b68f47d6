"""The connections of clients that share an event loop: what servers and models do to them, and what they cost."""

import asyncio
import contextlib
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runner.llm.clients.connections import transport

from ...support.certificates import self_signed
from ...support.later import Later

httpx = Later("httpx2")

Handler = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Served:
    """A server, and what came to it."""

    def __init__(self) -> None:
        self.url, self.requests, self.connections, self.closed = "", list[bytes](), 0, 0


@contextlib.asynccontextmanager
async def served(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    found, at_work = Served(), set[asyncio.Task[Any]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        at_work.add(me)
        found.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
                found.requests.append(head + body)
                await handler(body, reader, writer)
        found.closed += 1
        writer.close()
        at_work.discard(me)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls, backlog=1000)
    found.url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat"
    try:
        yield found
    finally:
        server.close()
        for task in list(at_work):
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def answer(writer: asyncio.StreamWriter, body: bytes, more: str = "") -> None:
    writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body)
    await writer.drain()


async def echo(body: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await answer(writer, body)


@contextlib.asynccontextmanager
async def client(tls: ssl.SSLContext | None = None, **how: Any) -> AsyncIterator[Any]:
    ours = transport(httpx.AsyncClient, tls or ssl.create_default_context())
    assert ours is not None
    async with httpx.AsyncClient(transport=ours, **{"timeout": 20.0, **how}) as found:
        yield found


async def eventually(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, and of clients that trust it."""
    certificate, key = self_signed(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=str(certificate))


def test_each_call_that_waits_has_a_connection_and_later_ones_use_them_again() -> None:
    async def run() -> None:
        together = asyncio.Barrier(40)

        async def waits(body: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await together.wait()
            await answer(writer, body)

        async with served(waits) as server, client() as asks:
            for _ in range(3):
                answers = await asyncio.gather(*(asks.post(server.url, json=number) for number in range(40)))
                assert [one.json() for one in answers] == list(range(40))
            assert server.connections == 40

    asyncio.run(run())


def test_what_a_request_costs_does_not_depend_on_how_many_wait() -> None:
    async def calls(waiting: int) -> int:
        free, counted = asyncio.Event(), 0

        async def waits(body: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if body == b'"waits"':
                await free.wait()
            await answer(writer, body)

        def count(frame: Any, event: str, _: object) -> None:
            nonlocal counted
            of = frame.f_code.co_filename
            counted += event == "call" and ("httpcore2" in of or "connections.py" in of or "network.py" in of)

        async with served(waits) as server, client() as asks:
            others = [asyncio.create_task(asks.post(server.url, json="waits")) for _ in range(waiting)]
            await eventually(lambda: len(server.requests) == waiting)
            await asks.post(server.url, json="first")
            before = sys.getprofile()
            sys.setprofile(count)
            try:
                await asks.post(server.url, json="counted")
            finally:
                sys.setprofile(before)
            free.set()
            await asyncio.gather(*others)
        return counted

    assert asyncio.run(calls(2)) == asyncio.run(calls(120)) <= 130


def test_the_same_bytes_leave_as_by_the_library_alone() -> None:
    async def run() -> None:
        async with served(echo) as server:
            said = {"model": "m", "messages": [{"role": "user", "content": "ä" * 1000}]}
            async with client() as ours, httpx.AsyncClient() as theirs:
                for one in (ours, theirs):
                    assert (await one.post(server.url, json=said, headers={"X-Some": "thing"})).json() == said
            assert server.requests[0] == server.requests[1]

    asyncio.run(run())


@pytest.mark.parametrize("encrypted", [False, True])
def test_large_bodies_pass_both_ways_whoever_is_slow(encrypted: bool, tls: Any) -> None:
    large = json.dumps("x" * 3_000_000).encode()

    async def slowly(body: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        await answer(writer, body)

    async def run() -> None:
        async with served(slowly, tls[0] if encrypted else None) as server, client(tls[1]) as asks:
            for _ in range(2):
                async with asks.stream("POST", server.url, content=large) as response:
                    await asyncio.sleep(0.05)  # more comes than is read
                    assert b"".join([piece async for piece in response.aiter_bytes(10_000)]) == large
            assert server.connections == 1

    asyncio.run(run())


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_connection_that_was_closed_while_idle_is_not_used(encrypted: bool, tls: Any) -> None:
    async def closes(body: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(writer, body)
        writer.close()

    async def run() -> None:
        async with served(closes, tls[0] if encrypted else None) as server, client(tls[1]) as asks:
            for number in range(5):
                assert (await asks.post(server.url, json=number)).json() == number
                (idle,) = asks._transport._pool._idle.values()
                await eventually(lambda idle=idle: idle[0].has_expired())
            assert server.connections == 5

    asyncio.run(run())


def test_an_answer_that_ends_with_its_connection_is_whole() -> None:
    async def closes(_: bytes, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"x" * 300_000)
        await writer.drain()
        writer.close()

    async def run() -> None:
        async with served(closes) as server, client() as asks:
            assert len((await asks.post(server.url, json=1)).content) == 300_000

    asyncio.run(run())


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_breaks_is_an_error_of_the_library(encrypted: bool, tls: Any) -> None:
    async def breaks(body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if body == b'"half"':
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
            await writer.drain()
        if body != b'"late"':
            writer.transport.abort()
            return
        await reader.read(1)

    async def run() -> None:
        async with served(breaks, tls[0] if encrypted else None) as server, client(tls[1]) as asks:
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                await asks.post(server.url, json="half")
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                await asks.post(server.url, json="none")
            with pytest.raises(httpx.ReadTimeout):
                await asks.post(server.url, json="late", timeout=httpx.Timeout(20.0, read=0.05))
            await eventually(lambda: server.closed == server.connections == 3)
        with pytest.raises(httpx.ConnectError):
            async with client(tls[1]) as asks:
                await asks.post(server.url, json="nobody is there")

    asyncio.run(run())


def test_who_cannot_be_trusted_is_told_nothing(tls: Any) -> None:
    async def run() -> None:
        async with served(echo, tls[0]) as server:
            async with client(ssl.create_default_context()) as asks:
                with pytest.raises(httpx.ConnectError, match="certificate"):
                    await asks.post(server.url, json=1)
            async with client(tls[1]) as asks:
                with pytest.raises(httpx.ConnectError, match="certificate"):
                    await asks.post(server.url, json=1, extensions={"sni_hostname": "another.example"})
                assert (await asks.post(server.url, json=1)).json() == 1
            assert len(server.requests) == 1

    asyncio.run(run())


def test_who_does_not_shake_hands_is_late() -> None:
    async def run() -> None:
        left = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1000):
                pass
            writer.close()
            left.set()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with client() as asks:
            with pytest.raises(httpx.ConnectTimeout):
                await asks.post(url, json=1, timeout=httpx.Timeout(20.0, connect=0.05))
        await asyncio.wait_for(left.wait(), 20)
        server.close()

    asyncio.run(run())


def test_a_call_that_is_left_closes_its_connection() -> None:
    async def run() -> None:
        begun = asyncio.Event()

        async def waits(body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if body == b'"waits"':
                begun.set()
                assert await reader.read(1) == b""
                raise ConnectionResetError
            await answer(writer, body)

        async with served(waits) as server, client() as asks:
            call = asyncio.create_task(asks.post(server.url, json="waits"))
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await eventually(lambda: server.closed == 1)
            assert (await asks.post(server.url, json=1)).json() == 1

    asyncio.run(run())


def test_idle_connections_are_closed_when_they_have_lasted_long() -> None:
    async def run() -> None:
        together = asyncio.Barrier(5)

        async def waits(body: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if body != b'"alone"':
                await together.wait()
            await answer(writer, body)

        async with served(waits) as server, client() as asks:
            asks._transport._pool._keepalive_expiry = 0.05
            await asyncio.gather(*(asks.post(server.url, json=number) for number in range(5)))
            await asyncio.sleep(0.1)
            await asks.post(server.url, json="alone")
            assert server.connections == 6
            await eventually(lambda: server.closed == 5)

    asyncio.run(run())


def test_where_there_is_a_proxy_the_library_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert transport(httpx.AsyncClient, ssl.create_default_context()) is None
