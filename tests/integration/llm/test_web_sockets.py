"""Connections to models by WebSocket are counted by host and path, whoever opens them, and others are not."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from runner.llm.recording import unrecorded

from .conftest import journal_now
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


@pytest.mark.parametrize("way", [by_websockets, by_websockets_async, by_aiohttp])
def test_each_is_counted(way: Callable[[str], None], attempt: Any) -> None:
    with WireServer() as server:
        here = server.url.removeprefix("http")

        def task() -> str:
            for path in ("/realtime?model=gpt&key=sk-secret", "/responses", "/chat", "/orders"):
                with pytest.raises((WebSocketException, aiohttp.WSServerHandshakeError)):
                    way(f"ws{here}{path}")
            return unrecorded.take(journal_now().cancel_scope)

        place = here.removeprefix("://")
        assert attempt(task) == f"1 to {place}/realtime, 1 to {place}/responses"
