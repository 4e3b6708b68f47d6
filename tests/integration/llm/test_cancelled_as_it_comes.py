"""A call that its own code cancels in the turn of its loop in which its answer comes is recorded, and paid once."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest

from runner.journal import end_order

from ...support.same_turn import strike
from .clients import ASKED
from .conftest import GPT
from .wire_server import CHAT

Call = Callable[[str], Awaitable[str]]


async def with_aiohttp(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.post(url, json=ASKED) as said:
        return await said.text()


def with_httpx(library: Any) -> Call:
    async def call(url: str) -> str:
        async with library.AsyncClient(timeout=20) as client:
            return str((await client.post(url, json=ASKED)).text)

    return call


WAYS: dict[str, Call] = {"aiohttp": with_aiohttp, "httpx": with_httpx(httpx), "httpx2": with_httpx(httpx2)}


class Server:
    """Sends each answer, head and body, at once."""

    def __init__(self, status: str, kind: str) -> None:
        body = json.dumps(CHAT).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._answer, self.requests, self.open = head.encode() + body, 0, 0
        self.port = 0  # until it has one, which it keeps: a call is known by its address

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        self.requests += 1
        writer.write(self._answer)
        await reader.read()
        writer.close()
        self.open -= 1


async def go(way: Call, server: Server, *, is_cancelled: bool = True) -> str:
    """Make a call, which is cancelled as its answer comes, or as it waits to be."""
    async with await asyncio.start_server(server.serve, "127.0.0.1", server.port) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        call = asyncio.ensure_future(way(f"http://127.0.0.1:{server.port}/v1/chat/completions"))
        before = server.requests
        if not is_cancelled:
            return await call
        found = await strike(call, None, lambda: server.requests > before or end_order.WAIT == 0)
        async with asyncio.timeout(20):
            while server.open:
                await asyncio.sleep(0.001)
        return found


@pytest.mark.parametrize("way", WAYS)
def test_its_answer_is_recorded_and_a_replay_is_cancelled_there_too(
    way: str, account: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server("200 OK", "application/json")
    made = partial(go, WAYS[way], server)
    monkeypatch.setattr(end_order, "PATIENCE", 0.2)
    assert attempt(lambda: asyncio.run(made())) == "cancelled"
    assert (server.requests, account.paid[GPT], account.in_doubt) == (1, 1, 0)
    # When it is replayed: it waits to be cancelled, and is
    monkeypatch.setattr(end_order, "WAIT", 0)
    assert attempt(lambda: asyncio.run(made())) == "cancelled"
    # Or it is not, and has its answer
    assert attempt(lambda: asyncio.run(made(is_cancelled=False))) == json.dumps(CHAT)
    assert (server.requests, account.paid[GPT], account.in_doubt) == (1, 1, 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("answer", [("200 OK", "text/event-stream"), ("404 Not Found", "application/json")])
def test_one_that_is_not_read_before_its_reader_has_it_is_let_go(
    answer: tuple[str, str], way: str, account: Any, attempt: Any
) -> None:
    server = Server(*answer)
    assert attempt(lambda: asyncio.run(go(WAYS[way], server))) == "cancelled"
    assert (server.requests, server.open, account.paid[GPT]) == (1, 0, 0)
    assert account.in_doubt == (answer[0] == "200 OK")
