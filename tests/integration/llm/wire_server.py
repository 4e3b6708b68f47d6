"""A server that keeps each request byte for byte, and answers in whatever framing it is told to."""

import gzip
import importlib
import json
import socket
import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any

CHAT = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "gpt",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
}  # fmt: skip
EVENTS = [b'data: {"n": %d}\n\n' % n for n in range(3)] + [b"data: [DONE]\n\n"]


@dataclass
class Reply:
    """What is answered: ``pieces`` are chunks; ``cut`` ends the connection before the last; ``hangs`` sends nothing."""

    status: int = 200
    body: bytes = field(default_factory=lambda: json.dumps(CHAT).encode())
    pieces: Iterable[bytes] | None = None
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    is_gzipped: bool = False
    trailers: dict[str, str] = field(default_factory=dict)  #: what is said after the last piece
    cut: bool = False
    hangs: bool = False


def events(**options: Any) -> Reply:
    return Reply(pieces=EVENTS, headers={"Content-Type": "text/event-stream"}, **options)


def encoded(reply: Reply, encoding: str) -> Reply:
    """The same, encoded. What is in no encoding that is known here is as it was."""
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    encode = {
        "gzip": lambda text: gzip.compress(text, mtime=0),
        "deflate": zlib.compress,
        "deflate, unframed": lambda text: raw.compress(text) + raw.flush(),
        "zstd": lambda text: importlib.import_module("zstandard").compress(text),
    }.get(encoding, bytes)
    headers = {**reply.headers, "Content-Encoding": encoding.partition(",")[0]}
    if reply.pieces is None:
        return replace(reply, body=encode(reply.body), headers=headers)
    text = encode(b"".join(reply.pieces))
    return replace(reply, pieces=[text[:9], text[9:]], headers=headers)


class WireServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.log: list[tuple[str, str, tuple[tuple[str, str], ...], bytes]] = []
        self.arrived: list[str] = []  #: the paths of all requests, also of those whose body never came
        self.connections = 0  #: those that are open
        self.reply: Callable[[int], Reply] = lambda number: Reply()
        self.lock = threading.Lock()
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def chat(self) -> str:
        return f"{self.url}/chat/completions"

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.lock:
            self.connections += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        super().process_request_thread(request, client_address)
        with self.lock:
            self.connections -= 1

    def handle_error(self, request: Any, client_address: Any) -> None: ...

    def __enter__(self) -> "WireServer":
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: WireServer

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        self.server.arrived.append(self.path)
        body = self._chunks() if self.headers.get("Transfer-Encoding") else self._read(self.headers["Content-Length"])
        with self.server.lock:
            self.server.log.append((self.command, self.path, tuple(self.headers.items()), body))
            reply = self.server.reply(len(self.server.log))
        if reply.hangs:
            self.server.over.wait(20)
            self.close_connection = True
            return
        data: Any = reply.pieces if reply.pieces is not None else [reply.body]
        if reply.is_gzipped:
            data = [gzip.compress(b"".join(data), mtime=0)]
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.is_gzipped:
            self.send_header("Content-Encoding", "gzip")
        if reply.pieces is not None:
            self.send_header("Transfer-Encoding", "chunked")
            ends = "".join(f"{name}: {value}\r\n" for name, value in reply.trailers.items()).encode()
            data = chain((b"%x\r\n%b\r\n" % (len(one), one) for one in data), [b"0\r\n%b\r\n" % ends])
        else:
            self.send_header("Content-Length", str(len(data[0])))
            data = [data[0][: len(data[0]) // 2], data[0][len(data[0]) // 2 :]]
        self.end_headers()
        for one in list(data)[: -2 if reply.pieces is not None else -1] if reply.cut else data:
            self.wfile.write(one)
            self.wfile.flush()
        if reply.cut:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    do_GET = do_POST

    def _read(self, length: str | None) -> bytes:
        return self.rfile.read(int(length or 0))

    def _chunks(self) -> bytes:
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += b"[" + self.rfile.read(size) + b"]"
            self.rfile.readline()
        self.rfile.readline()
        return found
