"""One call of a model by each transport that is journaled, with the settings that its users have."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import aiohttp
import httpx
import httpx2
import requests
import urllib3
from urllib3.util import Retry

from ...support.later import Later

botocore = Later("botocore")
httpx_socks = Later("httpx_socks")

ASKED = {"model": "gpt", "messages": [{"role": "user", "content": "it"}]}
BODY = json.dumps(ASKED).encode()


@dataclass(frozen=True)
class Given:
    """What a call is made with. What is not given is found in the environment, where the client looks there."""

    url: str
    proxy: str = ""
    socket: str = ""  #: the path of one of Unix's
    certificate: str = ""  #: of the client
    unverified: bool = False
    in_pieces: bool = False  #: the request is sent as it is made
    half: bool = False  #: of the answer is read
    reads: str = ""  #: by which method of the answer, where there are several
    expects: bool = False  #: its service is asked to say that it wants the body
    retries: int = 0
    timeout: float = 20.0
    http2: bool = False
    redirects: bool = True


def _pieces() -> Iterator[bytes]:
    yield BODY[:9]
    yield BODY[9:]


async def _pieces_async() -> AsyncIterator[bytes]:
    for piece in _pieces():
        yield piece


def _tls(given: Given) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if given.unverified:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if given.certificate:
        context.load_cert_chain(given.certificate)
    return context


def _options(transport: Any, given: Given) -> dict[str, Any]:
    options: dict[str, Any] = {"timeout": given.timeout, "follow_redirects": given.redirects, "http2": given.http2}
    if given.socket or given.retries:
        options["transport"] = transport(uds=given.socket or None, retries=given.retries, verify=_tls(given))
    elif given.unverified or given.certificate:
        options["verify"] = _tls(given)
    return options


def _sent(given: Given, pieces: Callable[[], Any]) -> dict[str, Any]:
    return {"content": pieces() if given.in_pieces else BODY, "headers": _headers(given)}


def _headers(given: Given) -> dict[str, str]:
    return {"Content-Type": "application/json", **({"Expect": "100-continue"} if given.expects else {})}


def _of_another_package(given: Given, name: str) -> dict[str, Any]:
    return {"transport": getattr(httpx_socks, name).from_url(given.proxy), "timeout": given.timeout}


def with_httpx_socks(given: Given) -> Any:
    with httpx.Client(**_of_another_package(given, "SyncProxyTransport")) as client:
        return client.post(given.url, **_sent(given, _pieces)).content


def with_httpx_socks_async(given: Given) -> Any:
    async def go() -> Any:
        async with httpx.AsyncClient(**_of_another_package(given, "AsyncProxyTransport")) as client:
            return (await client.post(given.url, **_sent(given, _pieces_async))).content

    return asyncio.run(go())


def with_httpx(library: Any, stream: bool, given: Given) -> Any:
    with library.Client(**_options(library.HTTPTransport, given)) as client:
        if not stream:
            said = client.post(given.url, **_sent(given, _pieces))
            return said.status_code, said.content
        with client.stream("POST", given.url, **_sent(given, _pieces)) as said:
            lines = said.iter_lines()
            return said.status_code, next(lines) if given.half else [*lines]


def with_httpx_async(library: Any, stream: bool, given: Given) -> Any:
    async def go() -> Any:
        async with library.AsyncClient(**_options(library.AsyncHTTPTransport, given)) as client:
            if not stream:
                said = await client.post(given.url, **_sent(given, _pieces_async))
                return said.status_code, said.content
            async with client.stream("POST", given.url, **_sent(given, _pieces_async)) as said:
                lines = said.aiter_lines()
                return said.status_code, await anext(lines) if given.half else [line async for line in lines]

    return asyncio.run(go())


def with_aiohttp(stream: bool, given: Given) -> Any:
    async def go() -> Any:
        connector = aiohttp.UnixConnector(given.socket) if given.socket else aiohttp.TCPConnector(ssl=_tls(given))
        timeout = aiohttp.ClientTimeout(given.timeout)
        about = {"data": _pieces_async() if given.in_pieces else BODY, "allow_redirects": given.redirects}
        about["headers"], about["expect100"] = {"Content-Type": "application/json"}, given.expects
        async with (
            aiohttp.ClientSession(connector=connector, trust_env=True, timeout=timeout) as session,
            session.post(given.url, **about) as said,
        ):
            if stream and given.half:
                return said.status, await said.content.readline()
            if given.reads:
                return said.status, await _read_by(said.content, given.reads)
            return said.status, await said.read()

    return asyncio.run(go())


async def _read_by(content: Any, way: str) -> bytes:
    """The whole of it, as the method gives it."""
    if way.startswith("iter"):
        pieces = getattr(content, way)(*((16,) if way == "iter_chunked" else ()))
        return b"".join([piece[0] if isinstance(piece, tuple) else piece async for piece in pieces])
    found = b""
    while piece := await getattr(content, way)():
        piece = piece[0] if isinstance(piece, tuple) else piece
        if not piece:
            break
        found += piece
    return found


READS: dict[str, Callable[[Any], bytes]] = {
    "iter_content": lambda said: b"".join(said.iter_content(16)),
    "iter_content of what is there": lambda said: b"".join(said.iter_content(None)),
    "raw": lambda said: b"".join(iter(lambda: said.raw.read(16), b"")),
    "raw, into": lambda said: b"".join(said.raw.stream(16)),
}
"""How a streamed answer by requests is read, beside by lines."""


def with_requests(stream: bool, given: Given) -> Any:
    with requests.Session() as session:
        if given.retries:
            retry = Retry(given.retries, allowed_methods=None, status_forcelist=[429, 503], backoff_factor=0)
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
        session.cert = given.certificate or None
        if given.unverified:
            session.verify = session.trust_env = False  # the variables that name certificates would win
        headers = _headers(given)
        data: Any = _pieces() if given.in_pieces else BODY
        about: dict[str, Any] = {"timeout": given.timeout, "allow_redirects": given.redirects, "headers": headers}
        with session.post(given.url, data=data, stream=stream, **about) as said:
            if given.reads:
                return said.status_code, READS[given.reads](said)
            lines = said.iter_lines(16)
            return said.status_code, next(lines) if given.half else [*lines] if stream else said.content


def with_urllib3(stream: bool, given: Given) -> Any:
    tls = {"ssl_context": _tls(given)}
    made = urllib3.ProxyManager(given.proxy, proxy_headers=_basic(given.proxy), **tls) if given.proxy else None
    with made or urllib3.PoolManager(**tls) as pool:
        statuses = [429, 503] if given.retries else ()
        retries = Retry(given.retries or 3, connect=given.retries, read=given.retries, other=0, allowed_methods=None,
                        status_forcelist=statuses, backoff_factor=0)  # fmt: skip
        said = pool.request(
            "POST", given.url, body=_pieces() if given.in_pieces else BODY, retries=retries,
            headers=_headers(given), preload_content=not stream, timeout=given.timeout,
        )  # fmt: skip
        if not stream:
            return said.status, said.data
        with contextlib.closing(said):
            return said.status, next(said.stream(16)) if given.half else b"".join(said.stream())


def _basic(proxy: str) -> dict[str, str]:
    return urllib3.make_headers(proxy_basic_auth="me:secret") if "@" in proxy else {}


@cache
def _botocore_session() -> Any:
    """One for all clients: each would take a tenth of a second to read again what its services are."""
    session = botocore.session.get_session()
    session.set_credentials("AKSECRET", "secret")
    return session


def with_botocore(stream: bool, given: Given) -> Any:
    retries = {"mode": "standard", "total_max_attempts": given.retries + 1}
    config = botocore.config.Config(retries=retries, read_timeout=given.timeout, client_cert=given.certificate or None)
    client = _botocore_session().create_client(
        "bedrock-runtime", region_name="us-east-1", endpoint_url=given.url.partition("/v1")[0], config=config,
        verify=False if given.unverified else None,
    )  # fmt: skip
    about = {"modelId": "claude", "messages": [{"role": "user", "content": [{"text": "it"}]}]}
    with contextlib.closing(client):
        if not stream:
            return client.converse(**about)["output"]
        with contextlib.closing(client.converse_stream(**about)["stream"]) as events:
            return next(iter(events)) if given.half else [*events]


def _ways() -> Iterator[tuple[str, Callable[[Given], Any]]]:
    for stream in (False, True):
        of = ", streamed" if stream else ""
        for library in (httpx, httpx2):
            yield f"{library.__name__}{of}", partial(with_httpx, library, stream)
            yield f"{library.__name__}, async{of}", partial(with_httpx_async, library, stream)
        yield f"aiohttp{of}", partial(with_aiohttp, stream)
        yield f"requests{of}", partial(with_requests, stream)
        yield f"urllib3{of}", partial(with_urllib3, stream)
        yield f"botocore{of}", partial(with_botocore, stream)


CLIENTS = dict(_ways())
BY_SOCKS = {"httpx-socks": with_httpx_socks, "httpx-socks, async": with_httpx_socks_async}
"""Transports of another package for httpx, with connections of their own."""
