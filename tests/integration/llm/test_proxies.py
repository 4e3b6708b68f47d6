"""A call that goes through a proxy which is asked for a connection first: that request is not the call."""

import asyncio
import contextlib
import datetime
import ipaddress
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .wire_server import Reply, WireServer

BODY = {"model": "gpt", "messages": [{"role": "user", "content": "it"}]}


class Proxy(socketserver.ThreadingTCPServer):
    """Opens the connections that it is asked for by CONNECT."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.asked: list[bytes] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Tunnel(socketserver.StreamRequestHandler):
    server: Proxy

    def handle(self) -> None:
        asked = self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        self.server.asked.append(asked)
        host, port = asked.split()[1].decode().split(":")
        with socket.create_connection((host, int(port))) as there:
            self.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=_pass_on, args=(there, self.connection), daemon=True).start()
            _pass_on(self.connection, there)


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """For this machine, by itself."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")])
    now, here = datetime.datetime.now(datetime.UTC), ipaddress.ip_address("127.0.0.1")
    made = x509.CertificateBuilder(
        name, name, key.public_key(), 1, now - datetime.timedelta(1), now + datetime.timedelta(1)
    )
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(here)]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "here.pem"
    path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.fixture
def service(certificate: Path) -> Iterator[WireServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = WireServer()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with server:
        yield server


def sync(library: Any, url: str, proxy: str, trusted: ssl.SSLContext) -> int:
    with library.Client(proxy=proxy, verify=trusted) as client:
        return int(client.post(url, json=BODY).status_code)


def awaited(library: Any, url: str, proxy: str, trusted: ssl.SSLContext) -> int:
    async def post() -> int:
        async with library.AsyncClient(proxy=proxy, verify=trusted) as client:
            return int((await client.post(url, json=BODY)).status_code)

    return asyncio.run(post())


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("way", [sync, awaited])
def test_it_is_noted_before_it_leaves(
    way: Any, library: Any, account: Any, attempt: Any, service: WireServer, certificate: Path
) -> None:
    noted: list[int] = []

    def reply(number: int) -> Reply:
        noted.append(account.in_doubt)
        return Reply()

    service.reply, trusted = reply, ssl.create_default_context(cafile=certificate)
    url = service.chat.replace("http:", "https:")
    with Proxy() as proxy:
        assert attempt(lambda: way(library, url, proxy.url, trusted)) == 200
        proxy.shutdown()
    assert [one.split()[0] for one in proxy.asked] == [b"CONNECT"]
    assert noted == [1]
    assert account.in_doubt == 0
    assert account.paid.total() == 1
