"""POSTs of tools to services that RUNNER_IDEMPOTENT_ENDPOINTS names carry the tool's key, by whichever client."""

import asyncio
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from runner.core.idempotency import keyed
from runner.llm.recording import idempotency_header

from .wire_server import WireServer

Ask = Callable[..., None]
NAME = idempotency_header.NAME


def with_httpx(library: Any) -> Ask:
    def ask(method: str, url: str, body: bytes, headers: Any) -> None:
        library.request(method, url, content=body, headers=headers, timeout=20)

    return ask


def with_httpx_async(library: Any) -> Ask:
    def ask(method: str, url: str, body: bytes, headers: Any) -> None:
        async def go() -> None:
            async with library.AsyncClient(timeout=20) as client:
                await client.request(method, url, content=body, headers=headers)

        asyncio.run(go())

    return ask


def with_aiohttp(method: str, url: str, body: bytes, headers: Any) -> None:
    async def go() -> None:
        async with aiohttp.ClientSession() as session, session.request(method, url, data=body, headers=headers):
            pass

    asyncio.run(go())


def with_requests(method: str, url: str, body: bytes, headers: Any) -> None:
    requests.request(method, url, data=body, headers=headers, timeout=20)


def with_urllib3(method: str, url: str, body: bytes, headers: Any) -> None:
    urllib3.request(method, url, body=body, headers=headers)


def with_urllib(method: str, url: str, body: bytes, headers: Any) -> None:
    asked = urllib.request.Request(url, body, headers or {}, method=method)
    urllib.request.build_opener().open(asked, timeout=20).read()


CLIENTS = {
    "httpx": with_httpx(httpx), "httpx, async": with_httpx_async(httpx),
    "httpx2": with_httpx(httpx2), "httpx2, async": with_httpx_async(httpx2),
    "aiohttp": with_aiohttp, "requests": with_requests, "urllib3": with_urllib3, "urllib": with_urllib,
}  # fmt: skip


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    with WireServer() as one:
        host = one.url.removeprefix("http://")
        monkeypatch.setenv("RUNNER_IDEMPOTENT_ENDPOINTS", f"{host}/orders, {host}/bookings/*")
        idempotency_header.pattern.cache_clear()
        yield one
    monkeypatch.undo()
    idempotency_header.pattern.cache_clear()


def sent(shop: WireServer) -> list[list[str]]:
    return [[value for name, value in headers if name.lower() == NAME.lower()] for _, _, headers, _ in shop.log]


@pytest.mark.parametrize("client", CLIENTS)
def test_it_is_the_same_each_time_the_use_is_attempted(client: str, shop: WireServer, attempt: Any) -> None:
    ask, orders = CLIENTS[client], f"{shop.url}/orders"

    def use(key: str) -> None:
        with keyed(key):
            ask("POST", orders, b"one", None)
            ask("POST", orders, b"one", None)  # as a client that repeats it
            ask("POST", orders, b"two", None)
            ask("POST", f"{shop.url}/bookings/7", b"one", None)

    attempt(lambda: use("r-1:buy:1"))
    attempt(lambda: use("r-1:buy:1"))
    attempt(lambda: use("r-1:buy:2"))
    found = sent(shop)
    assert all(len(one) == 1 and len(one[0]) == 32 for one in found), found
    first, again, other = found[:4], found[4:8], found[8:]
    assert first == again
    assert first[0] == first[1]
    assert len({one[0] for one in (*first, *other)}) == 6


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_else_carries_it(client: str, shop: WireServer, attempt: Any) -> None:
    ask, orders = CLIENTS[client], f"{shop.url}/orders"

    def task() -> None:
        ask("POST", orders, b"one", None)  # in no tool
        with keyed("r-1:buy:1"):
            ask("GET", orders, b"", None)
            ask("POST", f"{shop.url}/others", b"one", None)
            ask("POST", orders, b"one", {"idempotency-key": "its-own"})

    attempt(task)
    assert sent(shop) == [[], [], [], ["its-own"]]
