"""Each transport with each setting its users have: what is asked, paid and in doubt, and the same bytes as without us.

A new transport is a line in `clients.CLIENTS`, a new setting one in `SETTINGS`.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from . import test_bedrock as bedrock
from .clients import BODY, BY_SOCKS, CLIENTS, READS, Given
from .proxy import Proxy
from .wire_server import CHAT, Handler, Reply, WireServer, encoded, events

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore:Unverified HTTPS request")]
HTTPX = tuple(name for name in CLIENTS if name.startswith("httpx"))
STREAMED = tuple(name for name in CLIENTS if name.endswith("streamed"))
AIOHTTP = tuple(name for name in CLIENTS if name.startswith("aiohttp"))
BOTO = tuple(name for name in CLIENTS if name.startswith("botocore"))


def all_but(*clients: str) -> tuple[str, ...]:
    return tuple(name for name in CLIENTS if name not in clients)


@dataclass(frozen=True)
class Setting:
    """What a client is told, or meets, on its way. ``asked`` counts what reaches the service, ``again`` what a replay
    asks it, ``seen`` what its proxy is asked first."""

    clients: tuple[str, ...] = tuple(CLIENTS)
    proxy: Callable[[], Proxy] | None = None
    socks: bool = False
    seen: bytes | None = None
    tls: str = ""
    by_socket: bool = False
    not_by: bool = False  #: NO_PROXY names the service
    there: bool = True  #: the service listens
    replies: Callable[[int, Reply], Reply] = lambda number, usual: usual
    told: Callable[[Given], Given] = lambda given: given
    asked: int = 1
    paid: int = 1
    in_doubt: int = 0
    again: int = 0


def first(**changes: Any) -> Callable[[int, Reply], Reply]:
    """The first answer is another one."""
    return lambda number, usual: replace(usual, **changes) if number == 1 else usual


def moved(status: int) -> Callable[[int, Reply], Reply]:
    """The first answer sends elsewhere."""
    return first(status=status, headers={"Location": "/v2/chat/completions"}, pieces=None, body=b"")


def in_pieces(usual: Reply, **changes: Any) -> Reply:
    return replace(usual, pieces=[usual.body] if usual.pieces is None else usual.pieces, **changes)


def told(**changes: Any) -> Callable[[Given], Given]:
    return lambda given: replace(given, **changes)


REPEATS = ("requests", "urllib3", "botocore", "requests, streamed", "urllib3, streamed", "botocore, streamed")
SETTINGS = {
    "nothing": Setting(),
    "a proxy": Setting(proxy=Proxy, seen=b"POST"),
    "a tunnel": Setting(proxy=Proxy, tls="trusted", seen=b"CONNECT"),
    "a tunnel with a password": Setting(proxy=lambda: Proxy(closed=True), tls="trusted", seen=b"CONNECT"),
    "a proxy with a password": Setting(proxy=lambda: Proxy(closed=True), seen=b"POST"),
    "a tunnel that is refused (407)": Setting(
        proxy=lambda: Proxy(407), tls="trusted", seen=b"CONNECT", asked=0, paid=0
    ),
    "a tunnel that is refused (502)": Setting(
        proxy=lambda: Proxy(502), tls="trusted", seen=b"CONNECT", asked=0, paid=0
    ),
    "a proxy that refuses (502)": Setting(proxy=lambda: Proxy(502), seen=b"POST", asked=0, paid=0),
    "no proxy for it": Setting(all_but("urllib3", "urllib3, streamed"), proxy=lambda: Proxy(502), not_by=True),
    "SOCKS": Setting(
        (*(name for name in CLIENTS if name.startswith(("httpx", "requests"))), *BY_SOCKS),
        proxy=Proxy, socks=True, seen=b"SOCKS",
    ),
    "its own authority": Setting(tls="trusted"),
    "certificates on both sides": Setting(tls="mutual", told=told(certificate="here")),
    "certificates unverified": Setting(tls="untrusted", told=told(unverified=True)),
    "a certificate nobody trusts": Setting(tls="untrusted", asked=0, paid=0),
    "a socket of Unix's": Setting(
        tuple(name for name in CLIENTS if name.startswith(("httpx", "aiohttp"))), by_socket=True
    ),
    "HTTP/2": Setting(HTTPX, tls="h2", told=told(http2=True)),
    "nobody there": Setting(there=False, asked=0, paid=0),
    "nobody there, for all retries": Setting(
        all_but(*(name for name in CLIENTS if "aiohttp" in name)), there=False, told=told(retries=2), asked=0, paid=0
    ),
    "refused once, and repeated": Setting(
        REPEATS, replies=first(status=503, pieces=None, body=b"{}"), told=told(retries=3), asked=2
    ),
    "refused": Setting(replies=first(status=400), paid=0, again=1),
    "cut, and repeated": Setting(
        ("urllib3",), replies=first(cut=True), told=told(retries=3), asked=2, in_doubt=1
    ),
    "not answered in time": Setting(
        replies=first(hangs=True), told=told(timeout=1.0), paid=0, in_doubt=1, again=1
    ),
    "moved, as it is (307)": Setting(all_but(*BOTO, *AIOHTTP), replies=moved(307), asked=2, again=1),
    "moved, as it is (307), in one call": Setting(AIOHTTP, replies=moved(307), asked=2),
    "moved, as it is (308)": Setting(all_but(*BOTO, *AIOHTTP), replies=moved(308), asked=2, again=1),
    "moved, as it is (308), in one call": Setting(AIOHTTP, replies=moved(308), asked=2),
    "gzip": Setting(all_but(*BOTO, "urllib3, streamed"), replies=lambda number, usual: replace(usual, is_gzipped=True)),
    "deflate": Setting(all_but(*BOTO, "urllib3, streamed"), replies=lambda number, usual: encoded(usual, "deflate")),
    "an encoding of its own": Setting(all_but(*BOTO), replies=lambda number, usual: encoded(usual, "own")),
    "a request in pieces": Setting(all_but(*BOTO), told=told(in_pieces=True)),
    "an answer with trailers": Setting(replies=lambda number, usual: in_pieces(usual, trailers={"X-Sum": "1"})),
    "100 before its answer": Setting(all_but(*BOTO), told=told(expects=True)),
    "429 with Retry-After, and repeated": Setting(
        (*(name for name in REPEATS if name not in BOTO),), told=told(retries=3), asked=2,
        replies=first(status=429, pieces=None, body=b"{}", headers={"Retry-After": "0"}),
    ),
    "429 with Retry-After, as it is": Setting(  # urllib3 by itself repeats it unasked
        all_but(*BOTO, "urllib3", "urllib3, streamed"), paid=0, again=1,
        replies=first(status=429, pieces=None, body=b"{}", headers={"Retry-After": "0"}),
    ),
    **{
        f"read by {way}": Setting(("aiohttp, streamed",), told=told(reads=way))
        for way in ("iter_any", "iter_chunked", "iter_chunks", "readline", "readany", "readchunk")
    },
    **{f"read by {way}": Setting(("requests, streamed",), told=told(reads=way)) for way in READS},
    "an answer half read": Setting(STREAMED, told=told(half=True), paid=0, in_doubt=1, again=1),
}  # fmt: skip


def rows() -> Iterator[Any]:
    """Each client with nothing, and each setting with the two clients that had fewest so far; the soak has all."""
    had = Counter[str]()
    for name, setting in SETTINGS.items():
        kept = setting.clients if name == "nothing" else sorted(setting.clients, key=lambda client: had[client])[:2]
        had.update(kept)
        for client in setting.clients:
            marks = [] if client in kept else [pytest.mark.soak]
            yield pytest.param(client, name, id=f"{client}-{name}", marks=marks)


def usual(client: str) -> Reply:
    if client in BOTO:
        return (
            bedrock.stream(bedrock.CONVERSED) if client in STREAMED else Reply(body=json.dumps(bedrock.SAID).encode())
        )
    return events() if client in STREAMED else Reply(body=json.dumps(CHAT).encode())


class _OfUnix(Handler):
    disable_nagle_algorithm = False


class Service(WireServer):
    """Answers on a socket of Unix's, too, and by TLS; notes what was in doubt as each request came."""

    def __init__(self, tls: ssl.SSLContext | None = None, path: str = "") -> None:
        super().__init__()
        if path:
            self.RequestHandlerClass = _OfUnix
            self.socket.close()
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(path)
            self.socket.listen()
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)


def outcome(client: str, given: Given) -> Any:
    try:
        return {**CLIENTS, **BY_SOCKS}[client](given)
    except Exception as error:
        return type(error)


@pytest.fixture
def variables(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what a person sets for all clients."""

    def say(setting: Setting, proxy: str) -> None:
        trusts = setting.tls in ("trusted", "mutual", "h2")
        if trusts:
            for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE"):
                monkeypatch.setenv(name, str(certificate))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("NO_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.lower(), raising=False)
        for name in ("HTTP_PROXY", "HTTPS_PROXY") if proxy else ():
            monkeypatch.setenv(name, proxy)
        if setting.not_by:
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    return say


@pytest.mark.parametrize(("client", "name"), [*rows()])
def test_what_is_asked_paid_and_in_doubt(
    client: str, name: str, account: Any, attempt: Any, certificate: Path, variables: Any, tmp_path: Path
) -> None:
    setting = SETTINGS[name]
    path = str(tmp_path / "model.sock") if setting.by_socket else ""
    with contextlib.ExitStack() as open_:
        proxy = open_.enter_context(setting.proxy()) if setting.proxy else None
        open_.callback(proxy.shutdown if proxy else bool)
        through = proxy.url("socks5" if setting.socks else "http") if proxy else ""
        variables(setting, through)
        made = http2(certificate) if setting.tls == "h2" else Service(served(setting.tls, certificate), path)
        service: Any = open_.enter_context(made)
        url = ("https" if setting.tls else "http") + service.chat.removeprefix("http")
        if not setting.there:
            url = "http://127.0.0.1:9/v1/chat/completions"
        if path:
            url = "http://localhost/v1/chat/completions"
        given = setting.told(Given(url, proxy=through, socket=path))
        if given.certificate:
            given = replace(given, certificate=str(certificate))

        service.reply = answers(setting, client, service, 0)
        alone = outcome(client, given)
        sent, seen = [*service.log], [*proxy.asked] if proxy else []
        noted: list[int] = []
        service.reply = answers(setting, client, service, len(sent), lambda: noted.append(account.in_doubt))
        assert attempt(lambda: outcome(client, given)) == alone
        assert account.paid.total() == setting.paid, alone
        assert account.in_doubt == setting.in_doubt
        assert len(service.log) == 2 * setting.asked, alone
        assert without_time(service.log[len(sent) :]) == without_time(sent), "the same bytes as without us"
        assert all(noted), "each is noted before it leaves: a crash leaves it in doubt"
        if proxy is not None:
            assert proxy.asked == seen * 2
            assert set(seen) == ({setting.seen} if setting.seen else set())
        before = len(service.log)
        service.reply = answers(setting, client, service, before)
        again = attempt(lambda: outcome(client, given))
        assert len(service.log) - before == setting.again or not setting.paid
        assert not setting.paid or read(again) == read(alone)


def read(found: Any) -> Any:
    """What was read, however it was cut."""
    status, said = found if isinstance(found, tuple) else (200, found)
    return status, b"".join(said) if isinstance(said, list) and isinstance(said[0], bytes) else said


def without_time(log: list[Any]) -> list[Any]:
    """The requests without what a signature has of the time, and the id that botocore makes up."""
    mine = ("X-Amz-Date", "Authorization", "amz-sdk-invocation-id", "amz-sdk-request")
    return [(method, path, [one for one in headers if one[0] not in mine], body) for method, path, headers, body in log]


def answers(
    setting: Setting, client: str, service: Any, before: int, look: Callable[[], Any] = bool
) -> Callable[[int], Reply]:
    def reply(number: int) -> Reply:
        look()
        return setting.replies(number - before, usual(client))

    return reply


def served(tls: str, certificate: Path) -> ssl.SSLContext | None:
    if not tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if tls == "mutual":
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificate)
    return context


@contextlib.contextmanager
def http2(certificate: Path) -> Iterator[Any]:
    """A service that speaks HTTP/2 alone."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.events import DataReceived, RequestReceived, StreamEnded

    context = served("h2", certificate)
    assert context is not None
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        service = WireServer.__new__(WireServer)
        service.server_address, service.log = listening.getsockname(), []

        def serve(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as wire:
                speaks, asked = H2Connection(H2Configuration(client_side=False)), dict[int, Any]()
                speaks.initiate_connection()
                wire.sendall(speaks.data_to_send())
                while data := wire.recv(65536):
                    for event in speaks.receive_data(data):
                        if isinstance(event, RequestReceived):
                            asked[event.stream_id] = [event.headers, b""]
                        elif isinstance(event, DataReceived):
                            asked[event.stream_id][1] += event.data
                        elif isinstance(event, StreamEnded):
                            headers, body = asked[event.stream_id]
                            service.log.append(("POST", "", tuple(headers), body))
                            reply = service.reply(len(service.log))
                            said = [(":status", "200"), ("content-type", reply.headers["Content-Type"])]
                            speaks.send_headers(event.stream_id, said)
                            for piece in reply.pieces or [reply.body]:
                                speaks.send_data(event.stream_id, piece)
                            speaks.end_stream(event.stream_id)
                    wire.sendall(speaks.data_to_send())

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield service


class Keeps(httpx.BaseTransport):
    """Passes requests on to another transport, one more time each, and keeps the answers."""

    def __init__(self) -> None:
        self._pool, self.kept = httpx.HTTPTransport(), dict[bytes, httpx.Response]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if (body := request.read()) not in self.kept:
            self._pool.handle_request(request).read()
            self.kept[body] = self._pool.handle_request(request)
            self.kept[body].read()
        return self.kept[body]

    def close(self) -> None:
        self._pool.close()


def test_what_a_transport_passes_on_to_another_is_journaled_there(account: Any, attempt: Any) -> None:
    with WireServer() as wire:

        def task() -> list[int]:
            with httpx.Client(transport=Keeps()) as client:
                return [client.post(wire.chat, content=BODY).status_code for _ in range(2)]

        assert attempt(task) == attempt(task) == [200, 200]
        assert (len(wire.log), account.paid.total(), account.in_doubt) == (2, 2, 0)


@pytest.mark.parametrize(("is_async", "in_doubt"), [(False, 0), (True, 1)], ids=["sync", "async"])
@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_request_that_an_event_loop_may_still_hold_is_in_doubt(
    library: Any, is_async: bool, in_doubt: int, account: Any, attempt: Any
) -> None:
    """Its service does not read: a socket says what it has not taken, a loop's connection does not."""
    body = json.dumps({"model": "gpt", "messages": [{"role": "user", "content": "x" * 2**25}]}).encode()
    timeout = library.Timeout(20, write=0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/chat/completions"

        async def go() -> None:
            async with library.AsyncClient(timeout=timeout) as client:
                await client.post(url, content=body)

        def task() -> None:
            if is_async:
                asyncio.run(go())
            with library.Client(timeout=timeout) as client:
                client.post(url, content=body)

        with pytest.raises(library.WriteTimeout):
            attempt(task)
    assert (account.paid.total(), account.in_doubt) == (0, in_doubt)


def test_what_is_answered_without_a_network_is_no_call(account: Any, attempt: Any) -> None:
    answers = httpx.MockTransport(lambda request: httpx.Response(200, json=CHAT))
    with httpx.Client(transport=answers) as client:
        assert attempt(lambda: client.post("https://models.example/v1/chat/completions", content=BODY).json()) == CHAT
    assert (account.paid.total(), account.in_doubt) == (0, 0)
