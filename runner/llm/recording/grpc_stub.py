"""The journal at what a stub of ``grpc`` holds of each method: unary requests, answered by one message or a stream.

The library's own code makes each call, with its deadline, credentials and metadata. It is given the request as bytes,
and a deserializer that notes the bytes of each message on its way to the method's own.
"""

import contextlib
import contextvars
import copy
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

from runner.core import waiting
from runner.llm.recording import rpc
from runner.llm.recording.rpc_call import Failure, RpcCall, RpcError, RpcStream, call_here

_END = object()


def text(value: bytes | str) -> str:
    """A name of the library's, as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def unary(module: Any, theirs: Any, *, with_call: bool = False) -> Callable[..., Any]:
    """Return a method that makes a call and waits for its response; ``with_call``, also for an object of the call."""

    def call(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if (waiter := waiting.here()) is not None:  # a coroutine that does not await: it would hold up all others
            return waiter.in_thread(partial(call, self, request, *args, **kwargs))
        made = _made(module, self, request)
        if made is None:
            return theirs(self, request, *args, **kwargs)
        try:
            found = made.replayed()
        except RpcError as error:
            state = _answered(module, self)
            state.code, state.details = module.grpc.StatusCode[error.code], str(error)
            return module._end_unary_response_blocking(state, None, with_call, None)
        if found is not None:
            return module._end_unary_response_blocking(_answered(module, self, found), None, with_call, None)
        made.wait()
        with made:
            came: list[bytes] = []
            made.leaves()
            try:
                given = theirs(_passing(self, came.append), made.sent, *args, **kwargs)
            except module.grpc.RpcError as error:
                made.failed(Failure(error.code().name, text(error.details() or ""), error.trailing_metadata()))
                raise
            except (TypeError, ValueError) as error:  # what it was called with, or a channel that is closed
                made.reject(type(error).__name__)
                raise
            if came:
                made.message(came[0])
            else:
                made.broke(RpcError("it has no message"))
            return given

    return call


def started(module: Any, theirs: Any, *, streams: bool) -> Callable[..., Any]:
    """Return a method that starts a call and returns an object with its response or its messages."""

    def call(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if (waiter := waiting.here()) is not None:
            return waiter.in_thread(partial(call, self, request, *args, **kwargs))
        made = _made(module, self, request)
        if made is None:
            return theirs(self, request, *args, **kwargs)
        if (found := made.replayed()) is not None:
            return _replay(module, self, found, streams=streams)
        made.wait()
        with made:
            stream = made.stream()
            try:
                made.leaves()
                rendezvous = theirs(_passing(self, stream.passed), made.sent, *args, **kwargs)
            except (TypeError, ValueError) as error:
                made.reject(type(error).__name__)
                stream.broke(error)
                raise
            except BaseException as error:
                stream.broke(error)
                raise
            return _follow(rendezvous, stream, streams=streams)

    return call


def _made(module: Any, stub: Any, request: Any) -> RpcCall | None:
    address = rpc.url(text(stub._target), text(stub._method))
    return call_here(address, lambda: module._common.serialize(request, stub._request_serializer))


def _passing(stub: Any, on_message: Callable[[bytes], None]) -> Any:
    """Return the stub's method for a request that is serialized already; the bytes of each message are noted."""
    theirs, passing = stub._response_deserializer, copy.copy(stub)

    def deserialize(message: bytes) -> Any:
        on_message(message)
        return message if theirs is None else theirs(message)

    passing._request_serializer, passing._response_deserializer = None, deserialize
    return passing


# -- what is replayed


def _answered(module: Any, stub: Any, messages: Iterable[bytes] = ()) -> Any:
    """The state of a call that has ended: with this one message, for one that has one."""
    state = module._RPCState((), (), (), module.grpc.StatusCode.OK, "")
    state.debug_error_string, state.callbacks = "", None
    for message in messages:
        state.response = _deserialized(module, stub._response_deserializer, state, message)
    return state


def _deserialized(module: Any, deserializer: Any, state: Any, message: bytes) -> Any:
    response = module._common.deserialize(message, deserializer)
    if response is None:
        state.code, state.details = module.grpc.StatusCode.INTERNAL, "Exception deserializing response!"
    return response


def _replay(module: Any, stub: Any, messages: list[bytes], *, streams: bool) -> Any:
    state = _answered(module, stub, () if streams else messages)
    rendezvous = _replayed_class(module)(state, None, stub._response_deserializer, None)
    rendezvous.recorded = deque(messages if streams else ())
    return rendezvous


@cache
def _replayed_class(module: Any) -> Any:
    theirs: Any = module._MultiThreadedRendezvous

    class Replayed(theirs):  # type: ignore[misc]  # of the library
        """The object for a call that is recorded."""

        recorded: deque[bytes]

        def _next(self) -> Any:
            if not self.recorded:
                return super()._next()
            response = _deserialized(module, self._response_deserializer, self._state, self.recorded.popleft())
            if response is None:
                raise self
            return response

    Replayed.__name__ = theirs.__name__
    return Replayed


# -- what is on its way


def _follow(rendezvous: Any, stream: RpcStream, *, streams: bool) -> Any:
    """The library's own object for a call, whose end is recorded before its reader knows of it."""
    settle = partial(_settle, rendezvous._state, stream, streams=streams)
    kind: Any = type(rendezvous)
    rendezvous.__class__ = _followed_class(kind)
    rendezvous.stream, rendezvous.settle = stream, settle
    if not rendezvous.add_callback(partial(contextvars.copy_context().run, _quietly, settle)):
        settle()
    return rendezvous


def _settle(state: Any, stream: RpcStream, *, streams: bool) -> None:
    """See how a call ended, if it did. Of a stream only its reader knows that it was read to its end."""
    if state.code is None:
        return
    if state.code.name != "OK":
        stream.failed(Failure(state.code.name, text(state.details or ""), state.trailing_metadata))
    elif not streams:
        stream.ended()


def _quietly(settle: Callable[[], None]) -> None:
    """Settle a call in the channel's own thread, which must survive: any error is raised to the reader."""
    with contextlib.suppress(BaseException):
        settle()


def _settling(theirs: Any) -> Any:
    """A method that waits for a call's end, which is recorded by then."""

    def ended(self: Any, timeout: float | None = None) -> Any:
        try:
            return theirs(self, timeout)
        finally:
            self.settle()

    return ended


@cache
def _followed_class(theirs: Any) -> Any:
    class Followed(theirs):  # type: ignore[misc]  # of the library
        """The object for a call that is on its way."""

        stream: RpcStream
        settle: Callable[[], None]

        def _next(self) -> Any:
            found = waiting.in_thread(self._next_or_end)
            if found is _END:
                raise StopIteration
            return found

        def _next_or_end(self) -> Any:
            try:
                return super()._next()
            except StopIteration:
                self.stream.ended()
                return _END
            except BaseException as error:
                self.settle()
                self.stream.broke(error)
                raise

        result, exception = _settling(theirs.result), _settling(theirs.exception)
        traceback = _settling(theirs.traceback)

        def __del__(self) -> None:
            try:
                super().__del__()
            finally:
                self.stream.left()

    Followed.__name__ = theirs.__name__
    return Followed
