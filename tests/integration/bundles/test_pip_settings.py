"""What pip is configured with reaches a real uv: each setting of the table decides which version is installed."""

import base64
import datetime
import hashlib
import io
import ipaddress
import os
import re
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from runner.bundles import pip_settings, uv_build
from runner.bundles.environment import asked_for
from runner.core.errors import EnvironmentFailed

pytestmark = pytest.mark.skipif(not uv_build.uv(), reason="uv is not installed")

BACKEND = """
import pathlib, shutil
def build_wheel(folder, *_):
    [built] = pathlib.Path("built").iterdir()
    shutil.copy(built, folder)
    return built.name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "thing"
version = "{version}"
"""


def wheel(version: str, name: str = "thing") -> bytes:
    """A wheel of a module that has nothing in it."""
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{about}/METADATA": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    with zipfile.ZipFile(found := io.BytesIO(), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(text)}")
        archive.writestr(f"{about}/RECORD", "\n".join([*lines, f"{about}/RECORD,,"]))
    return found.getvalue()


def source(version: str) -> bytes:
    """Its source, whose build needs nothing."""
    files = {
        "PKG-INFO": f"Metadata-Version: 2.2\nName: thing\nVersion: {version}\n".encode(),
        "pyproject.toml": PROJECT.format(version=version).encode(),
        "backend.py": BACKEND.encode(),
        f"built/thing-{version}-py3-none-any.whl": wheel(version),
    }
    with tarfile.open(fileobj=(found := io.BytesIO()), mode="w:gz") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"thing-{version}/{path}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return found.getvalue()


FILES = {
    "thing-1.0-py3-none-any.whl": wheel("1.0"),
    "thing-2.0.tar.gz": source("2.0"),
    "thing-3.0-py3-none-any.whl": wheel("3.0"),
    "thing-4.0.tar.gz": source("4.0"),
    "thing-5.0rc1-py3-none-any.whl": wheel("5.0rc1"),
}


class Index(ThreadingHTTPServer):
    """Indexes by their path: of all versions, of one, one with a login, one that fails at first, one that hangs."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.failures = 1
        self.ended = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: Index

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""

    def do_HEAD(self) -> None:
        """Serve what is said of a file."""
        self.do_GET()

    def do_GET(self) -> None:
        """Serve a list of files, or one."""
        path = self.path.removeprefix("http://packages.invalid").split("#")[0]
        _, index, name, file = [*path.split("/"), "", "", ""][:4]
        body, status, more = b"", 404, {}
        if name == "thing":
            names = [one for one in FILES if index != "old" or one.startswith("thing-1.0")]
            listed = "".join(f'<a href="/{index}/files/{one}">{one}</a>' for one in names)
            body, status = (FILES[file] if file else f"<!DOCTYPE html><body>{listed}".encode()), 200
        elif name == "files":
            body, status = FILES[file], 200
        if index == "hangs":
            self.server.ended.wait(60)
        if index == "fails" and name == "thing" and self.server.failures:
            self.server.failures -= 1
            status = 503
        if index == "private" and self.headers["Authorization"] != f"Basic {base64.b64encode(b'me:secret').decode()}":
            status, more = 401, {"WWW-Authenticate": "Basic"}
        self.send_response(status)
        for key, value in {"Content-Type": "text/html", "Content-Length": str(len(body)), **more}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[Path, Path]:
    """An authority, and what it says of this machine, with its key."""
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(1)
    issuer, here = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("authority", "here"))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    paths = tmp_path / "authority.pem", tmp_path / "here.pem"
    for is_authority, key, path in zip((True, False), keys, paths, strict=True):
        subject = issuer if is_authority else here
        made = x509.CertificateBuilder(issuer, subject, key.public_key(), 1 + is_authority, now - day, now + day)
        made = made.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        signed = made.add_extension(address, critical=False).sign(keys[0], hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(signed.public_bytes(Encoding.PEM) + (b"" if is_authority else private))
    return paths


@pytest.fixture
def urls(certificates: tuple[Path, Path]) -> Iterator[dict[str, str]]:
    """Servers of them: by HTTP, by HTTPS, and by HTTPS with certificates on both sides."""
    plain, mutual = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for one in (plain, mutual):
        one.load_cert_chain(certificates[1])
    mutual.verify_mode = ssl.CERT_REQUIRED
    mutual.load_verify_locations(certificates[0])
    servers = {"url": Index(), "tls": Index(plain), "mutual": Index(mutual)}
    for server in servers.values():
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {
        name: f"http{'' if name == 'url' else 's'}://127.0.0.1:{server.server_port}" for name, server in servers.items()
    }
    for server in servers.values():
        server.ended.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds an environment with one of these requirements where pip is configured so; gives what is installed."""
    for name in [one for one in os.environ if one.startswith(("PIP_", "UV_", "SSL_CERT", "SSL_CLIENT"))]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(pip_settings, "_files", lambda _: [])
    (ours := tmp_path / "ours-1.0-py3-none-any.whl").write_bytes(wheel("1.0", "ours"))
    monkeypatch.setattr(uv_build, "runner_wheel", lambda _: ours)
    (wheels := tmp_path / "wheels").mkdir()
    for name, data in FILES.items():
        (wheels / name).write_bytes(data)

    def built(requirement: str, **given: str) -> str:
        for name, value in given.items():
            monkeypatch.setenv(f"PIP_{name.upper()}", value)
        (folder := tmp_path / "agent").mkdir(exist_ok=True)
        (folder / "requirements.txt").write_text(f"{requirement}\n")
        wanted = asked_for(folder / "crew.py", folder)
        assert wanted is not None
        python = uv_build.built(wanted, tmp_path / "cache")
        code = "from importlib.metadata import version; print(version('ours'), version('thing'))"
        ours, thing = subprocess.check_output([python, "-c", code], text=True).split()
        assert ours == "1.0"
        return thing

    return built


LOCAL = {"no_index": "1", "find_links": "{wheels}"}


CASES = [
    (LOCAL, "thing", "4.0"),
    ({**LOCAL, "only_binary": ":all:"}, "thing", "3.0"),
    ({**LOCAL, "only_binary": "other,thing"}, "thing", "3.0"),
    ({**LOCAL, "no_binary": "thing"}, "thing<4", "2.0"),
    ({**LOCAL, "no_binary": ":all:"}, "thing<4", "2.0"),
    ({**LOCAL, "pre": "yes"}, "thing", "5.0rc1"),
    ({**LOCAL, "pre": "no"}, "thing", "4.0"),
    ({**LOCAL, "constraint": "{constraints}"}, "thing", "1.0"),
    ({"index_url": "{url}/old"}, "thing", "1.0"),
    ({"index_url": "{url}/old", "extra_index_url": "{url}/all"}, "thing", "4.0"),
    ({"index_url": "{url}/fails"}, "thing", "4.0"),
    ({"index_url": "{url}/fails", "retries": "0"}, "thing", "503"),
    ({"index_url": "{url}/hangs", "retries": "0", "timeout": "1.0"}, "thing", "timed out|timeout"),
    ({"index_url": "http://packages.invalid/old", "proxy": "{url}"}, "thing", "1.0"),
    ({"index_url": "{login}/private", "keyring_provider": "subprocess"}, "thing", "4.0"),
    ({"index_url": "{login}/private", "keyring_provider": "auto"}, "thing", "401|credentials"),
    ({**LOCAL, "build_constraint": "/nowhere.txt"}, "thing", "/nowhere.txt"),
    ({"index_url": "{tls}/old"}, "thing", "certificate|UnknownIssuer"),
    ({"index_url": "{tls}/old", "cert": "{authority}"}, "thing", "1.0"),
    ({"index_url": "{tls}/old", "trusted_host": "127.0.0.1"}, "thing", "1.0"),
    ({"index_url": "{mutual}/old", "cert": "{authority}"}, "thing", "certificate|CertificateRequired|error"),
    ({"index_url": "{mutual}/old", "cert": "{authority}", "client_cert": "{here}"}, "thing", "1.0"),
]
"""How pip is configured, what is asked for, and the version that is installed, or what uv says."""


def test_each_setting_is_held_against_uv() -> None:
    known = {*(name for name, *_ in pip_settings._SETTINGS), *pip_settings._OPTIONS}
    assert {name.replace("_", "-") for given, _, _ in CASES for name in given} == known


@pytest.mark.parametrize(("given", "requirement", "installed"), CASES, ids=str)
def test_uv_installs_what_pip_would(
    given: dict[str, str],
    requirement: str,
    installed: str,
    build: Any,
    urls: dict[str, str],
    certificates: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (constraints := tmp_path / "constraints.txt").write_text("thing<2\n")
    places = {**urls, "wheels": tmp_path / "wheels", "constraints": constraints}
    places |= {"authority": certificates[0], "here": certificates[1]}
    told = {name: value.format(**places, login=urls["url"].replace("//", "//me@")) for name, value in given.items()}
    if "keyring_provider" in given:
        (program := tmp_path / "keyring").write_text("#!/bin/sh\necho secret\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    if re.fullmatch(r"[\d.rc]+\.[\d.rc]+", installed):
        assert build(requirement, **told) == installed
        return
    with pytest.raises(EnvironmentFailed, match=installed):
        build(requirement, **told)
