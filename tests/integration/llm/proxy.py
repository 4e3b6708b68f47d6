"""Who stands between a client and its service: a proxy by requests, by tunnels, by SOCKS, that lets in or refuses."""

import base64
import contextlib
import socket
import socketserver
import struct
import threading
from urllib.parse import urlsplit

_LETS_IN = base64.b64encode(b"me:secret")


class Proxy(socketserver.ThreadingTCPServer):
    """Passes on what it is asked for, by whichever of the three ways.

    ``refuses`` is the status with which it refuses all; ``closed``: it lets in who shows a password.
    """

    daemon_threads = True

    def __init__(self, refuses: int = 0, *, closed: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.refuses, self.closed = refuses, closed
        self.asked: list[bytes] = []  #: the method, or SOCKS
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, scheme: str = "http") -> str:
        who = "me:secret@" if self.closed else ""
        return f"{scheme}://{who}127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None: ...


class _Asked(socketserver.BaseRequestHandler):
    server: Proxy
    request: socket.socket

    def handle(self) -> None:
        data = self.request.recv(65536)
        if data[:1] == b"\x05":
            self._socks()
            return
        while b"\r\n\r\n" not in data:
            data += self.request.recv(65536)
        method, target, _ = data.split(b"\r\n")[0].split()
        self.server.asked.append(method)
        refused = self.server.refuses or (407 if self.server.closed and _LETS_IN not in data else 0)
        if refused:
            self.request.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % refused)
        elif method == b"CONNECT":
            host, port = target.decode().split(":")
            self._join(host, int(port), b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            there = urlsplit(target.decode())
            self._join(str(there.hostname), there.port or 80, b"", data)

    def _socks(self) -> None:
        self.server.asked.append(b"SOCKS")
        self.request.sendall(b"\x05\x00")
        asked = self.request.recv(262)
        if asked[3] == 1:
            host, at = socket.inet_ntoa(asked[4:8]), 8
        else:
            at = 5 + asked[4]
            host = asked[5:at].decode()
        self._join(host, struct.unpack(">H", asked[at : at + 2])[0], b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")

    def _join(self, host: str, port: int, said: bytes, first: bytes = b"") -> None:
        with socket.create_connection((host, port)) as there:
            self.request.sendall(said)
            there.sendall(first)
            threading.Thread(target=_pass_on, args=(there, self.request), daemon=True).start()
            _pass_on(self.request, there)


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
