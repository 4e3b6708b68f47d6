"""What is watched on the wire: an awaited call of a model until its request has left, and all of it for who asks."""

import asyncio
from functools import partial
from typing import Any

import httpx
import httpx2
import pytest

from runner.llm.recording import httpx_transport

from .wire_server import WireServer

BODY = {"model": "m", "messages": [{"role": "user", "content": "it"}]}
LAST = "http11.send_request_body.complete"


def sync(library: Any, url: str, **extensions: Any) -> None:
    with library.Client() as client:
        client.post(url, json=BODY, extensions=extensions)


def awaited(library: Any, url: str, **extensions: Any) -> None:
    async def post() -> None:
        async with library.AsyncClient() as client:
            await client.post(url, json=BODY, extensions=extensions)

    asyncio.run(post())


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("way", [sync, awaited])
def test_it_is_watched_until_it_has_left(way: Any, library: Any, account: Any, attempt: Any, monkeypatch: Any) -> None:
    ours: list[str] = []
    theirs: list[str] = []
    both = httpx_transport._both_async

    async def watched_awaited(ours_too: Any, their: Any, event: str, info: dict[str, Any]) -> None:
        ours.append(event)
        await both(ours_too, their, event, info)

    async def tell_later(event: str, info: dict[str, Any]) -> None:
        theirs.append(event)

    def tell(event: str, info: dict[str, Any]) -> None:
        theirs.append(event)

    monkeypatch.setattr(httpx_transport, "_both_async", watched_awaited)
    with WireServer() as wire:
        attempt(lambda: way(library, wire.chat))
        assert ours[-1:] == ([LAST] if way is awaited else [])  # another is noted as its body is asked for
        # And a trace of the caller's has all of the answer, too
        attempt(lambda: way(library, f"{wire.url}/2/chat/completions", trace=tell if way is sync else tell_later))
        assert theirs[-1].endswith("response_closed.complete")
        assert (len(wire.log), account.in_doubt) == (2, 0)


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_request_that_gets_no_connection_and_is_sent_again_is_noted_once(
    library: Any, account: Any, attempt: Any
) -> None:
    def ask(transport: Any, request: Any) -> Any:
        body = request.stream
        elsewhere = library.HTTPTransport()
        elsewhere._pool.handle_request = partial(refuse, library)
        with pytest.raises(library.ConnectError):
            elsewhere.handle_request(request)
        assert request.stream is body
        return transport.handle_request(request).read()

    with WireServer() as wire, library.HTTPTransport() as transport:
        request = library.Request("POST", wire.chat, json=BODY)
        assert attempt(lambda: ask(transport, request))
        assert (len(wire.log), account.in_doubt, len(account.recorded)) == (1, 0, 1)


def refuse(library: Any, _: Any) -> None:
    raise library.ConnectError("nobody is there")
