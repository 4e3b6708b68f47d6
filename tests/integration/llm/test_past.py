"""Calls of models by clients that nothing records are told by host and path, before they leave, and others are not."""

import asyncio
import contextlib
import http.client
import io
import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import curl_cffi
import pycurl
import pytest

from runner.core.errors import UsageError
from runner.modelserver.stubs import using

from .clients import BODY
from .proxy import Proxy
from .test_transports import Service, served
from .wire_server import Reply, WireServer

OTHER = b'{"order": 1}'
HEADERS = {"Content-Type": "application/json"}


def by_urllib(url: str, body: Any) -> None:
    # `urlopen` would keep the proxies of its first call for the process
    urllib.request.build_opener().open(urllib.request.Request(url, body, HEADERS), timeout=20).read()


def by_urllib_in_pieces(url: str, body: bytes) -> None:
    by_urllib(url, iter([body[:5], body[5:]]))


def by_http_client(url: str, body: Any, *, chunked: bool = False, **headers: str) -> None:
    parts = urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(parts.netloc, timeout=20)) as connection:
        connection.request("POST", parts.path, body, {**HEADERS, **headers}, encode_chunked=chunked)
        connection.getresponse().read()


def by_http_client_in_chunks(url: str, body: bytes) -> None:
    by_http_client(url, iter([body[:5], body[5:]]), chunked=True, **{"Transfer-Encoding": "chunked"})


def by_http_client_from_a_file(url: str, body: bytes) -> None:
    by_http_client(url, io.BytesIO(body), **{"Content-Length": str(len(body))})


def _handle(url: str) -> pycurl.Curl:
    handle = pycurl.Curl()
    handle.setopt(pycurl.URL, url)
    handle.setopt(pycurl.HTTPHEADER, ["Content-Type: application/json"])
    handle.setopt(pycurl.WRITEFUNCTION, lambda _: None)
    handle.setopt(pycurl.PROXY, "")
    return handle


def by_pycurl(url: str, body: bytes) -> None:
    with contextlib.closing(_handle(url)) as handle:
        handle.setopt(pycurl.POSTFIELDS, body.decode())
        handle.perform()


def by_a_copy_of_pycurl(url: str, body: bytes) -> None:
    with contextlib.closing(_handle(url)) as handle:
        handle.setopt(pycurl.COPYPOSTFIELDS, body)
        with contextlib.closing(handle.duphandle()) as copy:
            copy.perform()


def by_pycurl_at_once(url: str, body: bytes) -> None:
    with contextlib.closing(_handle(url)) as handle, contextlib.closing(pycurl.CurlMulti()) as multi:
        handle.setopt(pycurl.POSTFIELDS, body)
        multi.add_handle(handle)
        while multi.perform()[1]:
            multi.select(1.0)
        multi.remove_handle(handle)


def by_curl_cffi(url: str, body: bytes) -> None:
    curl_cffi.post(url, data=body, headers=HEADERS, timeout=20)


def by_curl_cffi_async(url: str, body: bytes) -> None:
    async def go() -> None:
        async with curl_cffi.AsyncSession() as session:
            await session.post(url, data=body, headers=HEADERS, timeout=20)

    asyncio.run(go())


WAYS = (
    *(by_urllib, by_urllib_in_pieces, by_http_client, by_http_client_in_chunks, by_http_client_from_a_file),
    *(by_pycurl, by_a_copy_of_pycurl, by_pycurl_at_once, by_curl_cffi, by_curl_cffi_async),
)


@pytest.fixture
def wire() -> Iterator[WireServer]:
    with WireServer() as server:
        yield server


@pytest.mark.parametrize("way", WAYS)
def test_each_is_told_before_it_leaves(
    way: Callable[[str, bytes], None], wire: WireServer, account: Any, attempt: Any
) -> None:
    told: list[int] = []

    def reply(_: int) -> Reply:
        told.append(len(account.past))
        return Reply()

    wire.reply = reply

    def task() -> None:
        way(f"{wire.chat}?key=sk-secret", BODY)
        way(f"{wire.url}/orders", OTHER)
        way(wire.chat, OTHER)
        way(wire.chat, BODY)

    attempt(task)
    place = wire.chat.removeprefix("http://")
    assert account.past == [place, place]
    assert told == [1, 1, 1, 2]
    task()
    assert account.past == [place, place], "outside of a task nothing is counted"


@pytest.mark.parametrize("way", WAYS)
def test_where_a_stand_in_answers_none_leaves(
    way: Callable[[str, bytes], None], wire: WireServer, account: Any, attempt: Any, eventually: Any
) -> None:
    def task() -> None:
        with using("demo"):
            way(f"{wire.url}/orders", OTHER)
            way(wire.chat, OTHER)
            way(wire.chat, b"")
            with pytest.raises(UsageError, match="--demo cannot answer this call"):
                way(wire.chat, BODY)

    attempt(task)
    way(f"{wire.url}/last", OTHER)  # each connection from before was taken before this one's
    eventually(lambda: wire.connections == 0, why="whatever came was read to its end")
    chat = "/v1/chat/completions"
    assert (wire.arrived, account.past) == (["/v1/orders", chat, chat, "/v1/last"], []), "nor its head"
    assert [body for *_, body in wire.log if b"gpt" in body] == []


def test_who_waits_for_the_servers_word_is_not_held_back(wire: WireServer, attempt: Any) -> None:
    def task() -> None:
        with (
            using("demo"),
            contextlib.closing(http.client.HTTPConnection(urlsplit(wire.url).netloc, timeout=20)) as one,
        ):
            one.putrequest("POST", "/v1/chat/completions")
            for name, value in {**HEADERS, "Content-Length": str(len(BODY)), "Expect": "100-continue"}.items():
                one.putheader(name, value)
            one.endheaders()
            assert one.sock.recv(100).startswith(b"HTTP/1.1 100 ")
            with pytest.raises(UsageError, match="--demo cannot answer this call"):
                one.send(BODY)

    attempt(task)
    assert [body for *_, body in wire.log] in ([], [b""])


def by_a_form(url: str) -> None:
    form = curl_cffi.CurlMime()
    form.addpart(name="model", data=b"whisper")
    form.addpart(name="file", filename="a.wav", data=b"sound")
    curl_cffi.post(url, multipart=form, timeout=20)


def by_reading(url: str) -> None:
    with contextlib.closing(_handle(url)) as handle:
        handle.setopt(pycurl.POST, 1)
        handle.setopt(pycurl.READDATA, io.BytesIO(BODY))
        handle.setopt(pycurl.POSTFIELDSIZE, len(BODY))
        handle.perform()


@pytest.mark.parametrize("way", [by_a_form, by_reading])
def test_one_whose_body_is_read_as_it_leaves_is_told_by_its_path(
    way: Callable[[str], None], wire: WireServer, account: Any, attempt: Any
) -> None:
    urls = [f"{wire.url}/{path}" for path in ("audio/transcriptions", "orders")]
    attempt(lambda: [way(url) for url in urls])
    assert account.past == [urls[0].removeprefix("http://")]
    assert len(wire.log) == 2


@pytest.mark.parametrize("tls", ["", "trusted"], ids=["a proxy", "a tunnel"])
def test_one_through_a_proxy_is_told_with_the_address_of_its_service(
    tls: str, account: Any, attempt: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with Proxy() as proxy, Service(served(tls, certificate)) as service:
        for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", proxy.url("http"))
        monkeypatch.setenv("https_proxy", proxy.url("http"))
        url = ("https" if tls else "http") + service.chat.removeprefix("http")
        attempt(lambda: by_urllib(url, BODY))
        assert account.past == [service.chat.removeprefix("http://")]
        assert proxy.asked == [b"CONNECT" if tls else b"POST"]
        proxy.shutdown()


def test_a_body_of_thousands_of_pieces_is_read_once(wire: WireServer, account: Any, attempt: Any) -> None:
    text = json.dumps({"model": "gpt", "messages": [{"role": "user", "content": "x" * 2**20}]}).encode()
    pieces = [text[at : at + 64] for at in range(0, len(text), 64)]
    attempt(lambda: by_http_client(wire.chat, iter(pieces), chunked=True, **{"Transfer-Encoding": "chunked"}))
    assert account.past == [wire.chat.removeprefix("http://")]
