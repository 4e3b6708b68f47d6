"""An answer by httpx, as its reader has it: in the same pieces, and whole."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from operator import methodcaller
from typing import Any

import httpx
import httpx2
import pytest

from .clients import BODY
from .wire_server import CHAT, Reply, WireServer, encoded

pytestmark = pytest.mark.timeout(60)


def by_httpx(library: Any, is_async: bool, url: str, read: Callable[[Any], Any]) -> Any:
    """What is read of an answer that is begun, and what its client says of it afterwards."""
    if not is_async:
        with library.Client() as client, client.stream("POST", url, content=BODY) as said:
            return outcome_of(said, read(said))

    async def go() -> Any:
        async with library.AsyncClient() as client, client.stream("POST", url, content=BODY) as said:
            found = read(said)
            return outcome_of(said, [one async for one in found] if hasattr(found, "__aiter__") else await found)

    return asyncio.run(go())


def outcome_of(said: Any, found: Any) -> Any:
    text = found if isinstance(found, bytes) else b"".join(found)
    return text, said.num_bytes_downloaded, said.is_stream_consumed, said.is_closed, said.elapsed > timedelta(0)


WAYS = ("iter_raw", "iter_bytes", "read")


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("library", [httpx, httpx2])
def test_an_answer_by_httpx_is_still_to_be_read_as_it_came(
    library: Any, is_async: bool, way: str, encoding: str, account: Any, attempt: Any
) -> None:
    read = methodcaller("a" * is_async + way)
    with WireServer() as wire:
        wire.reply = lambda number: encoded(Reply(), encoding) if encoding else Reply()

        def task() -> Any:
            return by_httpx(library, is_async, wire.chat, read)

        alone = task()
        assert attempt(task) == alone
        assert (account.paid.total(), account.in_doubt) == (1, 0)
        text = json.dumps(CHAT).encode()
        assert attempt(task) == (text, len(text), *alone[2:]), "as an answer that was not encoded"
        assert len(wire.log) == 2


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_the_length_of_an_answer_in_chunks_says_nothing(library: Any, account: Any, attempt: Any) -> None:
    """Some proxies pass it on: the chunks tell where the answer ends, and what came up to there is no answer."""
    text = json.dumps(CHAT).encode()
    headers = {"Content-Type": "application/json", "Content-Length": "40"}
    with WireServer() as wire:
        wire.reply = lambda number: Reply(pieces=[text[:40], text[40:]], headers=headers)

        def task() -> Any:
            return by_httpx(library, False, wire.chat, methodcaller("read"))[0]

        assert attempt(task) == text
        assert (account.paid.total(), account.in_doubt) == (1, 0)
        assert attempt(task) == text
        assert len(wire.log) == 1
