"""The journal at the HTTP transport that the vendors' clients use: httpx, or httpx2 in newer ones.

A call of a model that is recorded is answered from the journal and does not leave the process; another one is made, and
recorded when its answer is whole. Anything else passes, and so does everything outside of tasks.
"""

import asyncio
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from runner.core import fault_points
from runner.core.errors import RunnerError
from runner.core.ledger import CallResult, Usage, caller
from runner.journal.enclosing import current_journal
from runner.journal.journal import Journal
from runner.llm.clients import marks
from runner.llm.recording import wire
from runner.llm.recording.call import Call
from runner.llm.recording.call_observer import CallObserver, observer_of
from runner.llm.recording.chain import Link
from runner.modelserver.stubs import chosen, named
from runner.modelserver.stubs.redirect import redirect_request

LIBRARIES = ("httpx", "httpx2")
_WATCHED = ("send_request_headers.started", "send_request_body.started", "send_request_body.complete")


def install(library: Any) -> None:
    """Have the transports of a library journaled, once in a process."""
    sync, asynchronous = library.HTTPTransport, library.AsyncHTTPTransport
    if getattr(sync.handle_request, "journaled", False):
        return
    handle, handle_async = sync.handle_request, asynchronous.handle_async_request
    tee, async_tee = _tees(library)

    def handle_request(self: Any, request: Any) -> Any:
        found = current_journal() if _may_be(request) else None
        if found is None or (asked := _parse_request(request, request.read(), *found)) is None:
            return handle(self, redirect_request(library, request))
        call = _RecordedCall(library, request, asked, *found)
        if (answer := call.replay()) is not None:
            return answer
        call.wait()
        with call:
            response = call.reject_status(handle(self, call.redirected()))
            if response is not None:
                return response
            if call.streams:
                return call.streamed(tee)
            call.response.read()
            return call.answered()

    async def handle_async_request(self: Any, request: Any) -> Any:
        _forget_closed_loop(self)
        found = current_journal() if _may_be(request) else None
        if found is None or (asked := _parse_request(request, await request.aread(), *found)) is None:
            return await handle_async(self, redirect_request(library, request))
        call = _RecordedCall(library, request, asked, *found, asynchronous=True)
        if (answer := call.replay()) is not None:
            return answer
        for seconds in call.delays():
            await call.clock.sleep_async(seconds)
        with call:
            response = call.reject_status(await handle_async(self, call.redirected()))
            if response is not None:
                return response
            if call.streams:
                return call.streamed(async_tee)
            await call.response.aread()
            return call.answered()

    handle_request.journaled = True  # type: ignore[attr-defined]
    sync.handle_request = handle_request
    asynchronous.handle_async_request = handle_async_request


def _forget_closed_loop(transport: Any) -> None:
    """Drop the connections of a client that was kept for the process, when the event loop that opened them is closed.

    Each task may have a loop of its own: a connection of an earlier one can neither be used nor closed in this one.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # another kind of loop
        return
    before = vars(transport).get("used_in")
    if before is not None and (opened_in := before()) is not loop and (opened_in is None or opened_in.is_closed()):
        connections = getattr(getattr(transport, "_pool", None), "_connections", None)
        if isinstance(connections, list):
            connections.clear()
    transport.used_in = weakref.ref(loop)


def install_loaded() -> bool:
    """Do so with those that are imported. Returns whether all of them are."""
    loaded = [sys.modules.get(name) for name in LIBRARIES]
    for library in loaded:
        if library is not None and hasattr(library, "AsyncHTTPTransport"):
            install(library)
    return all(loaded)


def _may_be(request: Any) -> bool:
    return wire.may_be(request.method, request.url.path, lambda: str(request.url))


def _parse_request(request: Any, body: bytes, journal: Journal, unattributed: bool) -> wire.Request | None:
    recorded = partial(journal.has_call, unattributed=unattributed)
    return wire.request(request.method, str(request.url), marks.without(body), recorded)


class _RecordedCall:
    """One call of a model on its way through a transport. As a context it shields the call from stops."""

    def __init__(
        self,
        library: Any,
        request: Any,
        asked: wire.Request,
        journal: Journal,
        unattributed: bool,
        *,
        asynchronous: bool = False,
    ) -> None:
        self._library, self._request, self._asked = library, request, asked
        self._journal, self.clock = journal, journal.clock
        self._call = Call(journal, *journal.place_call(asked.digest, asked.model, unattributed=unattributed))
        self._instead = chosen() or named(journal.standin or "")
        self._asynchronous, self._unattributed = asynchronous, unattributed
        self._link = Link()
        self._caller = caller.get()
        self._whole = self._taken_over = False
        self.response: Any = None

    def redirected(self) -> Any:
        """The request as it is sent: it is known by the address that it was meant for, wherever it goes."""
        return redirect_request(self._library, self._request, self._instead)

    # -- served

    def replay(self) -> Any:
        """The recorded answer of the model, if there is one."""
        if self._call.recorded is None:
            return None
        self._call.check()
        answer = wire.answer_of(self._call.recorded)
        self._heard(answer, replayed=True)
        return self._library.Response(answer.status, headers=answer.headers, content=answer.body, request=self._request)

    # -- made

    def wait(self) -> None:
        """Return when it may be made."""
        self._journal.wait_for_turn()

    def delays(self) -> Iterator[float]:
        """How long to wait before it may be made, where it is awaited."""
        found: Iterator[float] = self._journal.delays()
        return found

    def __enter__(self) -> None:
        self._observer: CallObserver = observer_of(
            self._call, self._caller, self._call.entry.model, unattributed=self._unattributed
        )
        self._call.open()
        self._observer.began()
        ours, theirs = self._trace, self._request.extensions.get("trace")
        traced = partial(_both_async, ours, theirs) if self._asynchronous else partial(_both, ours, theirs)
        self._extensions = self._request.extensions
        self._request.extensions = {**self._extensions, "trace": traced}

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.broke(error)
        if not self._taken_over:
            self._call.close()
        if error is None and not self._taken_over:
            self._call.check()

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        """What happens on the wire: the call begins when its request goes out, not when it waits for a connection. With
        headers alone the server cannot act on it: it leaves with its body."""
        if not event.endswith(_WATCHED) or getattr(info.get("request"), "method", b"") == b"CONNECT":
            return
        if event.endswith("send_request_headers.started"):
            self._call.begins()
            fault_points.reached("model call noted, not sent")
        elif event.endswith("send_request_body.started"):
            self._call.mark_sent()
        elif event.endswith("send_request_body.complete"):
            self._whole = True
            fault_points.reached("model call sent, not answered")

    def reject_status(self, response: Any) -> Any:
        """The answer, if it says that the call was not taken."""
        response.request = self._request
        self.response = response
        self._request.extensions = self._extensions
        if 200 <= response.status_code < 300:
            return None
        self._call.drop()
        self._link.break_off()
        self._observer.failed(f"HTTP {response.status_code}")
        return response

    @property
    def streams(self) -> bool:
        """Whether the answer comes piece by piece."""
        return wire.is_stream(self.response.headers)

    def answered(self) -> Any:
        """The answer, recorded if it can be taken."""
        response = self.response
        usage = wire.taken(self._asked, response.headers, response.content)
        if usage is not None:
            self.record(response.content, usage)
        else:
            self._observer.failed("its answer is not usable: not JSON, an error, or empty")
        return self._library.Response(
            response.status_code,
            headers=wire.unframed(response.headers.multi_items()),
            content=response.content,
            request=self._request,
            extensions=response.extensions,
        )

    def streamed(self, tee: Callable[..., Any]) -> Any:
        """The answer, recorded when all of it has passed."""
        response, self._taken_over = self.response, True
        version = response.extensions.get("http_version", b"HTTP/1.1")
        tape = wire.Tape(self._asked.ends, framed=wire.is_framed(response.headers, version))
        return self._library.Response(
            response.status_code,
            headers=wire.unframed(response.headers.multi_items()),
            stream=tee(response, tape, self),
            request=self._request,
            extensions=response.extensions,
        )

    def record(self, body: bytes, usage: Usage) -> None:
        """It is answered."""
        fault_points.reached("model answered, not recorded")
        response, entry = self.response, self._call.entry
        headers = wire.kept(response.headers.multi_items())
        answer = wire.Answer(response.status_code, headers, body, usage)
        if self._call.diverged:
            self._observer.diverged()
        text = answer.text(model=entry.model, agent=entry.agent, chain=self._link.chain)
        self._call.record(text, answer.usage, self._observer.tells)
        self._heard(answer, replayed=False)
        self._observer.ended(answer.usage)
        fault_points.reached("step recorded, task not ended")

    def spent(self, body: bytes) -> Usage:
        """The tokens of a stream."""
        return wire.spent(self._asked, body)

    def broke(self, error: BaseException) -> None:
        """It raised. What its service has all of is in doubt; a stop leaves in doubt whatever has left."""
        if not self._call.has_left or (isinstance(error, Exception) and not self._whole):
            self._call.drop()
        self._link.break_off()
        self._observer.failed(type(error).__name__)

    def over(self) -> None:
        """Nothing more comes of a stream."""
        self._call.close()

    def stop_here(self) -> None:
        """Stop here, if the task is to stop."""
        self._call.check()

    def _heard(self, answer: wire.Answer, *, replayed: bool) -> None:
        if self._caller.heard is not None:
            self._caller.heard(CallResult(self._call.entry.model, answer.usage, replayed))


def _both(ours: Any, theirs: Any, event: str, info: dict[str, Any]) -> None:
    ours(event, info)
    if theirs is not None:
        theirs(event, info)


async def _both_async(ours: Any, theirs: Any, event: str, info: dict[str, Any]) -> None:
    ours(event, info)
    if theirs is not None:
        await theirs(event, info)


def _tees(library: Any) -> tuple[Any, Any]:
    """What passes a stream on and keeps it, made of a library's own classes."""

    class Tee(_Tee, library.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            try:
                for piece in self.response.iter_bytes():
                    self.passed(piece)
                    yield piece
                self.ended()
            except BaseException as error:
                self.broke(error)
                raise

        def close(self) -> None:
            try:
                self.response.close()
            finally:
                self.left()

    class AsyncTee(_Tee, library.AsyncByteStream):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for piece in self.response.aiter_bytes():
                    self.passed(piece)
                    yield piece
                self.ended()
            except BaseException as error:
                self.broke(error)
                raise

        async def aclose(self) -> None:
            try:
                await self.response.aclose()
            finally:
                self.left()

    return Tee, AsyncTee


class _Tee:
    """One stream: recorded when it is complete, whoever still reads; in doubt if it breaks off."""

    def __init__(self, response: Any, tape: wire.Tape, call: _RecordedCall) -> None:
        self.response, self._tape, self._recorded_call = response, tape, call
        self._over = False

    def passed(self, piece: bytes) -> None:
        if self._tape.take(piece) and not self._over:
            self._complete()

    def ended(self) -> None:
        if self._tape.ended() and not self._over:
            self._complete()

    def _complete(self) -> None:
        self._over = True
        try:
            body = self._tape.body
            self._recorded_call.record(body, self._recorded_call.spent(body))
        finally:
            self._recorded_call.over()
        self._recorded_call.stop_here()

    def broke(self, error: BaseException) -> None:
        if not self._over:
            self._over = True
            self._recorded_call.broke(error)
            self._recorded_call.over()

    def left(self) -> None:
        self.broke(_LeftOff("it was not read to its end"))


class _LeftOff(RunnerError):
    """A stream that was not read to its end."""
