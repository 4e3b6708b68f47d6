"""The server: threads of the standard library, a log of all that was asked, and a count that no client can lose."""

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runner.modelserver import protocols, responses
from runner.modelserver.answers import Answer, Script, chooser
from runner.modelserver.request import ModelRequest, Protocol

#: Endings of the paths that cost money, and the protocol they speak.
ENDPOINTS: dict[str, Protocol] = {
    "/chat/completions": "openai",
    "/messages": "anthropic",
    "/responses": "responses",
    "/embeddings": "embeddings",
}
#: How an answer is sent by each protocol: whole, and in pieces.
WAYS = {
    "openai": (protocols.openai_body, protocols.openai_stream),
    "anthropic": (protocols.anthropic_body, protocols.anthropic_stream),
    "responses": (responses.body, responses.stream),
}
_SECRET = {"authorization", "x-api-key", "cookie", "proxy-authorization", "api-key"}


class ModelServer:
    """A model server on this machine that answers by ``script``, counts each request and keeps its body.

    ```python
    with ModelServer([Rule("owls", Call("search", {"q": "owls"}), "Owls fly silently.")]) as server:
        os.environ.update(server.environment)      # OPENAI_BASE_URL and so on
        ...
        assert server.paid == 2
    ```

    ``script`` is a text or an `Answer` for all, a list of `Rule`, or a function of the `ModelRequest`; it is called in
    several threads at once. Without one the answer is made of the request alone. The same request gets the same
    answer, ids and tokens too, so that calls that were made twice can be told from different ones.
    """

    def __init__(
        self,
        script: Script = None,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        delay: float = 0.0,
        log_file: str | Path | None = None,
        keep: int | None = None,
        models: tuple[str, ...] = ("test-model",),
    ) -> None:
        self.delay = delay  #: seconds that every answer takes, besides its own
        self.models = models
        self._answer = chooser(script)
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._log: list[ModelRequest] = []
        self._keep = keep
        self._requests = self._paid = self._most = self._now = 0
        self._tokens = [0, 0]
        self._file = Path(log_file).open("a", encoding="utf-8") if log_file else None  # noqa: SIM115 - closed in close
        self._http = _Server((host, port), self)
        self._thread: threading.Thread | None = None

    # -- where it is

    @property
    def root(self) -> str:
        """The address without a path, which Anthropic's client wants (``ANTHROPIC_BASE_URL``)."""
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def url(self) -> str:
        """The address that OpenAI's client wants (``OPENAI_BASE_URL``)."""
        return f"{self.root}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables with which the vendors' clients call this server."""
        return {
            "OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": "none",
            "ANTHROPIC_BASE_URL": self.root, "ANTHROPIC_API_KEY": "none",
        }  # fmt: skip

    # -- what was asked

    @property
    def requests(self) -> int:
        """How many requests came, those that got an error among them."""
        return self._requests

    @property
    def paid(self) -> int:
        """How many requests a vendor would charge for: all that were not answered with an error.

        One counts from the moment it has come, whether or not its client lived to hear the answer.
        """
        return self._paid

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of prompt and completion in all that was paid for."""
        with self._lock:
            return self._tokens[0], self._tokens[1]

    @property
    def at_once(self) -> int:
        """The most requests that were being answered at the same time."""
        return self._most

    @property
    def log(self) -> list[ModelRequest]:
        """The requests in the order they came; with ``keep``, the newest."""
        with self._lock:
            return list(self._log)

    def wait_for(self, count: int, timeout: float = 30.0) -> int:
        """Wait until ``count`` requests have come. Returns how many have; raises `TimeoutError`."""
        with self._came:
            if not self._came.wait_for(lambda: self._requests >= count, timeout):
                raise TimeoutError(f"{self._requests} of {count} requests came in {timeout:g} s")
            return self._requests

    def use(self, script: Script) -> None:
        """Answer by another script from now on."""
        self._answer = chooser(script)

    def reset(self) -> None:
        """Forget all requests; the counts begin at 0."""
        with self._lock:
            self._log.clear()
            self._requests = self._paid = self._most = 0
            self._tokens = [0, 0]

    def summary(self, *, log: bool = False) -> dict[str, Any]:
        """The counts, and with ``log`` the requests; what ``GET /_requests`` answers."""
        with self._lock:
            found: dict[str, Any] = {
                "requests": self._requests, "paid": self._paid,
                "prompt_tokens": self._tokens[0], "completion_tokens": self._tokens[1],
            }  # fmt: skip
            return found | ({"log": [one.to_dict() for one in self._log]} if log else {})

    # -- its life

    def start(self) -> Self:
        """Answer from now on, in threads of this process."""
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="model-server", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """End; connections that are open are cut."""
        self.ended.set()
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
            self._thread = None
        self._http.server_close()
        self._http.cut_all()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- for the handler

    def took(self, path: str, protocol: Protocol, body: dict[str, Any], headers: dict[str, str]) -> ModelRequest:
        """Count a request that has come."""
        with self._came:
            self._requests += 1
            self._now += 1
            self._most = max(self._most, self._now)
            kept = {name: value for name, value in headers.items() if name.lower() not in _SECRET}
            request = ModelRequest(self._requests, protocol, path, body, time.time(), headers=kept)
            self._log.append(request)
            if self._keep is not None:
                del self._log[: -self._keep or None]
            self._came.notify_all()
        return request

    def decide(self, request: ModelRequest) -> Answer:
        """Return the answer to a request, and count what it costs."""
        try:
            answer = self._answer(request)
        except Exception as error:
            answer = Answer(f"the server's script raised {type(error).__name__}: {error}", status=500)
        with self._lock:
            request.status = answer.status
            if answer.status < 400:
                self._paid += 1
                request.usage = protocols.usage_of(request, answer)
                self._tokens[0] += request.usage[0]
                self._tokens[1] += request.usage[1]
            if self._file is not None:
                print(json.dumps(request.to_dict(), ensure_ascii=False), file=self._file, flush=True)
        return answer

    def done(self, request: ModelRequest, delivered: bool) -> None:
        """The answer is sent, or the client has gone."""
        with self._lock:
            self._now -= 1
            request.delivered = delivered


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], owner: ModelServer) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own asks DNS for this host's name, which can take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        """Cut what is open; the thread of each closes its own."""
        with self._guard:
            for one in self._open:
                _cut(one)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no error of ours."""


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the log is the server's."""

    def do_GET(self) -> None:
        owner = self.server.owner
        path, _, query = self.path.partition("?")
        if path == "/_requests":
            return self._json(200, owner.summary(log="log" in query))
        if path.endswith("/models"):
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in owner.models]
            return self._json(200, {"object": "list", "data": models})
        if path in ("/", "/health", "/v1/health"):
            return self._json(200, {"status": "ok"})
        return self._json(404, protocols.error_body("openai", 404, f"there is nothing at {path}"))

    def do_POST(self) -> None:
        owner = self.server.owner
        path = self.path.partition("?")[0]
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == "/_reset":
            owner.reset()
            return self._json(200, owner.summary())
        protocol = next((kind for end, kind in ENDPOINTS.items() if path.endswith(end)), None)
        if protocol is None:
            return self._json(404, protocols.error_body("openai", 404, f"there is nothing at {path}"))
        try:
            body = json.loads(raw)
            if not isinstance(body, dict):
                raise ValueError("it is not an object")
        except ValueError as error:
            return self._json(400, protocols.error_body(protocol, 400, f"the body is not JSON: {error}"))
        request = owner.took(path, protocol, body, dict(self.headers.items()))
        delivered = False
        try:
            delivered = self._give(request, owner.decide(request))
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            owner.done(request, delivered)
        return None

    def _give(self, request: ModelRequest, answer: Answer) -> bool:
        wait = self.server.owner.delay + answer.delay
        if wait > 0:
            self.server.owner.ended.wait(wait)
        if answer.status >= 400:
            head = {} if answer.retry_after is None else {"Retry-After": f"{answer.retry_after}"}
            message = answer.text or f"the script says {answer.status}"
            self._json(answer.status, protocols.error_body(request.protocol, answer.status, message), head)
            return True
        if request.stream and request.protocol != "embeddings":
            return self._stream(request, answer)
        if request.protocol == "embeddings":
            body = protocols.embeddings_body(request)
        else:
            body = WAYS[request.protocol][0](request, answer)
        whole = json.dumps(body, ensure_ascii=False) if answer.body is None else answer.body
        data = b'{"choices": [{"mess' if answer.malformed else whole.encode()
        return self._bytes(answer.status, data, cut=answer.cut)

    def _stream(self, request: ModelRequest, answer: Answer) -> bool:
        pieces = list(WAYS[request.protocol][1](request, answer))
        if answer.malformed:
            pieces[len(pieces) // 2 :] = [b'data: {"choices": [{"del\n\n']
        sent = len(pieces) if answer.cut is None else int(len(pieces) * answer.cut)
        self.send_response(answer.status)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces[:sent]:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if answer.pace:
                self.server.owner.ended.wait(answer.pace)
        if answer.cut is not None:
            self._break()
            return False
        self.wfile.write(b"0\r\n\r\n")
        return True

    def _json(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self._bytes(status, json.dumps(body, ensure_ascii=False).encode(), headers)

    def _bytes(self, status: int, data: bytes, headers: dict[str, str] | None = None, cut: float | None = None) -> bool:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if cut is None:
            self.wfile.write(data)
            return True
        self.wfile.write(data[: int(len(data) * cut)])
        self._break()
        return False

    def _break(self) -> None:
        self.close_connection = True
        _cut(self.connection)
