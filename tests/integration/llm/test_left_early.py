"""Streams that a client stops reading where the model wants a tool used, as google-genai does."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import pytest
import urllib3

from .wire_server import Reply, WireServer

WANTED = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "look", "args": {"i": 0}}}]}}]}
END = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}}
PIECES = [f"data: {json.dumps(one)}\r\n\r\n".encode() for one in (WANTED, END)]
BODY = json.dumps({"contents": []})
ASKED = json.dumps({"model": "gpt", "messages": []})


def with_httpx(url: str, use: Callable[[str], Any]) -> None:
    with httpx.stream("POST", url, content=BODY) as said:
        for line in said.iter_lines():
            return use(line)
    return None


def with_httpx_awaited(url: str, use: Callable[[str], Any]) -> None:
    async def read() -> None:
        async with httpx.AsyncClient() as client, client.stream("POST", url, content=BODY) as said:
            async for line in said.aiter_lines():
                return use(line)
        return None

    asyncio.run(read())


def with_urllib3(url: str, use: Callable[[str], Any]) -> None:
    with urllib3.PoolManager() as pool:
        said = pool.request("POST", url, body=BODY, preload_content=False)
        use(next(said.stream()).decode().splitlines()[0])
        said.release_conn()


def with_aiohttp(url: str, use: Callable[[str], Any]) -> None:
    async def read() -> None:
        async with aiohttp.ClientSession() as session, session.post(url, data=BODY) as said:
            use((await said.content.readline()).decode().strip())

    asyncio.run(read())


def with_aiohttp_to_its_end(url: str, use: Callable[[str], Any]) -> None:
    async def read() -> None:
        async with aiohttp.ClientSession() as session, session.post(url, data=BODY) as said:
            lines = [line.decode().strip() async for line in said.content]
            assert [line for line in lines if line] == [piece.decode().strip() for piece in PIECES]
            use(lines[0])

    asyncio.run(read())


@pytest.mark.parametrize(
    "way", [with_httpx, with_httpx_awaited, with_urllib3, with_aiohttp, with_aiohttp_to_its_end]
)  # fmt: skip
def test_a_stream_is_recorded_before_its_reader_uses_a_tool(way: Any, account: Any, attempt: Any) -> None:
    with WireServer() as wire:
        wire.reply = lambda _: Reply(pieces=PIECES, headers={"Content-Type": "text/event-stream"})
        url = wire.url.removesuffix("/v1") + "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
        found: list[tuple[str, int]] = []

        def use(line: str) -> None:
            found.append((line, len(account.recorded)))

        attempt(lambda: way(url, use))
        attempt(lambda: way(url, use))
        assert found == [(PIECES[0].decode().strip(), 1)] * 2
        assert (len(wire.log), account.in_doubt, account.tokens) == (1, 0, 7)


def unread_by_httpx(url: str) -> None:
    with httpx.stream("POST", url, content=ASKED):
        pass


def unread_by_httpx_awaited(url: str) -> None:
    async def go() -> None:
        async with httpx.AsyncClient() as client, client.stream("POST", url, content=ASKED):
            pass

    asyncio.run(go())


def unread_by_urllib3(url: str) -> None:
    with urllib3.PoolManager() as pool:
        pool.request("POST", url, body=ASKED, preload_content=False).release_conn()


def unread_by_aiohttp(url: str) -> None:
    async def go() -> None:
        async with aiohttp.ClientSession() as session, session.post(url, data=ASKED):
            pass

    asyncio.run(go())


@pytest.mark.parametrize("way", [unread_by_httpx, unread_by_httpx_awaited, unread_by_urllib3, unread_by_aiohttp])
def test_a_whole_answer_is_recorded_whether_it_is_read_or_not(way: Any, account: Any, attempt: Any) -> None:
    with WireServer() as wire:
        attempt(lambda: way(wire.chat))
        assert (account.paid.total(), account.in_doubt, account.tokens) == (1, 0, 7)
        attempt(lambda: way(wire.chat))
        assert len(wire.log) == 1
