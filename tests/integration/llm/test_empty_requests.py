"""A call whose request has no body, as at a service that RUNNER_MODEL_ENDPOINTS names: its headers are all of it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from runner.llm.recording.parsers import parsers

from .wire_server import Reply, WireServer


def with_httpx(library: Any) -> Callable[[str], object]:
    return lambda url: library.post(url, timeout=20)


def with_httpx_async(library: Any) -> Callable[[str], object]:
    async def ask(url: str) -> None:
        async with library.AsyncClient(timeout=20) as client:
            await client.post(url)

    return lambda url: asyncio.run(ask(url))


def with_aiohttp(url: str) -> None:
    async def ask() -> None:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session,
            session.post(url) as response,
        ):
            await response.read()

    asyncio.run(ask())


CLIENTS: dict[str, Callable[[str], object]] = {
    "httpx": with_httpx(httpx), "httpx, async": with_httpx_async(httpx),
    "httpx2": with_httpx(httpx2), "httpx2, async": with_httpx_async(httpx2), "aiohttp": with_aiohttp,
    "requests": lambda url: requests.post(url, timeout=20),
    "urllib3": lambda url: urllib3.request("POST", url, timeout=20, retries=False),
}  # fmt: skip


LOST = (OSError, aiohttp.ClientError, httpx.HTTPError, httpx2.HTTPError, urllib3.exceptions.HTTPError)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    with WireServer() as one:
        monkeypatch.setenv("RUNNER_MODEL_ENDPOINTS", f"{one.url.removeprefix('http://')}/draw")
        parsers.cache_clear()
        yield one
    monkeypatch.undo()
    parsers.cache_clear()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("answers", [True, False])
def test_it_is_noted_and_said_to_leave_before_its_service_has_it(
    client: str, answers: bool, wire: WireServer, account: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked, known = list[Any](), list[tuple[int, int]]()
    monkeypatch.setattr(account, "mark_sent", marked.append)

    def reply(_: int) -> Reply:
        known.append((account.open.total(), len(marked)))
        return Reply() if answers else Reply(pieces=[b"{", b"}"], cut=True)

    wire.reply = reply

    def task() -> None:
        try:
            CLIENTS[client](f"{wire.url}/draw")
        except LOST:
            assert not answers

    attempt(task)
    assert known == [(1, 1)]
    assert (account.paid.total(), account.in_doubt) == ((1, 0) if answers else (0, 1))
