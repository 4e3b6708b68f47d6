"""Calls of models through aiohttp: one after another and side by side, whole and in pieces, however they are read."""

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest

from runner.core.errors import Interrupted
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.testing import Answer, ModelServer

from .conftest import user
from .wire_server import CHAT, EVENTS, Reply, WireServer, encoded, events


@pytest.fixture
def wire():
    with WireServer() as one:
        yield one


def asked(text: str = "it", **more: Any) -> dict[str, Any]:
    return {"model": "gpt", "messages": user(text), **more}


def in_a_session(one: Any, *texts: str, **options: Any) -> Any:
    async def go() -> Any:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20), **options) as session:
            return [await one(session, text) for text in texts]

    return asyncio.run(go())


def ask(server: ModelServer, stream: bool) -> Any:
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}

    async def go() -> Any:
        async with aiohttp.ClientSession() as session:

            async def one(text: str) -> Any:
                async with session.post(f"{server.url}/chat/completions", json=asked(text, **options)) as said:
                    if stream:
                        return b"".join([line async for line in said.content])
                    return (await said.json())["choices"][0]["message"]["content"]

            return [await one("first"), *await asyncio.gather(*map(one, "abc")), await one("last")]

    return asyncio.run(go())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_each_call_is_paid_once(stream, server, account, attempt):
    alone = ask(server, stream)
    assert attempt(lambda: ask(server, stream)) == alone
    assert (server.paid, account.paid.total(), account.in_doubt) == (10, 5, 0)
    assert account.tokens == sum(server.tokens) // 2 > 0
    assert attempt(lambda: ask(server, stream)) == alone
    assert (server.paid, account.replayed.total()) == (10, 5)
    assert attempt(lambda: ask(server, stream), lose=1) == alone
    assert server.paid == 11


@pytest.mark.parametrize("kind", ["json", "data", "text"])
def test_what_goes_out_is_what_goes_out_without_us(kind, wire, account, attempt):
    text = json.dumps(asked("ü"))
    body = {"json": {"json": asked("ü")}, "data": {"data": text.encode()}, "text": {"data": text}}[kind]

    async def one(session: Any, _: str) -> Any:
        about = {"headers": {"Authorization": "Bearer sk-secret"}, "params": {"v": "1"}}
        async with session.post("chat/completions", **about, **body) as said:
            return said.status, said.ok, str(said.url), await said.json()

    def task() -> Any:
        return in_a_session(one, "it", base_url=f"{wire.url}/")

    assert task() == attempt(task) == attempt(task)
    assert wire.log[0] == wire.log[1]
    assert (len(wire.log), account.paid.total(), account.in_doubt) == (2, 1, 0)
    assert "sk-secret" not in json.dumps(account.recorded)


async def joined(pieces: Any) -> bytes:
    return b"".join([piece[0] if isinstance(piece, tuple) else piece async for piece in pieces])


READS = {
    "read": lambda said: said.read(),
    "content.read": lambda said: said.content.read(),
    "lines": lambda said: joined(said.content),
    "any": lambda said: joined(said.content.iter_any()),
    "7 bytes": lambda said: joined(said.content.iter_chunked(7)),
    "chunks": lambda said: joined(said.content.iter_chunks()),
}


@pytest.mark.parametrize("decompress", [True, False], ids=["decoded", "as it is"])
@pytest.mark.parametrize("is_gzipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_is_read_as_without_us(stream, is_gzipped, decompress, wire, account, attempt):
    wire.reply = lambda number: events(is_gzipped=is_gzipped) if stream else Reply(is_gzipped=is_gzipped)

    async def one(session: Any, way: str) -> Any:
        async with session.post(wire.chat, json=asked(way)) as said:
            return await READS[way](said)

    def task() -> Any:
        return in_a_session(one, *READS, auto_decompress=decompress)

    alone = task()
    assert attempt(task) == alone
    assert (account.paid.total(), account.in_doubt, len(wire.log)) == (len(READS), 0, 2 * len(READS))
    plain = b"".join(EVENTS) if stream else json.dumps(CHAT).encode()
    assert attempt(task) == [plain] * len(READS)
    assert len(wire.log) == 2 * len(READS)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "deflate, unframed", "zstd", "one of its own"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_is_recorded_whatever_it_is_encoded_in(stream, encoding, wire, account, attempt):
    if encoding == "zstd":
        pytest.importorskip("zstandard")
    wire.reply = lambda number: encoded(events() if stream else Reply(), encoding)

    async def one(session: Any, text: str) -> Any:
        async with session.post(wire.chat, json=asked(text)) as said:
            return said.headers.get("Content-Encoding"), await said.read()

    def task() -> Any:
        return in_a_session(one, "it", auto_decompress=False)

    (alone,) = task()
    assert attempt(task) == [alone]
    assert (account.paid.total(), account.in_doubt, len(wire.log)) == (1, 0, 2)
    plain = b"".join(EVENTS) if stream else json.dumps(CHAT).encode()
    assert attempt(task) == [alone if encoding == "one of its own" else (None, plain)]
    assert len(wire.log) == 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_in_another_encoding_than_it_says_is_in_doubt(stream, wire, account, attempt):
    reply = events() if stream else Reply()
    reply.headers["Content-Encoding"] = "gzip"
    wire.reply = lambda number: reply

    async def one(session: Any, text: str) -> Any:
        async with session.post(wire.chat, json=asked(text)) as said:
            return await said.read()

    def task() -> Any:
        return in_a_session(one, "it", auto_decompress=False)

    assert attempt(task) == task()
    assert (account.recorded, account.in_doubt) == ({}, 1)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_that_breaks_off_is_in_doubt(stream, wire, account, attempt):
    async def one(session: Any, text: str) -> Any:
        async with session.post(wire.chat, json=asked(text)) as said:
            return await said.read()

    wire.reply = lambda number: events(cut=True) if stream else Reply(cut=True)
    with pytest.raises(aiohttp.ClientPayloadError):
        in_a_session(one, "it")
    with pytest.raises(aiohttp.ClientPayloadError):
        attempt(lambda: in_a_session(one, "it"))
    assert (account.recorded, account.in_doubt) == ({}, 1)
    wire.reply = lambda number: events() if stream else Reply()
    attempt(lambda: in_a_session(one, "it"))
    assert (account.paid.total(), account.in_doubt) == (1, 0)


def test_a_stream_that_is_closed_early_is_in_doubt(wire, account, attempt):
    wire.reply = lambda number: events()

    async def one(session: Any, text: str) -> Any:
        async with session.post(wire.chat, json=asked(text)) as said:
            await said.content.read(4)

    attempt(lambda: in_a_session(one, "it"))
    assert (account.recorded, account.in_doubt) == ({}, 1)


def test_what_is_refused_or_never_sent_is_not_in_doubt(wire, account, attempt):
    statuses = {1: 400, 2: 307}

    def reply(number: int) -> Reply:
        status = statuses.get(number, 200)
        return Reply(status=status, **({"headers": {"Location": "/v2/chat/completions"}} if status == 307 else {}))

    wire.reply = reply

    async def one(session: Any, text: str) -> Any:
        async with session.post(wire.chat, json=asked(text)) as refused:
            assert (refused.status, await refused.json()) == (400, CHAT)
        async with session.post(wire.chat, json=asked(text)) as said:
            assert [gone.status for gone in said.history] == [307]
            return said.status

    async def away(session: Any, text: str) -> Any:
        await session.post("http://127.0.0.1:9/v1/chat/completions", json=asked(text))

    assert attempt(lambda: in_a_session(one, "it")) == [200]
    with pytest.raises(aiohttp.ClientConnectorError):
        attempt(lambda: in_a_session(away, "it"))
    assert (len(wire.log), account.paid.total(), account.in_doubt) == (3, 1, 0)


@pytest.mark.parametrize("ends", ["timeout", "cancelled"])
def test_one_that_is_not_waited_for_is_in_doubt(ends, wire, account, attempt):
    wire.reply = lambda number: Reply(hangs=True)

    async def go() -> None:
        async with aiohttp.ClientSession() as session:
            timeout = aiohttp.ClientTimeout(1 if ends == "timeout" else 20)
            call = asyncio.create_task(session._request("POST", wire.chat, json=asked(), timeout=timeout))
            if ends == "cancelled":
                while not wire.log:
                    await asyncio.sleep(0.01)
                call.cancel()
            await call

    with pytest.raises((TimeoutError, asyncio.CancelledError)):
        attempt(lambda: asyncio.run(go()))
    assert (len(wire.log), account.paid.total(), account.in_doubt) == (1, 0, 1)


def test_other_requests_pass(wire, account, attempt):
    async def others(session: Any, text: str) -> None:
        await (await session.get(wire.chat)).read()
        await (await session.post(f"{wire.url}/orders", json=asked())).read()
        await (await session.post(wire.chat, data=b"no JSON")).read()

    attempt(lambda: in_a_session(others, "it"))
    attempt(lambda: in_a_session(others, "it"))
    assert (len(wire.log), account.recorded, account.in_doubt) == (6, {}, 0)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_deferrable_stop_waits_for_the_record(stream, server, account, attempt):
    cancel_scope = CancelScope()

    def stops(request: Any) -> Answer:
        assert cancel_scope.in_call
        cancel_scope.ask(Interrupted("the worker is draining"))
        return Answer("answered all the same")

    server.use(stops)
    with pytest.raises(Interrupted):
        attempt(lambda: ask(server, stream), cancel_scope=cancel_scope)
    assert (server.paid, account.paid.total(), account.in_doubt) == (1, 1, 0)


@pytest.mark.parametrize("refused", [True, False], ids=["which is refused", "which is given"])
def test_what_a_middleware_asks_on_the_way_is_a_request_of_its_own(refused, wire, account, attempt):
    noted = []

    def reply(number: int) -> Reply:
        noted.append((wire.log[-1][1], account.in_doubt))
        return Reply(status=401 if refused and wire.log[-1][1] == "/v1/token" else 200)

    async def with_a_token(request: Any, handler: Any) -> Any:
        async with aiohttp.ClientSession() as other, other.post(f"{wire.url}/token", json=asked()) as token:
            token.raise_for_status()
        async with aiohttp.ClientSession() as other, other.post(wire.chat, json=asked("a guard")) as guard:
            await guard.read()
        return await handler(request)

    async def one(session: Any, text: str) -> Any:
        async with session.post(wire.chat, json=asked(text)) as said:
            return await said.read()

    wire.reply = reply
    with contextlib.suppress(aiohttp.ClientResponseError):
        attempt(lambda: in_a_session(one, "it", middlewares=[with_a_token]))
    token, chat = "/v1/token", "/v1/chat/completions"
    assert noted == [(token, 0)] if refused else [(token, 0), (chat, 1), (chat, 1)]
    assert (account.paid.total(), account.in_doubt) == (0 if refused else 2, 0)
