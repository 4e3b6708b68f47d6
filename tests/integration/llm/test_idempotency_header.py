"""POSTs of tools to services that RUNNER_IDEMPOTENT_ENDPOINTS names carry the tool's key, by whichever client."""

import asyncio
import io
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
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


def with_aiohttp(method: str, url: str, body: Any, headers: Any) -> None:
    async def go() -> None:
        async with aiohttp.ClientSession() as session, session.request(method, url, data=body, headers=headers):
            pass

    asyncio.run(go())


def with_requests(method: str, url: str, body: bytes, headers: Any) -> None:
    requests.request(method, url, data=body, headers=headers, timeout=20)


def with_urllib3(method: str, url: str, body: bytes, headers: Any) -> None:
    urllib3.request(method, url, body=body, headers=headers)


def with_urllib(method: str, url: str, body: Any, headers: Any) -> None:
    asked = urllib.request.Request(url, body, headers or {}, method=method)
    urllib.request.build_opener().open(asked, timeout=20).read()


CLIENTS = {
    "httpx": with_httpx(httpx), "httpx, async": with_httpx_async(httpx),
    "httpx2": with_httpx(httpx2), "httpx2, async": with_httpx_async(httpx2),
    "aiohttp": with_aiohttp, "requests": with_requests, "urllib3": with_urllib3, "urllib": with_urllib,
}  # fmt: skip


async def twice(body: bytes) -> AsyncIterator[bytes]:
    yield body
    yield body


def by_aiohttp(made: Callable[[bytes], Any]) -> Callable[[str, bytes], object]:
    return lambda url, body: with_aiohttp("POST", url, made(body), None)


def form(body: bytes) -> aiohttp.FormData:
    made = aiohttp.FormData()
    made.add_field("file", body, filename="order.bin")
    return made


def awaited(url: str, **body: Any) -> None:
    async def go() -> None:
        async with httpx.AsyncClient(timeout=20) as client:
            await client.post(url, **body)

    asyncio.run(go())


BODIES: dict[str, Callable[[str, bytes], object]] = {
    "httpx, a form with a file": lambda url, body: httpx.post(url, files={"file": body}),
    "httpx, pieces": lambda url, body: httpx.post(url, content=iter([body, body])),
    "httpx, a file": lambda url, body: httpx.post(url, content=io.BytesIO(body)),
    "httpx2, a form with a file": lambda url, body: httpx2.post(url, files={"file": body}),
    "httpx, async, a form with a file": lambda url, body: awaited(url, files={"file": body}),
    "httpx, async, pieces": lambda url, body: awaited(url, content=twice(body)),
    "aiohttp, a form": by_aiohttp(lambda body: {"it": body.decode()}),
    "aiohttp, a form with a file": by_aiohttp(form),
    "aiohttp, pieces": by_aiohttp(twice),
    "aiohttp, a file": by_aiohttp(io.BytesIO),
    "requests, a form with a file": lambda url, body: requests.post(url, files={"file": body}, timeout=20),
    "requests, pieces": lambda url, body: requests.post(url, data=iter([body, body]), timeout=20),
    "requests, a file": lambda url, body: requests.post(url, data=io.BytesIO(body), timeout=20),
    "urllib3, bytes that change": lambda url, body: urllib3.request("POST", url, body=bytearray(body)),
    "urllib3, a view": lambda url, body: urllib3.request("POST", url, body=memoryview(body)),
    "urllib, pieces": lambda url, body: with_urllib("POST", url, iter([body, body]), {"Content-Type": "x/y"}),
    "urllib, a file": lambda url, body: with_urllib("POST", url, io.BytesIO(body), {"Content-Type": "x/y"}),
}


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


@pytest.mark.parametrize("way", BODIES)
def test_another_body_has_another_one_however_it_is_given(way: str, shop: WireServer, attempt: Any) -> None:
    post, orders = BODIES[way], f"{shop.url}/orders"

    def use() -> None:
        with keyed("r-1:buy:1"):
            for body in (b"one", b"two", b"one"):
                post(orders, body)

    post(orders, b"one")  # as it goes out without
    attempt(use)
    alone, first, other, again = sent(shop)
    assert alone == []
    assert first == again != other
    assert len(first) == 1
    bodies = [body for *_, body in shop.log]
    assert b"two" in bodies[2]
    if "form with" not in way:  # its boundary is another one each time
        assert bodies[0] == bodies[1] == bodies[3]


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
