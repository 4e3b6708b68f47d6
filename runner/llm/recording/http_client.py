"""What leaves by the standard library's HTTP connections, on which urllib3, and so requests and botocore, are built.

A call of a model that leaves by one without them, as by urllib, is not recorded: it is counted. Beside a stand-in it is
refused, and until its body says what it is nothing of it leaves.
"""

import io
import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from runner.core.context_value import ContextValue
from runner.llm.recording import idempotency_header, unrecorded
from runner.llm.recording.recorded_call import RecordedCall
from runner.llm.recording.wrapping import wrap

_REQUEST = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.\d\r\n")
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d+)", re.IGNORECASE | re.MULTILINE)
_CHUNKED = re.compile(rb"^transfer-encoding:", re.IGNORECASE | re.MULTILINE)
_EXPECT = re.compile(rb"^expect:", re.IGNORECASE | re.MULTILINE)
_outgoing: ContextVar["Outgoing | None"] = ContextVar("runner_outgoing_request", default=None)


class Outgoing:
    """A request that is about to leave through a connection, told from what else does by its method."""

    def __init__(self, method: str, body: bytes, call: RecordedCall) -> None:
        self._begin, self._rest, self._call = f"{method} ".encode("latin-1"), len(body), call
        self._has_begun = False

    def leaves(self, data: Any) -> None:
        """These are the next bytes that go out: headers, a part of the body, or both."""
        if not isinstance(data, bytes | bytearray | memoryview):
            return
        data = bytes(data)
        if not self._has_begun:
            if not data.startswith(self._begin):  # it asks a proxy for its tunnel
                return
            self._has_begun = True
            self._call.headers_leave()
            data = data.partition(b"\r\n\r\n")[2]
        if data:
            self._call.body_leaves()
            self._rest -= len(data)  # pieces have their lengths beside them: then it counts as whole a little early
            if self._rest <= 0:
                self._call.body_has_left()


class _Unrecorded:
    """A request that is not recorded, and may be a call of a model: what it is, its body says when that is whole."""

    def __init__(self, url: str, head: bytes) -> None:
        self._url = url
        length = _LENGTH.search(head)
        self._rest = int(length[1]) if length else None  #: bytes of its body that are to come; None: it is in chunks
        self._pieces: list[bytes] = []
        self._unread = b""
        # Not where its sender waits for a word of the server before its body comes, or where none does.
        has_body = bool(self._rest or _CHUNKED.search(head)) and not _EXPECT.search(head)
        self._is_held = has_body and unrecorded.standin() is not None
        self._held: list[Any] = []

    def released(self, data: Any, is_whole: bool) -> list[Any]:
        """What may leave now that these bytes are about to: where it may be refused, all at once or nothing."""
        if not self._is_held:
            return [data]
        self._held.append(data)
        return self._held if is_whole else []

    def leaves(self, data: Any) -> bool:
        """These bytes of its body are about to leave. Returns whether more may follow."""
        try:
            piece = bytes(memoryview(data))
        except TypeError:  # a file, or an iterator, that is read as it leaves
            unrecorded.look_at("POST", self._url, None)
            return False
        if self._rest is None:
            try:
                is_whole = self._has_last_chunk(piece)
            except ValueError:  # it ends with its connection
                unrecorded.look_at("POST", self._url, None)
                return False
        else:
            self._pieces.append(piece)
            self._rest -= len(piece)
            is_whole = self._rest <= 0
        if is_whole:
            unrecorded.look_at("POST", self._url, b"".join(self._pieces))
        return not is_whole

    def _has_last_chunk(self, piece: bytes) -> bool:
        self._unread += piece
        while (end := self._unread.find(b"\r\n")) >= 0:
            size, begins = int(self._unread[:end].partition(b";")[0], 16), end + 2
            if not size:
                return True
            if len(self._unread) < begins + size + 2:
                return False
            self._pieces.append(self._unread[begins : begins + size])
            self._unread = self._unread[begins + size + 2 :]
        return False


def _look(connection: Any, data: Any) -> list[Any]:
    """Look at what goes out by itself: the headers of a request, then its body, in one piece or several.

    Returns what may leave now.
    """
    about = vars(connection)
    asks: _Unrecorded | None = about.pop("runner_asks", None)
    if isinstance(data, bytes) and (begins := _REQUEST.match(data)) is not None:
        if begins[1] != b"POST":
            return [data]
        url = _address(connection, begins[2].decode("latin-1"))
        if not unrecorded.may_be("POST", url):
            return [data]
        if connection.sock is None and connection.auto_open:
            connection.connect()  # as it does by itself: it has sent what asks a proxy for the tunnel before
        head, _, body = data.partition(b"\r\n\r\n")
        asks = _Unrecorded(url, head)
        is_whole = bool(body) and not asks.leaves(body)
    elif asks is not None:
        is_whole = not asks.leaves(data)
    else:
        return [data]
    if not is_whole:
        about["runner_asks"] = asks
    return asks.released(data, is_whole)


def _address(connection: Any, target: str) -> str:
    """Where a request goes: a proxy is told so, one whose tunnel leads there is not."""
    if "://" in target:
        return target
    host, port = connection._tunnel_host or connection.host, connection.port
    if connection._tunnel_host:
        port = connection._tunnel_port
    host = f"[{host}]" if ":" in host else host
    scheme = "https" if connection.default_port == 443 else "http"
    return f"{scheme}://{host}{'' if port == connection.default_port else f':{port}'}{target}"


def with_key(method: str, url: str, body: Any, headers: Any) -> tuple[Any, Any]:
    """The body and the headers, with the idempotency key of the tool that asks, if this service is to have it."""
    is_wanted = idempotency_header.is_wanted(method, url)
    if not is_wanted or idempotency_header.NAME.lower() in map(str.lower, headers):
        return body, headers
    text, body = text_of(body)
    return body, {**headers, idempotency_header.NAME: idempotency_header.value_for(url, text)}


def text_of(body: Any) -> tuple[bytes, Any]:
    """A request's body, and what to send in its place: the same, framed in the same way."""
    if body is None or isinstance(body, bytes | bytearray | memoryview):
        return bytes(body or b""), body
    if isinstance(body, str):
        return body.encode(), body
    if hasattr(body, "read"):
        read = body.read()
        text = read.encode() if isinstance(read, str) else bytes(read)
        return text, io.StringIO(read) if isinstance(read, str) else io.BytesIO(text)
    try:
        pieces = list(body)
        return b"".join(one.encode() if isinstance(one, str) else bytes(one) for one in pieces), iter(pieces)
    except TypeError:
        return b"", body


def leaving(outgoing: Outgoing | None) -> ContextValue[Outgoing | None]:
    """What is sent in here is this request; with None, another one that is of no concern."""
    return ContextValue(_outgoing, outgoing)


def install(library: Any) -> None:
    """Watch the connections of ``http.client``, once in a process."""
    wrap(library.HTTPConnection, "send", _watched)
    wrap(library.HTTPConnection, "request", _keyed)


def _watched(theirs: Callable[[Any, Any], None]) -> Any:
    def send(self: Any, data: Any) -> None:
        outgoing = _outgoing.get()
        if outgoing is not None:
            if self.sock is None and self.auto_open:
                self.connect()  # as it does by itself: a call begins when it has its connection
            outgoing.leaves(data)
        for one in [data] if outgoing is not None else _look(self, data):
            theirs(self, one)

    return send


def _keyed(theirs: Callable[..., None]) -> Any:
    def request(self: Any, method: str, url: str, body: Any = None, headers: Any = None, **more: Any) -> None:
        headers = {} if headers is None else headers
        if idempotency_header.pattern() is not None:
            body, headers = with_key(method, _address(self, url), body, headers)
        theirs(self, method, url, body, headers, **more)

    return request
