"""What leaves by the standard library's HTTP connections, on which urllib3, and so requests and botocore, are built.

A call of a model that leaves by one without them, as by urllib, is not recorded: it is counted.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from runner.core.context_value import ContextValue
from runner.llm.recording import unrecorded
from runner.llm.recording.recorded_call import RecordedCall

_outgoing: ContextVar["Outgoing | None"] = ContextVar("runner_outgoing_request", default=None)


class Outgoing:
    """A request that is about to leave through a connection, told from what else does by its method."""

    def __init__(self, method: str, body: bytes, call: RecordedCall) -> None:
        self._begin, self._rest, self._call = f"{method} ".encode("latin-1"), len(body), call
        self._has_begun = False

    def leaves(self, data: Any) -> None:
        """These are the next bytes that go out: headers, a part of the body, or both."""
        if not isinstance(data, bytes | bytearray):
            return
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


def _look(connection: Any, data: bytes) -> None:
    """Look at what goes out by itself: the headers of a request, then its body."""
    about = vars(connection)
    url = about.pop("runner_asks", None)
    if data.startswith(b"POST "):
        scheme = "https" if connection.default_port == 443 else "http"
        port = "" if connection.port == connection.default_port else f":{connection.port}"
        asks = f"{scheme}://{connection.host}{port}{data.split(b' ', 2)[1].decode('latin-1')}"
        if unrecorded.may_be("POST", asks):
            about["runner_asks"] = asks
    elif url is not None:
        unrecorded.look_at("POST", url, data)


def leaving(outgoing: Outgoing | None) -> ContextValue[Outgoing | None]:
    """What is sent in here is this request; with None, another one that is of no concern."""
    return ContextValue(_outgoing, outgoing)


def install(library: Any) -> None:
    """Watch the connections of ``http.client``, once in a process."""
    connection = library.HTTPConnection
    send: Callable[[Any, Any], None] = connection.send
    if getattr(send, "journaled", False):
        return

    def watched(self: Any, data: Any) -> None:
        outgoing = _outgoing.get()
        if outgoing is not None:
            if self.sock is None and self.auto_open:
                self.connect()  # as it does by itself: a call begins when it has its connection
            outgoing.leaves(data)
        elif isinstance(data, bytes):
            _look(self, data)
        send(self, data)

    watched.journaled = True  # type: ignore[attr-defined]  # a mark on a function
    connection.send = watched
