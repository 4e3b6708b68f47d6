"""One call of a model by gRPC on its way through a stub, sync or awaited."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from runner.core.errors import RunnerError
from runner.core.redaction import redact
from runner.journal.current_journal import current_journal
from runner.journal.journal import Journal
from runner.llm.recording import rpc, unrecorded, wire
from runner.llm.recording.forked_processes import forks
from runner.llm.recording.recorded_call import RecordedCall

_OK = 200  #: that of HTTP, with which gRPC answers whatever its own status says
_FRAMED = b"HTTP/2"


class Failure(NamedTuple):
    """The status of a call that failed."""

    code: str
    details: str
    trailing: object  #: the metadata that came with it

    @property
    def was_refused(self) -> bool:
        """Whether it is known not to have been taken."""
        return rpc.was_refused(self.code, self.details, self.trailing)


def call_here(address: str, serialized: Callable[[], bytes | None]) -> "RpcCall | None":
    """The call of a model that a request made here is; None if it is none, or nothing is journaled here.

    ``serialized`` gives the request as it is sent; None if it cannot be.
    """
    found = current_journal(imports=True)
    if (found is None and not forks.task) or not rpc.may_be(address):
        return None
    if found is None:
        unrecorded.count(address)
        return None
    unrecorded.refuse_beside_standin(address.removeprefix("https://"))
    if (message := serialized()) is None:
        return None
    journal, unattributed = found
    asked = rpc.request(address, message, partial(journal.has_call, unattributed=unattributed))
    if asked is not None:
        return RpcCall(asked, message, journal, unattributed)
    if rpc.looks_like_one(address):
        unrecorded.count(address)
    return None


class RpcCall(RecordedCall):
    """A call whose answer is messages. It begins as it is given to its channel, which sends it once it is connected."""

    can_break_off = False

    def __init__(self, asked: wire.Request, sent: bytes, journal: Journal, unattributed: bool) -> None:
        super().__init__(asked, journal, unattributed)
        self.sent = sent  #: the request, serialized

    def replayed(self) -> list[bytes] | None:
        """The messages of the recorded answer, if there is one: it is served now. If it failed, raises `RpcError`."""
        answer = self.recorded()
        return None if answer is None else list(rpc.messages(answer.body))

    def leaves(self) -> None:
        """Note the call. It is given to its channel next."""
        self.headers_leave()
        self.body_leaves(is_buffered=True)

    async def leaves_async(self) -> None:
        """The same in a coroutine."""
        await self.headers_leave_async()
        self.body_leaves(is_buffered=True)

    def message(self, message: bytes) -> None:
        """The answer, of one message."""
        self.answered(_OK, rpc.HEADERS)
        self.whole(rpc.frame(message))

    async def message_async(self, message: bytes) -> None:
        """Record the response in a coroutine."""
        self.answered(_OK, rpc.HEADERS)
        await self.whole_async(rpc.frame(message))

    def failed(self, failure: Failure) -> None:
        """End a call that failed: refused, or in doubt."""
        if failure.was_refused:
            self.reject(failure.code)
            self._call.refuse(error=self._told(RpcError(failure.details, failure.code)))
        else:
            is_late = failure.code == "DEADLINE_EXCEEDED"
            self.broke(DeadlinePassed(failure.details) if is_late else RpcError(failure.details, failure.code))

    def _told(self, error: Exception) -> tuple[str, ...]:
        return getattr(error, "code", ""), redact(str(error))

    def _error_again(self, _: type[Exception], told: Sequence[str]) -> Exception | None:
        code, text = told
        return RpcError(text, code) if code else None

    def stream(self) -> "RpcStream":
        """Return what the messages of a streamed response pass through; the call ends with it."""
        self.answered(_OK, rpc.HEADERS)
        return RpcStream(self)


class RpcStream:
    """The messages of one answer: recorded when their end is known, in doubt if they break off. For any thread."""

    def __init__(self, call: RpcCall) -> None:
        self._call, self._tee, self.cancel_scope = call, call.tee(_FRAMED), call.cancel_scope
        self.check_async = call.check_async
        self._lock = threading.RLock()
        self._has_begun = False
        self._error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is recorded, or nothing more comes of it."""
        return self._tee.is_over

    def passed(self, message: bytes) -> None:
        """A message is about to be given to its reader."""
        with self._lock:
            self._has_begun = True
            self._tee.passed(rpc.frame(message))

    def ended(self) -> None:
        """The status says that the stream is complete: record it. An error is raised to each thread that calls this."""
        with self._lock:
            if self._error is None:
                try:
                    self._tee.ended()
                except BaseException as error:
                    self._error = error
            if self._error is not None:
                raise self._error

    def failed(self, failure: Failure) -> None:
        """The status says that the stream failed: the call is in doubt if any of it was received."""
        with self._lock:
            if failure.was_refused and not (self._has_begun or self.is_over):
                self._call.reject(failure.code)
            self._tee.broke(RpcError(failure.details))

    def broke(self, error: BaseException) -> None:
        """The stream could not be sent, or reading it raised."""
        with self._lock:
            self._tee.broke(error)

    def left(self) -> None:
        """The reader left the stream: the call is in doubt if it was not read to its end."""
        with self._lock:
            self._tee.left()


class RpcError(RunnerError):
    """A call that failed, with this text and this code of gRPC's."""

    def __init__(self, details: str, code: str = "") -> None:
        super().__init__(details)
        self.code = code


class DeadlinePassed(RpcError, TimeoutError):
    """A call whose client had set a deadline."""

    def __init__(self, details: str) -> None:
        super().__init__(details, "DEADLINE_EXCEEDED")
