"""The journal at the transports of httpx, or httpx2, through which most vendors' clients send.

A call of a model that is recorded is answered from the journal and does not leave the process; another one is made, and
recorded when its answer is whole. Anything else passes, and so does everything outside of tasks.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from typing import Any

from runner.core import waiting
from runner.journal import blocking_calls
from runner.journal.current_journal import current_journal
from runner.journal.journal import Journal
from runner.llm.recording import idempotency_header, shared_headers, unrecorded, wire
from runner.llm.recording.awaited_calls import make, passed_on
from runner.llm.recording.event_loops import follow_loop
from runner.llm.recording.forked_processes import forks
from runner.llm.recording.httpx_bodies import leaving_class, part_class
from runner.llm.recording.parsers import parsers
from runner.llm.recording.recorded_call import RecordedCall, parse_request
from runner.llm.recording.tee import Tee
from runner.modelserver.stubs.redirect import redirect_request


def install(library: Any) -> None:
    """Have the transports of a library journaled, once in a process: its own, and others that have its connections."""
    sync, asynchronous = library.HTTPTransport, library.AsyncHTTPTransport
    if getattr(sync.handle_request, "journaled", False):
        return
    stream, async_stream = _streams(library)
    pieces, leaving = _pieces(library), leaving_class(library)

    def journaled(handle: Any) -> Any:
        def handle_request(self: Any, request: Any) -> Any:
            # A coroutine that does not await would hold up all others.
            if waiting.shared and (waiter := waiting.here()) is not None:
                return waiter.in_thread(partial(handle_request, self, request))
            if idempotency_header.pattern() is not None and _wants_key(request):
                _add_key(request, request.read() if hasattr(request, "_content") else pieces.read(request))
            url = str(request.url) if request.method == "POST" or parsers() else ""
            found = current_journal(imports=True) if url and wire.may_be(request.method, url) else None
            body: Any = found and (request._content if hasattr(request, "_content") else pieces.read(request))
            asked = found and parse_request(request.method, url, body, *found)
            if found is None or asked is None:
                if found is None and forks.task:
                    unrecorded.look_at(request.method, str(request.url), request.read())
                return handle(self, redirect_request(library, request))
            call = RecordedCall(asked, *found)
            exchange = _Exchange(library, request, call)
            if call.is_known and (answer := exchange.recorded()) is not None:
                return answer
            found[0].wait_for_turn()
            with call:
                theirs, extensions = request.stream, request.extensions
                request.stream = leaving(exchange, theirs)
                if asked.is_bodiless:
                    exchange.watch()
                try:
                    # It is known by the address that it was meant for, wherever it goes
                    sent = redirect_request(library, request, call.instead)
                    response = (
                        exchange.made(partial(handle, self, sent), found[0])
                        if blocking_calls.in_threads
                        else handle(self, sent)
                    )
                finally:
                    request.stream, request.extensions = theirs, extensions
                is_taken = exchange.taken(response)
                if not (is_taken or call.is_refused):
                    return response
                if call.streams:
                    return exchange.streamed(stream)
                return exchange.whole(pieces, found[0], is_taken=is_taken)

        handle_request.journaled = True  # type: ignore[attr-defined]  # a mark on a function
        return handle_request

    def journaled_async(handle_async: Any) -> Any:
        async def handle_async_request(self: Any, request: Any) -> Any:
            follow_loop(self)
            if idempotency_header.pattern() is not None and _wants_key(request):
                read = hasattr(request, "_content")
                _add_key(request, request.read() if read else await pieces.read_async(request))
            url = str(request.url) if request.method == "POST" or parsers() else ""
            found = current_journal(imports=True) if url and wire.may_be(request.method, url) else None
            body: Any = found and (
                request._content if hasattr(request, "_content") else await pieces.read_async(request)
            )
            asked = found and parse_request(request.method, url, body, *found)
            if found is None or asked is None:
                if found is None and forks.task:
                    unrecorded.look_at(request.method, str(request.url), await request.aread())
                return await handle_async(self, redirect_request(library, request))
            call = RecordedCall(asked, *found)
            exchange = _Exchange(library, request, call)
            if call.is_held:
                await call.hold_async()
            if call.is_known and (answer := exchange.recorded()) is not None:
                return answer
            await call.wait_async()
            if waiting.shared:
                shared_headers.share(request)
            return await make(call, partial(made, self, exchange))

        async def made(self: Any, exchange: _Exchange) -> Any:
            request, call = exchange.request, exchange.call
            extensions = request.extensions
            try:
                response = await handle_async(self, exchange.outgoing_async())
            finally:
                request.extensions = extensions  # it may be sent again, as a call of its own
            is_taken = exchange.taken(response)
            if call.came_late and call.is_left_unread:
                await response.aclose()
                raise call.came_late[1]
            if not (is_taken or call.is_refused):
                return response
            if call.streams:
                return exchange.streamed(async_stream)
            return await exchange.whole_async(await pieces.of_async(response), is_taken=is_taken)

        handle_async_request.journaled = True  # type: ignore[attr-defined]  # a mark on a function
        return handle_async_request

    sync.handle_request = journaled(sync.handle_request)
    asynchronous.handle_async_request = journaled_async(asynchronous.handle_async_request)
    _journal_others(library.BaseTransport, "handle_request", journaled)
    _journal_others(library.AsyncBaseTransport, "handle_async_request", journaled_async)


def _journal_others(base: Any, name: str, journaled: Callable[[Any], Any]) -> None:
    """Have other packages' transports journaled, such as SOCKS, if they send through a pool of their own.

    One that passes its requests on to another transport is let alone: that one is journaled.
    """

    def journal(kind: Any) -> None:
        theirs = vars(kind).get(name)
        if theirs is None or any(hasattr(vars(one).get(name), "journaled") for one in kind.__mro__):
            return
        ours = journaled(theirs)

        @wraps(theirs)
        def handle(self: Any, request: Any) -> Any:
            pool = getattr(self, "_pool", None)
            sends = hasattr(pool, name) and not isinstance(pool, base)
            return (ours if sends else theirs)(self, request)

        handle.journaled = True  # type: ignore[attr-defined]  # a mark on a function
        setattr(kind, name, handle)

    def begun(kind: Any, /, **options: Any) -> None:
        super(base, kind).__init_subclass__(**options)
        journal(kind)

    base.__init_subclass__ = classmethod(begun)
    found = list(base.__subclasses__())
    while found:
        kind = found.pop(0)
        journal(kind)
        found += kind.__subclasses__()


def _wants_key(request: Any) -> bool:
    is_wanted = idempotency_header.is_wanted(request.method, str(request.url))
    return is_wanted and idempotency_header.NAME not in request.headers


def _add_key(request: Any, body: bytes) -> None:
    request.headers[idempotency_header.NAME] = idempotency_header.value_for(str(request.url), body)


class _Exchange:
    """A request of the library's that is a call of a model, and its response."""

    def __init__(self, library: Any, request: Any, call: RecordedCall) -> None:
        self._library, self.request, self.call = library, request, call
        self._response: Any = None
        self.is_leaving = False  #: its headers have been given to its connection
        self.is_left = False  #: its task was stopped, and does not wait for its answer any more

    def recorded(self) -> Any:
        """The recorded answer, as the library gives it; None if there is none."""
        answer = self.call.recorded(self._library.TimeoutException, refused=self._library.TransportError)
        if answer is None:
            return None
        if self.call.breaks_off:
            stream = part_class(self._library)(answer.body, self.call)
            return self._library.Response(answer.status, headers=answer.headers, request=self.request, stream=stream)
        return self._library.Response(
            answer.status,
            headers=[*answer.headers, ("Content-Length", str(len(answer.body)))],
            request=self.request,
            stream=self._library.ByteStream(answer.body),
        )

    def outgoing_async(self) -> Any:
        """A coroutine's request as it is sent. It is watched on the wire: its note is written together with others'."""
        extensions = self.request.extensions
        theirs = extensions.get("trace")
        self.request.extensions = self._while_out = {**extensions, "trace": partial(_both_async, self, theirs)}
        self._watched_by_others = theirs is not None
        return redirect_request(self._library, self.request, self.call.instead)

    def watch(self) -> None:
        """See when the headers of a request leave that has no body: they are all of it."""
        extensions = self.request.extensions
        self.request.extensions = {**extensions, "trace": partial(_both, self, extensions.get("trace"))}

    def leaves(self, event: str, info: dict[str, Any]) -> bool:
        """Whether an event on the wire is that the request leaves: what asked a proxy for the connection is none."""
        if (
            not event.endswith("send_request_headers.started")
            or getattr(info.get("request"), "method", b"") == b"CONNECT"
        ):
            return False
        self.is_leaving = True
        return True

    def trace(self, event: str) -> None:
        """What happens on the wire after that."""
        if event.endswith("send_request_body.started"):
            # A loop takes a piece at once: of one that it could not send in time it may have sent all.
            self.call.body_leaves(is_buffered=True)
        elif event.endswith("send_request_body.complete"):
            self.call.body_has_left()
            if not self._watched_by_others:
                self._while_out.pop("trace", None)  # of the answer, nothing is watched on the wire

    def taken(self, response: Any) -> bool:
        """Whether the response says that the call was taken."""
        response.request = self.request
        self._response = response
        return self.call.answered(response.status_code, wire.looked_at(response.headers.raw))

    def made(self, blocking: Callable[[], Any], journal: Journal) -> Any:
        """What a part of it gives. If the task is stopped meanwhile, it is left behind, and does not go out."""
        try:
            return blocking_calls.run(blocking, journal.cancel_scope)
        except BaseException:
            self.is_left = True
            raise

    def whole(self, pieces: Any, journal: Journal, *, is_taken: bool) -> Any:
        """The response, recorded if it can be taken. Its body, which has been read, is still to be read, as it came.

        Its record leaves as soon as its head says that this was all, and its reader has its last piece when that is
        acknowledged: until then both do what they have to do, and the connection is given back.
        """
        theirs = self._response.stream
        try:
            found, left, body = list[bytes](), self.call.length if is_taken else -1, None
            try:
                for piece in self.made(partial(list, theirs), journal) if blocking_calls.in_threads else theirs:
                    found.append(piece)
                    left -= len(piece)
                    if left == 0 and body is None:
                        body = pieces(found)
                        body.acknowledged = self.call.post(body.text)
            except Exception:
                if body is None or body.acknowledged is None:
                    raise
                # All of it is in hand, and paid: what its connection meets after that is no reason to ask again.
            if body is None:
                body = pieces(found)
                if is_taken:
                    body.acknowledged = self.call.post(body.text)
                else:
                    self.call.refused(body.text, encoded=True)
            self._response.stream = body
        finally:
            theirs.close()
        return self._response

    async def whole_async(self, body: Any, *, is_taken: bool) -> Any:
        """The same of a coroutine's."""
        self._response.stream = body
        if not is_taken:
            self.call.refused(body.text, encoded=True)
            return self._response
        await self.call.whole_async(body.text, encoded=True)
        return self._response

    def streamed(self, stream: Any) -> Any:
        """The response, recorded when all of it has passed."""
        tee = self.call.tee(self._response.extensions.get("http_version", b"HTTP/1.1"))
        return self._library.Response(
            self._response.status_code,
            headers=wire.unframed(self._response.headers.multi_items()),
            request=self.request,
            extensions=self._response.extensions,
            stream=stream(self._response, tee),
        )


async def _both_async(ours: _Exchange, theirs: Any, event: str, info: dict[str, Any]) -> None:
    if not ours.is_leaving and ours.leaves(event, info):
        await ours.call.headers_leave_async()
    elif ours.is_leaving:
        ours.trace(event)
    if theirs is not None:
        await theirs(event, info)


def _both(ours: _Exchange, theirs: Any, event: str, info: dict[str, Any]) -> None:
    if not ours.is_leaving and ours.leaves(event, info):
        if ours.is_left:
            raise ConnectionAbortedError("its task was stopped")
        ours.call.headers_leave()
    if theirs is not None:
        theirs(event, info)


def _pieces(library: Any) -> Any:
    """A body that is read before its reader has it, of a library's own class: it is passed on in the same pieces."""

    class Pieces(library.ByteStream):  # type: ignore[misc]  # of whichever library
        acknowledged: Callable[[], None] | None = None  # waits until that it was read is recorded

        def __init__(self, found: list[bytes]) -> None:
            self.found, self.text = found, b"".join(found)

        def __iter__(self) -> Iterator[bytes]:
            yield from self.found[:-1]
            self.close()
            yield from self.found[-1:]

        def close(self) -> None:
            if self.acknowledged is not None:
                acknowledged, self.acknowledged = self.acknowledged, None
                acknowledged()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in self.found:
                yield piece

        @classmethod
        def read(cls, request: Any) -> bytes:
            request.stream = cls(list(request.stream))
            body: bytes = request.read()
            return body

        @classmethod
        async def read_async(cls, request: Any) -> bytes:
            request.stream = cls([piece async for piece in request.stream])
            body: bytes = request.read()
            return body

        @classmethod
        async def of_async(cls, response: Any) -> Any:
            try:
                return cls([piece async for piece in response.stream])
            finally:
                await response.stream.aclose()

    return Pieces


def _streams(library: Any) -> tuple[Any, Any]:
    """What passes a stream on and keeps it, made of a library's own classes."""

    class Stream(_Stream, library.SyncByteStream):  # type: ignore[misc]  # of whichever library
        def __iter__(self) -> Iterator[bytes]:
            try:
                held = []
                for piece in self.response.iter_bytes():
                    self.tee.passed(piece)
                    if self.tee.has_said_all:
                        held.append(piece)
                    else:
                        yield piece
                self.tee.ended()
                yield from held
            except BaseException as error:
                self.tee.broke(error)
                raise

        def close(self) -> None:
            try:
                self.response.close()
            finally:
                self.tee.left()

    class AsyncStream(_Stream, library.AsyncByteStream):  # type: ignore[misc]  # of whichever library
        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                held = []
                pieces = aiter(self.response.aiter_bytes())
                while True:
                    try:
                        piece = await passed_on(anext(pieces), self.tee, self.tee.passed)
                    except StopAsyncIteration:
                        break
                    if self.tee.has_said_all:
                        held.append(piece)
                    else:
                        yield piece
                self.tee.ended()
                if self.tee.cancel_scope.stopping is not None:
                    await self.tee.check_async()
                for piece in held:
                    yield piece
            except BaseException as error:
                self.tee.broke(error)
                raise

        async def aclose(self) -> None:
            try:
                await self.response.aclose()
            finally:
                self.tee.left()

    return Stream, AsyncStream


class _Stream:
    def __init__(self, response: Any, tee: Tee) -> None:
        self.response, self.tee = response, tee
