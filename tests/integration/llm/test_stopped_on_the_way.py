"""A call that is cancelled, or waits no longer, at each point of its way: in doubt from where it leaves on."""

import asyncio
import contextlib
import gc
import socket
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import urllib3

from .clients import ASKED, CLIENTS, Given
from .wire_server import EVENTS, Reply, WireServer

NO_CONNECTION = (OSError, httpx.ConnectTimeout, httpx2.ConnectTimeout, urllib3.exceptions.HTTPError)
Passed = Callable[[], None]


async def with_aiohttp(url: str, passed: Passed) -> None:
    async with aiohttp.ClientSession() as session, session.post(url, json=ASKED) as said:
        async for _ in said.content.iter_any():
            passed()


def with_httpx(library: Any) -> Callable[[str, Passed], Awaitable[None]]:
    async def call(url: str, passed: Passed) -> None:
        async with library.AsyncClient(timeout=20) as client, client.stream("POST", url, json=ASKED) as said:
            async for _ in said.aiter_bytes():
                passed()

    return call


WAYS = {"aiohttp": with_aiohttp, "httpx": with_httpx(httpx), "httpx2": with_httpx(httpx2)}


@contextlib.contextmanager
def silent(has_come: threading.Event) -> Iterator[str]:
    """Takes a connection and says nothing: a client that wants TLS of it waits."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                taken.append(listening.accept()[0])
                has_come.set()

        threading.Thread(target=accept, daemon=True).start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}/v1/chat/completions"
        for one in taken:
            one.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", ["before it is connected", "when it is sent", "in the middle of its answer"])
def test_one_that_is_cancelled(point: str, way: str, account: Any, attempt: Any) -> None:
    there = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield EVENTS[0]
        wire.over.wait(20)

    def reply(number: int) -> Reply:
        if point == "when it is sent":
            there.set()
            return Reply(hangs=True)
        return Reply(pieces=pieces(), headers={"Content-Type": "text/event-stream"})

    async def go(url: str) -> None:
        call = asyncio.ensure_future(WAYS[way](url, there.set))
        await asyncio.to_thread(there.wait, 20)
        call.cancel()
        await call

    with WireServer() as wire, silent(there) as nothing:
        wire.reply = reply
        url = nothing if point == "before it is connected" else wire.chat
        with pytest.raises(asyncio.CancelledError):
            attempt(lambda: asyncio.run(go(url)))
        asked = len(wire.log)
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # asyncio leaves the transport of a connection that is cancelled while it is made to this
    assert (asked, account.paid.total(), account.in_doubt) == ((0, 0, 0) if url == nothing else (1, 0, 1))


@pytest.mark.parametrize("client", [name for name in CLIENTS if not name.startswith("botocore")])
def test_one_that_gets_no_connection_in_time_is_not_in_doubt(client: str, account: Any, attempt: Any) -> None:
    with silent(threading.Event()) as url, pytest.raises(NO_CONNECTION):
        attempt(lambda: CLIENTS[client](Given(url, timeout=0.5)))
    assert (account.recorded, account.open.total(), account.in_doubt) == ({}, 0, 0)
