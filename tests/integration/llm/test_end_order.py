"""Concurrent calls of models that are replayed end in the order in which they were answered."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import httpx
import pytest

from runner.testing import ModelServer

Take = Callable[[str], None]


def body(name: str, stream: bool) -> dict[str, Any]:
    return {"model": "gpt", "messages": [{"role": "user", "content": name}], "stream": stream}


def with_httpx(url: str, stream: bool, take: Take) -> None:
    def ask(name: str) -> None:
        with httpx.stream("POST", url, json=body(name, stream), timeout=60) as answer:
            answer.read()
        take(name)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(ask, "abc"))


def with_httpx_awaited(url: str, stream: bool, take: Take) -> None:
    async def ask(client: httpx.AsyncClient, name: str) -> None:
        async with client.stream("POST", url, json=body(name, stream)) as answer:
            await answer.aread()
        take(name)

    async def all_at_once() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            await asyncio.gather(*[ask(client, name) for name in "abc"])

    asyncio.run(all_at_once())


def with_aiohttp(url: str, stream: bool, take: Take) -> None:
    async def ask(session: aiohttp.ClientSession, name: str) -> None:
        async with session.post(url, json=body(name, stream)) as answer:
            await answer.read()
        take(name)

    async def all_at_once() -> None:
        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*[ask(session, name) for name in "abc"])

    asyncio.run(all_at_once())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way", [with_httpx, with_httpx_awaited, with_aiohttp])
def test_they_end_in_that_order(way: Any, stream: bool, account: Any, attempt: Any) -> None:
    """The first that is asked for is answered second: each is answered when the answer before it has been taken."""
    orders, turns = list[list[str]](), {name: threading.Event() for name in "abc"}

    def answer(request: Any) -> str:
        deadline = time.monotonic() + 60
        while server.requests < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert request.last == "c" or turns[request.last].wait(60)
        return request.last

    def take(name: str) -> None:
        orders[-1].append(name)
        for following in {"c": "a", "a": "b"}.get(name, ""):
            turns[following].set()

    def run() -> None:
        orders.append([])
        way(f"{server.url}/chat/completions", stream, take)

    with ModelServer(answer) as server:
        for _ in range(3):
            attempt(run, unattributed=True)
        assert server.paid == 3
    assert orders == [["c", "a", "b"]] * 3
