"""Connections to models by WebSocket are counted by host and path, whoever opens them, and others are not."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import curl_cffi
import pytest
import websocket
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from runner.core.errors import UsageError
from runner.modelserver.stubs import using

from .wire_server import WireServer


def by_websockets(url: str) -> None:
    connect(url, proxy=None, open_timeout=20)


def by_websockets_async(url: str) -> None:
    async def go() -> None:
        await connect_async(url, proxy=None, open_timeout=20)

    asyncio.run(go())


def by_aiohttp(url: str) -> None:
    async def go() -> None:
        async with aiohttp.ClientSession() as session:
            await session.ws_connect(url)

    asyncio.run(go())


def by_websocket_client(url: str) -> None:
    websocket.create_connection(url, timeout=20)


def by_websocket_app(url: str) -> None:
    failed: list[Exception] = []
    websocket.WebSocketApp(url, on_error=lambda _, error: failed.append(error)).run_forever()
    raise failed[0]


def by_curl_cffi(url: str) -> None:
    curl_cffi.Session().ws_connect(url)


REFUSED = (WebSocketException, aiohttp.WSServerHandshakeError, websocket.WebSocketException, curl_cffi.CurlError)
WAYS = (by_websockets, by_websockets_async, by_aiohttp, by_websocket_client, by_websocket_app, by_curl_cffi)


@pytest.mark.parametrize("way", WAYS)
def test_each_is_counted(way: Callable[[str], None], account: Any, attempt: Any) -> None:
    with WireServer() as server:
        here = server.url.removeprefix("http")

        def task() -> None:
            for path in ("/realtime?model=gpt&key=sk-secret", "/responses", "/chat", "/orders"):
                with pytest.raises(REFUSED):
                    way(f"ws{here}{path}")

        attempt(task)
        place = here.removeprefix("://")
        assert account.past == [f"{place}/realtime", f"{place}/responses"]


def test_where_a_stand_in_answers_one_of_aiohttp_is_refused_as_it_is_awaited(account: Any, attempt: Any) -> None:
    """As its other errors are: code may begin several, and then wait for each."""

    async def go() -> None:
        async with aiohttp.ClientSession() as session:
            with using("demo"):
                asked = session.ws_connect("ws://127.0.0.1:9/realtime")
                with pytest.raises(UsageError, match="--demo cannot answer this call"):
                    await asked

    attempt(lambda: asyncio.run(go()))
    assert account.past == []
