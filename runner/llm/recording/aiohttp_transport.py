"""The journal at aiohttp's sessions, through which google-genai, LiteLLM and azure-core send what is awaited.

`ClientSession._request` is what each request of a session passes, whoever asks for it, with its redirects;
`ClientRequest.send` is where one has its connection and goes out.
"""

import asyncio
import inspect
import io
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from http.client import responses
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from runner.core.context_value import ContextValue
from runner.journal.current_journal import current_journal
from runner.llm.recording import idempotency_header, unrecorded, wire
from runner.llm.recording.awaited_calls import make, passed_on
from runner.llm.recording.forked_processes import forks
from runner.llm.recording.recorded_call import RecordedCall, parse_request
from runner.llm.recording.tee import Tee
from runner.llm.recording.wrapping import wrap
from runner.modelserver.stubs import elsewhere

# Without their types, as what is private of them is used
client, multidict = (import_module(name) for name in ("aiohttp.client", "multidict"))
StreamReader: Any = import_module("aiohttp.streams").StreamReader

_DECODED = frozenset({"gzip", "deflate", "br", "zstd"})  #: by the library
_making: ContextVar[RecordedCall | None] = ContextVar("runner_aiohttp_call", default=None)


def install(module: Any) -> None:
    """Have the sessions of ``aiohttp.client`` journaled. Does nothing the second time."""
    wrap(module.ClientSession, "_request", _journaled)
    wrap(module.ClientRequest, "send", _watched)
    wrap(module.ClientSession, "_ws_connect", _counted)


def _counted(theirs: Any) -> Any:
    async def ws_connect(self: Any, url: Any, **kw: Any) -> Any:  # which is refused where it is awaited
        unrecorded.look_at_socket(str(_address(self, url, None)))
        return await theirs(self, url, **kw)

    return ws_connect


def _journaled(theirs: Any) -> Any:
    async def request(self: Any, method: str, str_or_url: Any, **kw: Any) -> Any:
        url = _address(self, str_or_url, kw.get("params"))
        if idempotency_header.is_wanted(method.upper(), str(url)):
            await _add_key(self, url, kw)
        found = current_journal(imports=True) if wire.may_be(method.upper(), str(url)) else None
        body = _text(self, kw) if found is not None else None
        if found is not None and body is None:
            body, kw["data"] = await _read(kw.get("data"))
        asked = (
            parse_request(method.upper(), str(url), body, *found) if found is not None and body is not None else None
        )
        if found is None or asked is None:
            if body is None if found is not None else forks.task:
                unrecorded.look_at(method.upper(), str(url), _text(self, kw))
            if _making.get() is None:
                return await theirs(self, method, str_or_url, **kw)
            with ContextValue(_making, None):  # what a call's own middleware asks on its way, as for a token
                return await theirs(self, method, str_or_url, **kw)
        call = RecordedCall(asked, *found)
        if call.is_held:
            await call.hold_async()
        if (answer := call.recorded(refused=client.ClientError)) is not None:
            response = await _response(self, method, url, answer, call.break_off_async if call.breaks_off else None)
            await _raise_for_status(self, kw, response)
            return response
        await call.wait_async()
        stub = elsewhere(str(url), call.instead)
        return await make(call, partial(_made, theirs, call, self, method, str_or_url if stub is None else stub, kw))

    return request


async def _made(theirs: Any, call: RecordedCall, session: Any, method: str, str_or_url: Any, kw: dict[str, Any]) -> Any:
    """The response of the service, recorded if it can be taken."""
    with ContextValue(_making, call):
        try:
            response = await theirs(session, method, str_or_url, **kw)
        except client.ClientResponseError as error:  # as `_raise_for_status`
            call.answered(error.status, (error.headers or {}).items())
            if call.is_refused:
                call.refused(b"")
            raise
    is_taken = call.answered(response.status, response.headers.items())
    if call.came_late and call.is_left_unread:
        response.close()
        raise call.came_late[1]
    if not (is_taken or call.is_refused):
        return response
    encoded = not _decodes(session, kw, response)
    if call.streams:
        response.content = _Reader(response.content, call.tee(encoded=encoded))
    else:
        body = await response.read()
        (call.whole if is_taken else call.refused)(body, encoded=encoded)
        response.content = _reader(body)
    return response


def _watched(theirs: Any) -> Any:
    async def send(self: Any, *args: Any, **kw: Any) -> Any:
        call = _making.get()
        if call is None or self.method == "CONNECT":  # which asks a proxy for its tunnel
            return await theirs(self, *args, **kw)
        call.headers_leave()
        call.body_leaves()
        response = await theirs(self, *args, **kw)
        call.body_has_left()
        return response

    return send


async def _add_key(session: Any, url: Any, kw: dict[str, Any]) -> None:
    headers = multidict.CIMultiDict(kw.get("headers") or {})
    if idempotency_header.NAME in headers or idempotency_header.NAME in session.headers:
        return
    if (body := _text(session, kw)) is None:
        body, kw["data"] = await _read(kw.get("data"))
    if body is not None:  # of one that the library alone can read there is no telling it from another
        headers[idempotency_header.NAME] = idempotency_header.value_for(str(url), body)
        kw["headers"] = headers


def _address(session: Any, str_or_url: Any, params: Any) -> Any:
    url = session._build_url(str_or_url)
    return url.update_query(params) if params else url


def _text(session: Any, kw: dict[str, Any]) -> bytes | None:
    """A request's body; None if it is only known as it goes out."""
    data = kw.get("data")
    if kw.get("json") is not None:
        data = session._json_serialize(kw["json"])
    if data is None:
        return b""
    data = getattr(data, "_value", data)  # of a payload
    return data.encode() if isinstance(data, str) else bytes(data) if isinstance(data, bytes | bytearray) else None


async def _read(data: Any) -> tuple[bytes | None, Any]:
    """A body that is only known as it goes out, and what to send in its place: the same, in the same pieces."""
    if hasattr(data, "__aiter__"):
        pieces = [bytes(piece) async for piece in data]
        return b"".join(pieces), _again(pieces)
    if isinstance(data, io.IOBase) and data.seekable():
        begins, text = data.tell(), data.read()
        data.seek(begins)
        return text.encode() if isinstance(text, str) else text, data
    form_class = import_module("aiohttp.formdata").FormData
    if isinstance(data, Mapping | list | tuple):
        data = form_class(data)
    if not isinstance(data, form_class):
        return None, data
    form, pieces = data(), []
    await form.write(SimpleNamespace(write=_appending(pieces)))
    text = b"".join(pieces)
    return text, import_module("aiohttp.payload").BytesPayload(text, content_type=form.headers["Content-Type"])


def _appending(pieces: list[bytes]) -> Callable[[Any], Awaitable[None]]:
    async def write(piece: Any) -> None:
        pieces.append(bytes(piece))

    return write


async def _again(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _decodes(session: Any, kw: dict[str, Any], response: Any) -> bool:
    """Whether the library has decoded an answer: it does so where who asked does not want to do it by itself."""
    told = kw.get("auto_decompress")
    wanted = session.auto_decompress if told is None else told
    return wanted and response.headers.get("Content-Encoding", "").lower() in _DECODED


class _Part(StreamReader):  # type: ignore[misc]  # of the library
    """The part of a body that is recorded. Its reader then gets what ``ends`` raises."""

    ends: Callable[[], Awaitable[None]]

    async def _wait(self, _: str) -> None:
        await self.ends()


def _reader(body: bytes, ends: Callable[[], Awaitable[None]] | None = None) -> Any:
    """A stream of the library's with this body, which is complete, unless it ``ends`` otherwise."""
    loop = asyncio.get_running_loop()
    protocol = import_module("aiohttp.base_protocol").BaseProtocol(loop=loop)
    reader = (StreamReader if ends is None else _Part)(protocol, len(body) + 1, loop=loop)
    if body:
        reader.feed_data(body)
    if ends is None:
        reader.feed_eof()
    else:
        reader.ends = ends
    return reader


async def _raise_for_status(session: Any, kw: dict[str, Any], response: Any) -> None:
    """Do what a session does with a response if its author wants an error where it is a refusal."""
    told = kw.get("raise_for_status")
    told = session._raise_for_status if told is None else told
    if callable(told):
        await told(response)
    elif told:
        response.raise_for_status()


async def _response(
    session: Any, method: str, url: Any, answer: wire.Answer, ends: Callable[[], Awaitable[None]] | None = None
) -> Any:
    """The response of the library's that a recorded answer is."""
    headers = multidict.CIMultiDict(answer.headers)
    no_headers = multidict.CIMultiDictProxy(multidict.CIMultiDict())
    about = {
        "writer": None, "continue100": None, "timer": None, "traces": [], "session": session,
        "loop": asyncio.get_running_loop(), "stream_writer": SimpleNamespace(output_size=0),
        "request_info": client.RequestInfo(url, method, no_headers, url),
    }  # fmt: skip
    kind = session._response_class
    takes = inspect.signature(kind.__init__).parameters
    response = kind(method, url, **{name: value for name, value in about.items() if name in takes})
    message = SimpleNamespace(
        version=import_module("aiohttp.http").HttpVersion11,
        code=answer.status,
        reason=responses.get(answer.status, ""),
        headers=multidict.CIMultiDictProxy(headers),
        raw_headers=tuple((name.encode(), value.encode()) for name, value in answer.headers),
    )
    return await response.start(_Recorded(message, _reader(answer.body, ends)))


class _Recorded:
    """The connection of a response that came from the journal."""

    upgraded = False

    def __init__(self, message: Any, content: Any) -> None:
        self._message, self._content = message, content
        self.protocol = self

    async def read(self) -> Any:
        return self._message, self._content

    def release(self) -> None: ...

    def close(self) -> None: ...


def _reading(name: str) -> Any:
    """A method that reads by the library's method of this name."""

    async def read(self: Any, *args: Any, **kw: Any) -> Any:
        return await self.passed(getattr(self.source, name)(*args, **kw))

    return read


class _Reader:
    """Passes a stream on while keeping it, with the iterators of aiohttp's own class."""

    __aiter__, iter_any = StreamReader.__aiter__, StreamReader.iter_any
    iter_chunked, iter_chunks = StreamReader.iter_chunked, StreamReader.iter_chunks
    read, readany, readchunk = _reading("read"), _reading("readany"), _reading("readchunk")
    readline, readuntil, readexactly = _reading("readline"), _reading("readuntil"), _reading("readexactly")

    def __init__(self, source: Any, tee: Tee) -> None:
        self.source, self._tee = source, tee

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    async def passed(self, reading: Awaitable[Any]) -> Any:
        try:
            found = await passed_on(reading, self._tee, self._take)
            if self._tee.has_said_all:
                await self._take_rest()
        except BaseException as error:
            self._tee.broke(error)
            raise
        return found

    async def _take_rest(self) -> None:
        """Read the rest of the stream, which its reader may never ask for. They still get it if they do."""
        rest = await self.source.read()
        self._take(rest)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            self.source.unread_data(rest)

    def _take(self, found: bytes | tuple[bytes, bool]) -> None:
        if piece := found[0] if isinstance(found, tuple) else found:
            self._tee.passed(piece)
        if self.source.at_eof():
            self._tee.ended()

    def read_nowait(self, n: int = -1) -> Any:
        found = self.source.read_nowait(n)
        self._take(found)
        return found

    def set_exception(self, *args: Any, **kw: Any) -> None:
        """The response is closed, or its connection broke."""
        try:
            self.source.set_exception(*args, **kw)
        finally:
            self._tee.left()
