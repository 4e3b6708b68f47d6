"""A store that wants TLS, and certificates of its clients: the URL says all that is needed, for state and broker."""

import contextlib
import datetime
import ipaddress
import re
import selectors
import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from runner.client import Client
from runner.testing import Fleet, RedisServer


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """One of 127.0.0.1, signed by itself, and its key: for the server and its clients."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    signed = made.add_extension(address, critical=False).sign(key, hashes.SHA256())
    (tmp_path / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(key.private_bytes(*form))
    return tmp_path / "cert.pem", tmp_path / "key.pem"


@pytest.fixture
def port(server: RedisServer, certificate: tuple[Path, Path]) -> Iterator[int]:
    """Where the server is, encrypted: the embedded one has no TLS of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.load_verify_locations(certificate[0])
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, context, str(server.socket)), daemon=True).start()
        yield listening.getsockname()[1]


def _accept(listening: socket.socket, context: ssl.SSLContext, path: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listening.accept()
            threading.Thread(target=_forward, args=(client, context, path), daemon=True).start()


def _forward(plain: socket.socket, context: ssl.SSLContext, path: str) -> None:
    with (
        contextlib.suppress(OSError),
        context.wrap_socket(plain, server_side=True) as client,
        socket.socket(socket.AF_UNIX) as server,
        selectors.DefaultSelector() as ready,
    ):
        server.connect(path)
        ready.register(client, selectors.EVENT_READ, server)
        ready.register(server, selectors.EVENT_READ, client)
        while True:
            for found, _ in ready.select():
                data = found.fileobj.recv(65536)
                if not data:
                    return
                found.data.sendall(data)
                while found.fileobj is client and client.pending():
                    server.sendall(client.recv(65536))


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
def test_a_run_over_tls(
    scheme: str, port: int, certificate: tuple[Path, Path], crew_of: Callable[..., Path], trace: Any
) -> None:
    cert, key = certificate
    url = f"{scheme}://127.0.0.1:{port}/0?ssl_ca_certs={cert}&ssl_certfile={cert}&ssl_keyfile={key}"
    with Fleet(url) as fleet, Client(url) as client:
        worker = fleet.start("--concurrency", "1")
        result = client.submit(crew_of('crew = Crew(tasks=[Task(name="a", run=steps("a", 3, 0))])')).wait(30)
        assert (result.status, result.outputs["a"]) == ("completed", "0 1 2"), fleet.log()
        assert worker.alive()
        with fleet.popen("flower", "--port", "0") as flower:
            place = flower.stderr.readline().split()[-1]
            with urllib.request.urlopen(f"{place}/broker", timeout=60) as page:
                assert re.search(r"<td>\s*runner\s*</td>", page.read().decode()), "Flower's own client reads the queue"
            flower.terminate()
            assert (flower.wait(30), flower.stderr.read()) == (0, "")
        refused = fleet.runner("runs", RUNNER_REDIS_URL=f"{scheme}://127.0.0.1:{port}/0")
        assert (refused.returncode, "CERTIFICATE_VERIFY_FAILED" in refused.stderr) == (4, True), refused
        assert refused.stderr.endswith("certificate, as in ?ssl_ca_certs=/etc/ssl/ca.pem.\n")
