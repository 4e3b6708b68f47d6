"""The journal at urllib3's pools of connections, through which requests, botocore and azure-core send.

`HTTPConnectionPool.urlopen` is the lowest public function that a request passes, once for each attempt that urllib3's
own retries and redirects make: each is a call of its own, as one that a vendor's client repeats is.
"""

import http.client
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import Any

from runner.core import waiting
from runner.core.context_value import ContextValue
from runner.journal.current_journal import current_journal
from runner.llm.recording import http_client, idempotency_header, wire
from runner.llm.recording.http_client import Outgoing, leaving, text_of, with_key
from runner.llm.recording.recorded_call import RecordedCall, parse_request
from runner.llm.recording.tee import Tee
from runner.llm.recording.wrapping import wrap
from runner.modelserver.stubs import elsewhere
from runner.modelserver.stubs.redirect import DROPPED

# Without their types, as what they do by themselves is done here, too
library, errors, retrying = (import_module(name) for name in ("urllib3", "urllib3.exceptions", "urllib3.util.retry"))
HTTPResponse: Any = import_module("urllib3.response").HTTPResponse
HTTPHeaderDict: Any = import_module("urllib3._collections").HTTPHeaderDict

_PIECE = 2**16
_attempt: ContextVar["_Attempt | None"] = ContextVar("runner_urllib3_attempt", default=None)


def install(module: Any) -> None:
    """Have the pools of ``urllib3.connectionpool`` journaled. Does nothing the second time."""
    http_client.install(http.client)
    wrap(module.HTTPConnectionPool, "urlopen", _journaled)


def _journaled(theirs: Any) -> Any:
    def urlopen(
        self: Any,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        retries: Any = None,
        *args: Any,
        **kw: Any,
    ) -> Any:
        if (waiter := waiting.here()) is not None:  # a coroutine that does not await: it would hold up all others
            return waiter.in_thread(partial(urlopen, self, method, url, body, headers, retries, *args, **kw))
        if (before := _attempt.get()) is not None:
            before.is_repeated(retries)
        address = url if "://" in url else _origin(self) + url
        if idempotency_header.pattern() is not None:
            body, headers = with_key(method, address, body, self.headers if headers is None else headers)
        found = current_journal(imports=True) if wire.may_be(method, address) else None
        if found is not None:
            text, body = text_of(body)
            asked = parse_request(method, address, text, *found)
            if asked is not None:
                attempt = _Attempt(self, method, url, address, RecordedCall(asked, *found), kw)
                response, again = attempt.replayed(retries, args[0] if args else kw.get("redirect", True))
                if again is not None:
                    return self.urlopen(method, url, body, headers, again, *args, **kw)
                if response is not None:
                    return response
                return attempt.made(theirs, text, body, headers, retries, *args)
        with nullcontext() if before is None else _making(None):
            return theirs(self, method, url, body, headers, retries, *args, **kw)

    return urlopen


def _origin(pool: Any) -> str:
    host = f"[{pool.host.strip('[]')}]" if ":" in pool.host else pool.host
    default = {"http": 80, "https": 443}.get(pool.scheme)
    return f"{pool.scheme}://{host}" + (f":{pool.port}" if pool.port not in (None, default) else "")


class _Attempt:
    """One attempt to make a request that is a call of a model. ``options`` are those of the pool's method."""

    def __init__(
        self, pool: Any, method: str, url: str, address: str, call: RecordedCall, options: dict[str, Any]
    ) -> None:
        self._pool, self._method, self._url, self._address = pool, method, url, address
        self._call, self._options = call, options
        self._is_over = False

    def replayed(self, retries: Any, redirect: Any) -> tuple[Any, Any]:
        """The recorded response, or how it is repeated after that, as urllib3 does; both None if it is to be made.

        Raises what it raised if it is not repeated.
        """
        try:
            answer = self._call.recorded(errors.TimeoutError, self._pool, self._url, refused=errors.HTTPError)
        except errors.HTTPError as error:
            if self._call.had_begun:
                return self._response(200, (), _Body(b"", error)), None
            if isinstance(error, errors.EmptyPoolError):  # which is not repeated
                raise
            return None, self._repeated(error, None, retries, redirect)
        if answer is None:
            return None, None
        ends = self._call.break_off if self._call.breaks_off else None
        response = self._response(answer.status, answer.headers, _Body(answer.body, ends=ends))
        return response, self._repeated(None, response, retries, redirect) if self._call.is_refused else None

    def made(self, theirs: Callable[..., Any], text: bytes, body: Any, headers: Any, retries: Any, *args: Any) -> Any:
        """The response of the service."""
        self._call.wait()
        pool, url, options = self._pool, self._url, self._options
        stub = elsewhere(self._address, self._call.instead)
        if stub is not None:
            pool, url, options = library.connection_from_url(stub), stub, {**options, "assert_same_host": False}
            headers = {name: value for name, value in (headers or {}).items() if name.lower() not in DROPPED}
        with self._call:
            with _making(self, Outgoing(self._method, text, self._call)):
                try:
                    response = theirs(pool, self._method, url, body, headers, retries, *args, **options)
                except errors.MaxRetryError as error:
                    self._call.broke(error.reason or error)
                    raise
            if self._is_over:
                return response
            is_taken = self._call.answered(response.status, response.headers.items())
            if not (is_taken or self._call.is_refused):
                return response
            take = self._call.whole if is_taken else self._call.refused
            if options.get("preload_content", True):
                take(self._decoded(response.headers, response.data, options.get("decode_content", True)))
                return response
            return self._streamed(response) if self._call.streams else self._whole(response, take)

    def _repeated(self, error: Exception | None, response: Any, retries: Any, redirect: Any) -> Any:
        """How it is repeated after an error or a refusal; None if the response is given. Raises the error."""
        if not isinstance(retries, retrying.Retry):
            retries = retrying.Retry.from_int(retries, redirect=redirect, default=self._pool.retries)
        if error is not None:
            about = {"error": error, "_stacktrace": error.__traceback__}
        elif retries.is_retry(self._method, response.status, "retry-after" in response.headers):
            about = {"response": response}
        else:
            response.retries = retries
            return None
        try:
            retries = retries.increment(self._method, self._url, _pool=self._pool, **about)
        except errors.MaxRetryError:
            if error is not None or retries.raise_on_status:
                raise
            return None
        retries.sleep(response)
        return retries

    def is_repeated(self, retries: Any) -> None:
        """End this attempt: urllib3 makes another one."""
        last = (getattr(retries, "history", ()) or (None,))[-1]
        self._is_over = True
        if last is not None and last.status:
            self._call.answered(last.status, [("Retry-After", "0")])  # urllib3 has thrown the rest away
            if self._call.is_refused:
                self._call.refused(b"")
        else:
            self._call.broke((last and last.error) or ConnectionError())
        self._call.close()

    def _whole(self, response: Any, take: Callable[[bytes], None]) -> Any:
        """The response, which was read, and is still to be read by who asked for it."""
        pieces, broken = [], None
        try:
            pieces.extend(response.stream(_PIECE, decode_content=False))
        except Exception as error:
            broken = error
        raw = b"".join(pieces)
        if broken is None:
            take(self._decoded(response.headers, raw, False))
        else:
            self._call.broke(broken)
        return self._like(response, response.headers, _Body(raw, broken), HTTPResponse)

    def _streamed(self, response: Any) -> Any:
        """The response, recorded when all of it has passed."""
        version = b"HTTP/1.0" if response.version == 10 else b"HTTP/1.1"
        headers = response.headers
        if "content-encoding" in headers:
            headers = wire.unframed(headers.items())
        return self._like(response, headers, _Source(response, self._call.tee(version)), _Streamed)

    def _decoded(self, headers: Any, raw: bytes, is_decoded: bool) -> bytes:
        if is_decoded or "content-encoding" not in headers:
            return raw
        decoded: bytes = HTTPResponse(io.BytesIO(raw), headers=headers, preload_content=True).data
        return decoded

    def _like(self, response: Any, headers: Any, body: Any, kind: Any) -> Any:
        about = {name: getattr(response, name) for name in ("reason", "version", "version_string", "retries")
                 if hasattr(response, name)}  # fmt: skip
        original = getattr(response, "_original_response", None)
        return self._response(response.status, headers, body, kind, original_response=original, **about)

    def _response(self, status: int, headers: Any, body: Any, kind: Any = HTTPResponse, **about: Any) -> Any:
        """A response that is read as this one was asked for."""
        reading = ("preload_content", "decode_content", "enforce_content_length")
        asked = {name: self._options[name] for name in reading if name in self._options}
        about = {"reason": http.client.responses.get(status), "version": 11, **about, **asked}
        return kind(
            body=body,
            headers=HTTPHeaderDict(headers),
            status=status,
            request_method=self._method,
            request_url=self._address,
            **about,
        )


@contextmanager
def _making(attempt: _Attempt | None, outgoing: Outgoing | None = None) -> Iterator[None]:
    """In here this attempt is made."""
    with ContextValue(_attempt, attempt), leaving(outgoing):
        yield


class _Body(io.BytesIO):
    """A body that was read: at its end it raises what the connection did."""

    def __init__(self, raw: bytes, error: Exception | None = None, ends: Callable[[], None] | None = None) -> None:
        super().__init__(raw)
        self._length, self._error, self._ends = len(raw), error, ends

    def isclosed(self) -> bool:
        """Whether there is no more: as a connection's, which closes itself then."""
        return self.closed or (self._error is None and self._ends is None and self.tell() >= self._length)

    def read(self, size: int | None = -1, /) -> bytes:
        read = super().read(size)
        if not read or size in (None, -1):
            if self._error is not None:
                raise self._error
            if self._ends is not None:
                self._ends()
        return read

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(size)


class _Source:
    """A streamed body on its way from the library's response to one that is like it, as a file and piece by piece."""

    def __init__(self, response: Any, tee: Tee) -> None:
        self._response, self._tee = response, tee
        self._pieces: Iterator[bytes] | None = None
        self._rest = b""

    def pieces(self, size: int | None) -> Iterator[bytes]:
        """The pieces, decoded, as they come. Only what is asked first says how long they are at most."""
        return iter(lambda: self._next(size), b"")

    def _next(self, size: int | None) -> bytes:
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        if self._pieces is None:
            self._pieces = self._pass_on(size)
        return next(self._pieces, b"")

    def _pass_on(self, size: int | None) -> Iterator[bytes]:
        held = []
        try:
            for piece in self._response.stream(size or _PIECE, decode_content=True):
                self._tee.passed(piece)
                if self._tee.has_said_all:
                    held.append(piece)
                else:
                    yield piece
            self._tee.ended()
            yield from held
        except BaseException as error:
            self._tee.broke(error)
            raise

    def read(self, size: int | None = None) -> bytes:
        """Read like a file: up to ``size`` bytes, or all."""
        whole = size is None or size < 0
        found = b""
        for piece in self.pieces(None if whole else size):
            found += piece
            if not whole and len(found) >= (size or 0):
                break
        if not whole:
            found, self._rest = found[:size], found[size:]
        return found

    def read1(self, size: int | None = None) -> bytes:
        """Read what is available, up to ``size`` bytes."""
        piece = self._next(size)
        if size is not None and 0 <= size < len(piece):
            piece, self._rest = piece[:size], piece[size:]
        return piece

    @property
    def closed(self) -> bool:
        """Whether it is."""
        return bool(self._response.closed)

    def close(self) -> None:
        """Close it, and the call with it."""
        try:
            self._response.close()
        finally:
            self._tee.left()

    def release(self) -> None:
        """Nothing more is read of it."""
        try:
            self._response.release_conn()
        finally:
            self._tee.left()


class _Streamed(HTTPResponse):  # type: ignore[misc]  # of the library
    """A response whose pieces come as they came."""

    def stream(self, amt: int | None = _PIECE, *_: object, **__: object) -> Iterator[bytes]:
        yield from self._fp.pieces(amt)

    def read_chunked(self, amt: int | None = None, *_: object, **__: object) -> Iterator[bytes]:
        yield from self._fp.pieces(amt)

    def release_conn(self) -> None:
        self._fp.release()
