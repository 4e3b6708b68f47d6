"""The journal at the calls of ``grpc.aio``, awaited: unary requests, answered by one message or a stream.

A call of the library's is made by another one, of its core, which has the request and the messages as bytes. What
stands before that one here has what is recorded, and otherwise passes on what it is asked.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from runner.journal.current_journal import current_journal
from runner.llm.recording import rpc, unrecorded
from runner.llm.recording.awaited_calls import make, passed_on
from runner.llm.recording.grpc_stub import text
from runner.llm.recording.rpc_call import Failure, RpcCall, RpcError, RpcStream, call_here


def journaled(library: Any, theirs: Any) -> Callable[..., None]:
    """The constructor of a call, which is made through a channel of the core's."""

    def init(
        self: Any, request: Any, deadline: Any, metadata: Any, credentials: Any, wait_for_ready: Any, channel: Any,
        *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        watched = _Channel(library, channel)
        theirs(self, request, deadline, metadata, credentials, wait_for_ready, watched, *args, **kwargs)

    return init


def remembered(_: Any, theirs: Any) -> Callable[..., None]:
    """The constructor of a channel: how it was made is kept with it."""

    def init(self: Any, target: Any, options: Any, credentials: Any, compression: Any, interceptors: Any) -> None:
        self.made = target, options, credentials, compression
        theirs(self, target, options, credentials, compression, interceptors)

    return init


def in_this_loop(library: Any, theirs: Any) -> Callable[..., Any]:
    """Return the ``__call__`` of a stub that is kept for the whole process.

    Each task may have an event loop of its own, so a channel of an earlier loop is created again in this one.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._loop.is_running() and current_journal() is not None:
            _move(library, self, asyncio.get_running_loop())
        return theirs(self, *args, **kwargs)

    return call


def _move(library: Any, stub: Any, loop: asyncio.AbstractEventLoop) -> None:
    channel = stub._references[0]
    made = getattr(channel, "made", None)
    if made is None:  # from before anything was journaled here
        return
    if channel._loop is not loop:
        target, options, credentials, compression = made
        arguments = library._augment_channel_arguments(options, compression)
        channel._loop = loop
        channel._channel = library.cygrpc.AioChannel(library._common.encode(target), arguments, credentials, loop)
    stub._loop, stub._channel = loop, channel._channel
    if getattr(stub, "_registered_call_handle", 0):
        stub._registered_call_handle = channel._channel.get_registered_call_handle(stub._method)


class _Channel:
    def __init__(self, library: Any, theirs: Any) -> None:
        self._library, self._theirs = library, theirs

    def call(self, method: bytes, *args: Any, **kwargs: Any) -> Any:
        address = rpc.url(text(self._theirs.target), text(method))
        if not rpc.may_be(address):
            return self._theirs.call(method, *args, **kwargs)
        unrecorded.refuse_beside_standin(address.removeprefix("https://"))
        return _Call(self._library, self._theirs.call(method, *args, **kwargs), address)


class _Call:
    """One call of the core's. What is not said here it says itself."""

    def __init__(self, library: Any, theirs: Any, address: str) -> None:
        self._library, self._theirs, self._address = library, theirs, address
        self._is_decided = asyncio.Event()  #: whether it is replayed, or leaves
        self._not_made: BaseException | None = None  #: why it did not leave
        self._recorded: deque[bytes] | None = None
        self._has_replayed = self._is_cancelled = False
        self._callbacks: list[Callable[[], None]] = []
        self._stream: RpcStream | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)

    # -- one message

    async def unary_unary(self, request: bytes, *args: Any) -> Any:
        """The message that answers a request; the status says whether it was answered."""
        with self._deciding():
            made = await self._begun(request)
            if made is None:
                return await self._leaves().unary_unary(request, *args)
            if self._recorded is not None:
                message = self._recorded.popleft()
                self._end_replay()
                return message
            await made.wait_async()
            return await make(made, partial(self._made, made, request, *args))

    async def _made(self, made: RpcCall, request: bytes, *args: Any) -> Any:
        await made.leaves_async()
        message = await self._leaves().unary_unary(request, *args)
        if not self._theirs.is_ok():
            made.failed(self._failure())
        elif message is None:
            made.broke(RpcError("it has no message"))
        else:
            await made.message_async(message)
        return message

    # -- a stream of them

    async def initiate_unary_stream(self, request: bytes, *args: Any) -> None:
        """Send the request."""
        with self._deciding():
            made = await self._begun(request)
            if made is None:
                await self._leaves().initiate_unary_stream(request, *args)
                return
            if self._recorded is not None:
                return
            await made.wait_async()
            made.is_awaited = True
            with made:
                self._stream = made.stream()
                self._theirs.add_done_callback(self._ended)
                try:
                    await made.leaves_async()
                    await self._leaves().initiate_unary_stream(request, *args)
                except BaseException as error:
                    self._stream.broke(error)
                    raise

    async def receive_serialized_message(self) -> Any:
        """The next message, or that there is none."""
        if self._recorded is not None:
            return self._next_recorded()
        stream = self._stream
        if stream is None:
            return await self._theirs.receive_serialized_message()
        try:
            return await passed_on(self._received(), stream, partial(self._take, stream))
        except BaseException as error:
            stream.broke(error)
            raise

    async def _received(self) -> Any:
        message = await self._theirs.receive_serialized_message()
        if message is self._library.cygrpc.EOF:
            await self._theirs.status()
        return message

    def _take(self, stream: RpcStream, message: Any) -> None:
        if message is not self._library.cygrpc.EOF:
            stream.passed(message)
        elif self._theirs.is_ok():
            stream.ended()
        else:
            self._ended()

    def _ended(self) -> None:
        """Handle the call's status. Whether a complete stream was read to its end, only its reader knows."""
        if self._stream is not None and not self._theirs.is_ok():
            self._stream.failed(self._failure())

    def _next_recorded(self) -> Any:
        if self._is_cancelled:
            raise asyncio.CancelledError
        if self._recorded:
            return self._recorded.popleft()
        self._end_replay()
        return self._library.cygrpc.EOF

    # -- both

    def _failure(self) -> Failure:
        status = self._theirs._status
        code = self._library._common.CYGRPC_STATUS_CODE_TO_STATUS_CODE[status.code()]
        return Failure(code.name, text(status.details() or ""), status.trailing_metadata())

    async def _begun(self, request: bytes) -> RpcCall | None:
        made = call_here(self._address, lambda: request)
        if made is not None and made.is_held:
            await made.hold_async()
        try:
            found: list[Any] | None = None if made is None else made.replayed()
        except RpcError as error:
            core, found = self._library.cygrpc, [None]
            self._status = core.AioRpcStatus(getattr(core.StatusCode, error.code.lower()), str(error), (), "")
        if found is not None:
            self._recorded = deque(found)
            self._is_decided.set()
        return made

    def _leaves(self) -> Any:
        """The core's call, which is given its request next."""
        self._is_decided.set()
        return self._theirs

    @contextlib.contextmanager
    def _deciding(self) -> Iterator[None]:
        """If it does not leave, as its task is to stop, whoever waits for its status is told why."""
        try:
            yield
        except BaseException as error:
            if not self._is_decided.is_set():
                self._not_made = error
                self._is_decided.set()
            raise

    async def _decided(self) -> None:
        await self._is_decided.wait()
        if self._not_made is not None:
            raise self._not_made

    def _end_replay(self) -> None:
        if not self._has_replayed:
            self._has_replayed = True
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback()

    def done(self) -> bool:
        """Whether it has ended, and what came of it is recorded."""
        if self._recorded is not None:
            return self._has_replayed or self._is_cancelled
        if self._not_made is not None:
            return True
        return bool(self._theirs.done()) and (self._stream is None or self._stream.is_over)

    def cancel(self, details: str) -> None:
        """End it here."""
        if self._recorded is not None:
            self._is_cancelled = True
            self._end_replay()
            return
        self._theirs.cancel(details)
        if self._stream is not None:
            self._stream.left()

    def cancelled(self) -> bool:
        """Whether it was ended here, or by its service."""
        return self._is_cancelled or bool(self._theirs.cancelled())

    def is_locally_cancelled(self) -> bool:
        """Whether it was ended here."""
        return self._is_cancelled or bool(self._theirs.is_locally_cancelled())

    def is_ok(self) -> bool:
        """Whether its status says so."""
        return "_status" not in vars(self) and (self._recorded is not None or bool(self._theirs.is_ok()))

    async def status(self) -> Any:
        """Return the call's status once it has one."""
        await self._decided()
        if self._recorded is None:
            return await self._theirs.status()
        if not self.is_ok():
            return self._status
        return self._library.cygrpc.AioRpcStatus(self._library.cygrpc.StatusCode.ok, "", (), "")

    async def initial_metadata(self) -> Any:
        """Return the initial metadata. It is not recorded, so a replayed call has none."""
        await self._decided()
        return await self._theirs.initial_metadata() if self._recorded is None else ()

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call the callback once the call has ended."""
        if self._recorded is None:
            self._callbacks.append(callback)
            self._theirs.add_done_callback(callback)
        elif self.done():
            callback()
        else:
            self._callbacks.append(callback)
