"""Calls of models through urllib3: requests, and what retries, redirects and frames of its own make of them."""

import contextlib
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from runner.core.errors import Interrupted
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.testing import Answer

from .conftest import user
from .wire_server import CHAT, EVENTS, Reply, WireServer, events


@pytest.fixture
def wire():
    with WireServer() as one:
        yield one


def asked(text: str = "it", **more: Any) -> dict[str, Any]:
    return {"model": "gpt", "messages": user(text), **more}


def question(text: str, stream: bool) -> dict[str, Any]:
    return asked(text, stream=stream, stream_options={"include_usage": True})


def with_requests(url: str, stream: bool) -> Any:
    with requests.Session() as session:

        def one(text: str) -> Any:
            with session.post(url, json=question(text, stream), stream=stream, timeout=20) as said:
                said.raise_for_status()
                return [*said.iter_lines()] if stream else said.json()["choices"][0]["message"]["content"]

        with ThreadPoolExecutor(3) as pool:
            return [one("first"), *pool.map(one, ["a", "b", "c"]), one("last")]


def with_urllib3(url: str, stream: bool) -> Any:
    with urllib3.PoolManager() as pool:

        def one(text: str) -> Any:
            body = json.dumps(question(text, stream))
            said = pool.request("POST", url, body=body, preload_content=not stream)
            return b"".join(said.stream()) if stream else said.json()

        return [one("first"), one("a"), one("last")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", [with_requests, with_urllib3])
def test_each_call_is_paid_once(client, stream, server, account, attempt):
    url = f"{server.url}/chat/completions"
    alone = client(url, stream)
    calls = server.paid
    first = attempt(lambda: client(url, stream), unattributed=True)
    assert first == alone
    assert (server.paid - calls, account.paid.total(), account.in_doubt) == (calls, calls, 0)
    assert account.tokens == sum(server.tokens) // 2 > 0
    assert attempt(lambda: client(url, stream), unattributed=True) == alone
    assert (server.paid, account.replayed.total()) == (2 * calls, calls)
    assert attempt(lambda: client(url, stream), unattributed=True, lose=1) == alone
    assert server.paid == 2 * calls + 1


def bodies() -> dict[str, Any]:
    text = json.dumps(asked("ü")).encode()
    return {
        "bytes": lambda: text,
        "text": lambda: text.decode(),
        "file": lambda: io.BytesIO(text),
        "pieces": lambda: iter([text[:9], text[9:]]),
    }


@pytest.mark.parametrize("kind", bodies())
def test_what_goes_out_is_what_goes_out_without_us(kind, wire, account, attempt):
    def one() -> Any:
        headers = {"Content-Type": "application/json", "X-Own": "1", "Authorization": "Bearer sk-secret"}
        return requests.post(wire.chat, data=bodies()[kind](), headers=headers, timeout=20).json()

    assert one() == attempt(one) == CHAT
    assert wire.log[0] == wire.log[1]
    assert (len(wire.log), account.paid.total()) == (2, 1)
    assert "sk-secret" not in json.dumps(account.recorded)
    assert attempt(one) == CHAT
    assert len(wire.log) == 2


@pytest.mark.parametrize("is_gzipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_an_answer_is_read_as_without_us(framing, stream, is_gzipped, wire, account, attempt):
    def reply(number: int) -> Reply:
        reply = events(is_gzipped=is_gzipped) if stream else Reply(is_gzipped=is_gzipped)
        if framing == "length" and stream:
            reply.body, reply.pieces = b"".join(EVENTS), None
        elif framing == "chunked" and not stream:
            reply.pieces = [reply.body]
        return reply

    wire.reply = reply

    def read() -> list[Any]:
        found: list[Any] = []
        for size in (None, 1, 7, 512):
            with requests.post(wire.chat, json=asked(str(size)), stream=True, timeout=20) as said:
                found.append((said.status_code, said.reason, b"".join(said.iter_content(size))))
        pool = urllib3.PoolManager()
        for number, ways in enumerate(("data", "read", "read(5)", "lines", "preload")):
            body = json.dumps(asked(f"by {number}"))
            got = pool.request("POST", wire.chat, body=body, preload_content=ways == "preload")
            if ways in ("data", "preload"):
                found.append(got.data)
            elif ways == "lines":
                found.append(b"".join(got))
            else:
                found.append(got.read() if ways == "read" else b"".join(iter(lambda one=got: one.read(5), b"")))
            got.release_conn()
        return found

    alone = read()
    assert attempt(read) == alone
    assert (account.paid.total(), account.in_doubt, len(wire.log)) == (9, 0, 18)
    assert attempt(read) == alone
    assert len(wire.log) == 18


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_that_breaks_off_is_in_doubt_and_raises_what_it_did(stream, wire, account, attempt):
    def one() -> Any:
        with requests.post(wire.chat, json=asked(), stream=stream, timeout=20) as said:
            return b"".join(said.iter_content(64))

    wire.reply = lambda number: events(cut=True) if stream else Reply(cut=True)
    with pytest.raises(requests.RequestException) as alone:
        one()
    with pytest.raises(type(alone.value)):
        attempt(one)
    assert (account.recorded, account.in_doubt) == ({}, 1)
    wire.reply = lambda number: events() if stream else Reply()
    attempt(one)
    assert (account.paid.total(), account.in_doubt) == (1, 0)


def test_a_stream_that_is_closed_early_is_in_doubt(wire, account, attempt):
    wire.reply = lambda number: events()

    def one() -> None:
        with requests.post(wire.chat, json=asked(), stream=True, timeout=20) as said:
            next(said.iter_content(4))

    attempt(one)
    assert (account.recorded, account.in_doubt) == ({}, 1)


def test_a_stream_comes_piece_by_piece(wire, attempt):
    read = threading.Semaphore(0)

    def pieces() -> Any:
        for event in EVENTS:
            yield event
            assert read.acquire(timeout=20), "the event before was not read while the stream was open"

    wire.reply = lambda number: Reply(pieces=pieces(), headers={"Content-Type": "text/event-stream"})

    def one() -> list[bytes]:
        found = []
        with requests.post(wire.chat, json=asked(), stream=True, timeout=20) as said:
            for piece in said.iter_content(None):
                found.append(piece)
                read.release()
        return found

    assert attempt(one) == EVENTS


@pytest.mark.parametrize("client", ["urllib3", "requests"])
def test_each_attempt_of_urllib3s_own_retries_is_a_call_in_its_place(client, wire, account, attempt):
    statuses = {1: 429, 2: 503}
    wire.reply = lambda number: Reply(status=statuses.get(number, 200), body=json.dumps(CHAT).encode())
    retry = Retry(total=5, status_forcelist=[429, 503], allowed_methods=None, backoff_factor=0)

    def one(text: str = "it") -> Any:
        if client == "urllib3":
            return urllib3.PoolManager(retries=retry).request("POST", wire.chat, json=asked(text)).json()
        with requests.Session() as session:
            session.mount("http://", HTTPAdapter(max_retries=retry))
            return session.post(wire.chat, json=asked(text), timeout=20).json()

    assert attempt(lambda: [one(), one("next")]) == [CHAT, CHAT]
    assert (len(wire.log), account.paid.total(), account.in_doubt) == (4, 2, 0)
    assert attempt(lambda: [one(), one("next")]) == [CHAT, CHAT]
    assert len(wire.log) == 4


def test_an_attempt_that_was_sent_and_timed_out_stays_in_doubt(wire, account, attempt):
    wire.reply = lambda number: Reply(hangs=number == 1)
    retry = Retry(total=2, allowed_methods=None, backoff_factor=0)

    def one() -> Any:
        return urllib3.PoolManager(retries=retry).request("POST", wire.chat, json=asked(), timeout=1).json()

    assert attempt(one) == CHAT
    assert (len(wire.log), account.paid.total(), account.in_doubt) == (2, 1, 1)
    assert attempt(one) == CHAT
    assert len(wire.log) == 2


@pytest.mark.parametrize("client", ["urllib3", "requests"])
def test_a_redirect_leads_to_the_call(client, wire, account, attempt):
    def reply(number: int) -> Reply:
        if wire.log[-1][1].startswith("/v1"):
            return Reply(status=307, headers={"Location": "/v2/chat/completions"}, body=b"")
        return Reply()

    wire.reply = reply

    def one() -> Any:
        if client == "urllib3":
            return urllib3.PoolManager().request("POST", wire.chat, json=asked()).json()
        return requests.post(wire.chat, json=asked(), timeout=20).json()

    assert attempt(one) == CHAT
    assert (account.paid.total(), account.in_doubt) == (1, 0)
    assert attempt(one) == CHAT
    assert [path for _, path, _, _ in wire.log] == [
        "/v1/chat/completions",
        "/v2/chat/completions",
        "/v1/chat/completions",
    ]


def test_it_takes_no_more_than_urllib3_1_has(wire, account, attempt, monkeypatch):
    monkeypatch.delattr(urllib3, "HTTPHeaderDict")
    one = lambda: requests.post(wire.chat, json=asked(), timeout=20).json()  # noqa: E731 - an expression with a name
    assert attempt(one) == attempt(one) == CHAT
    assert (len(wire.log), account.paid.total()) == (1, 1)


def test_what_is_refused_or_never_sent_is_not_in_doubt(wire, account, attempt):
    wire.reply = lambda number: Reply(status=400)
    said = attempt(lambda: requests.post(wire.chat, json=asked(), timeout=20))
    assert (said.status_code, said.json()) == (400, CHAT)
    with pytest.raises(requests.ConnectionError):
        attempt(lambda: requests.post("http://127.0.0.1:9/v1/chat/completions", json=asked(), timeout=20))
    assert (account.recorded, account.in_doubt) == ({}, 0)


def test_other_requests_pass(wire, account, attempt):
    def others() -> None:
        requests.get(wire.chat, timeout=20)
        requests.post(f"{wire.url}/orders", json=asked(), timeout=20)
        requests.post(wire.chat, data=b"no JSON", timeout=20)

    attempt(others)
    attempt(others)
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
        attempt(lambda: with_urllib3(f"{server.url}/chat/completions", stream), cancel_scope=cancel_scope)
    assert (server.paid, account.paid.total(), account.in_doubt) == (1, 1, 0)


def test_a_timeout_leaves_it_in_doubt(wire, account, attempt):
    wire.reply = lambda number: Reply(hangs=True)
    with contextlib.suppress(requests.Timeout):
        attempt(lambda: requests.post(wire.chat, json=asked(), timeout=1))
    assert (account.paid.total(), account.in_doubt) == (0, 1)
