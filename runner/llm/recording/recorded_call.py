"""One call of a model on its way through a transport, whichever library's that is."""

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from runner.core import fault_points
from runner.core.ledger import NO_TOKENS, STEP, CallResult, Usage, caller
from runner.core.redaction import redact
from runner.journal.give_ups import GiveUp, error_like, is_timeout, timeout_error
from runner.journal.journal import Journal
from runner.llm.clients import prompt_caching
from runner.llm.recording import code_location, wire
from runner.llm.recording.call import Call
from runner.llm.recording.call_observer import CallObserver, observer_of
from runner.llm.recording.conversation_hash import NO_LINK, Link, offered
from runner.llm.recording.decoding import decoder
from runner.llm.recording.tee import Tee
from runner.modelserver.stubs import Standin, named, standin_here


def parse_request(method: str, url: str, body: bytes, journal: Journal, unattributed: bool) -> wire.Request | None:
    """The call of a model that a request made in a task is; None if it is none."""
    if prompt_caching.marked.get():
        body = prompt_caching.without(body)
    if journal.root is not None:
        body = code_location.without(body, journal.root)
    recorded = partial(journal.has_call, unattributed=unattributed) if journal.found else None
    return wire.request(method, url, body, recorded)


MOST_OF_REFUSAL = 2**14  #: bytes of the answer by which a call was refused; of a longer one, none are kept
_REFUSALS = 400  #: statuses from here on; a redirect is none
UNUSABLE = "its answer is not usable: not JSON, an error, or empty"


class RecordedCall:
    """One call of a model, from a transport's view: replayed if it is recorded, else made and recorded.

    A real one goes: `wait`, then as a context, which shields it from stops, `headers_leave`, `body_leaves`,
    `body_has_left`, `answered`, then `whole` or, for a stream, what `tee` gives.
    """

    can_break_off = True  #: whether its transport gives a part of a streamed answer again, and what came then

    def __init__(self, asked: wire.Request, journal: Journal, unattributed: bool) -> None:
        self._asked, self._journal, self.clock = asked, journal, journal.clock
        self.cancel_scope = journal.cancel_scope
        self._call = Call(journal, *journal.place_call(asked.digest, asked.model, unattributed=unattributed))
        self.instead: Standin | None = standin_here.get() or (named(journal.standin) if journal.standin else None)
        self._unattributed = unattributed
        #: Whether it was recorded, or given up: see `recorded`.
        self.is_known = self._call.recorded is not None or self._call.frame.gave_up is not None
        #: it is replayed later: `hold_async`
        self.is_held = self._call.frame.gave_up is not None or (self._call.recorded is not None and self._call.is_held)
        self._link = NO_LINK if offered.get() is None else Link()
        self._caller = caller.get()
        self._has_left_whole = self._is_streamed = self._has_ended = self._is_kept_encoded = self._has_answer = False
        self._status = 0
        self.streams = False  #: whether the answer comes piece by piece
        self.length = -1  #: of the answer's body, as its head says; -1 where its end is told in another way
        self.is_refused = False  #: whether its answer is a refusal, which is to be given to `refused`
        self.had_begun = False  #: whether a part of the answer had come when its client timed out
        self.breaks_off = False  #: what is recorded of the answer is a part, after which it is given up: `break_off`
        self.is_awaited = False  #: whether it is a coroutine's, which stops itself: `check_async`
        self.came_late: Mapping[int, BaseException] = {}  #: under 1: what cancelled its coroutine as the head came
        self._timeout: tuple[type[Exception], Sequence[object]] = TimeoutError, ()
        self._headers: list[tuple[str, str]] = []
        self._by_name: dict[str, str] = {}

    def recorded(
        self, timeout: type[Exception] = TimeoutError, *leading: object, refused: type[Exception] = OSError
    ) -> wire.Answer | None:
        """The recorded answer of the model, or its refusal, if there is one: it is served now.

        If its client timed out instead, raises that error again: a class among those of ``timeout``, which takes the
        ``leading`` arguments. If it could not connect, raises one among those of ``refused``.
        """
        if self._call.recorded is None:
            gave_up = self._call.frame.gave_up
            if gave_up is None:
                return None
            if gave_up.refused:
                return self._refused_again(gave_up, refused)
            self._timeout = timeout, leading
            if gave_up.answer is None or not (self.is_awaited or gave_up.error):
                self._give_up_again()
                return None
            self._call.check()
            self.breaks_off = True
            return wire.answer_of(gave_up.answer)
        if self.is_held:
            self._call.hold()
        self._call.check()
        assert self._call.recorded is not None
        answer = wire.answer_of(self._call.recorded)
        if self._caller.on_result is not None:
            self._caller.on_result(CallResult(self._call.entry.model, answer.usage, replayed=True))
        return answer

    def _refused_again(self, gave_up: GiveUp, base: type[Exception]) -> wire.Answer | None:
        if gave_up.error is None:
            assert gave_up.answer is not None
            self.is_refused = True
            self._call.is_refused_again(gave_up)
            return wire.answer_of(gave_up.answer)
        error = self._error_again(base, gave_up.error)
        if error is None:
            self._call.is_made_again()
            return None
        self.had_begun = gave_up.in_body
        self._call.is_refused_again(gave_up)
        raise error

    def _told(self, error: Exception) -> tuple[str, ...]:
        """How an error that its library raises is recorded."""
        return type(error).__name__, redact(str(error)), redact(repr(error))

    def _error_again(self, base: type[Exception], told: Sequence[str]) -> Exception | None:
        """The inverse of it: the error, among those of ``base``; None if there is none with this name."""
        return error_like(base, *told)

    def break_off(self) -> None:
        """The part of an answer that is recorded has been read: raise what its client did then."""
        self._give_up_again()
        base, leading = self._timeout
        raise timeout_error(base, "", "the stream was cancelled here before", *leading)

    async def break_off_async(self) -> None:
        """The same in a coroutine. If it was cancelled, it is so in here."""
        await self._call.hold_async()
        self.break_off()

    def _give_up_again(self) -> None:
        gave_up = self._call.gives_up()
        if gave_up is not None and gave_up.error is not None:
            self.had_begun = gave_up.in_body
            base, leading = self._timeout
            error = timeout_error(base, *gave_up.error, *leading)
            self._call.gives_up_by(gave_up, error)
            raise error

    async def hold_async(self) -> None:
        """In a coroutine, before `recorded`: return when that may be served. One that was cancelled is so in here."""
        gave_up, self.is_awaited = self._call.frame.gave_up, True
        if gave_up is None or gave_up.answer is None:
            await self._call.hold_async()
        self.is_held = False

    def wait(self) -> None:
        """Return when it may be made."""
        self._journal.wait_for_turn()

    async def wait_async(self) -> None:
        """Return when it may be made."""
        try:
            for seconds in self._journal.delays():
                await self.clock.sleep_async(seconds)
        except BaseException as error:
            self._call.give_up(error)
            raise

    def __enter__(self) -> None:
        call = self._call
        self._observer: CallObserver = (
            observer_of(call, self._caller, call.entry.model)
            if (call.watched or self._caller.announced) and not self._unattributed  # else it is no part of any scope
            else CallObserver(call)
        )
        call.open()
        if self._observer.reports:
            self._observer.began()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.broke(error)
        if not self._is_streamed:
            self._call.close()
        if error is None and not (self._is_streamed or self.is_awaited):
            self._journal.cancel_scope.check()

    # -- on the wire

    def begins(self) -> None:
        """Note the call, and mark it as possibly received: its headers have left, and its body does next."""
        self._call.leaves()

    def headers_leave(self) -> None:
        """Note the call. It has its connection and is sent next."""
        self._call.begins()
        fault_points.reached("model call noted, not sent")
        if self._asked.is_bodiless:
            self.body_leaves(is_buffered=True)

    async def headers_leave_async(self) -> None:
        """The same in a coroutine."""
        await self._call.begins_async()
        fault_points.reached("model call noted, not sent")
        if self._asked.is_bodiless:
            self.body_leaves(is_buffered=True)

    def body_leaves(self, *, is_buffered: bool = False) -> None:
        """Mark the call as possibly received. ``is_buffered``: all of it will be sent, whatever the connection says."""
        self._has_left_whole |= is_buffered
        self._call.mark_sent()

    def body_has_left(self) -> None:
        """Mark the whole body as sent."""
        self._has_left_whole = True
        fault_points.reached("model call sent, not answered")

    def answered(self, status: int, headers: Iterable[tuple[str, str]]) -> bool:
        """The head of the answer came. Returns whether that says that the call was taken; if not, it is over."""
        self._status, self._headers = status, list(headers)
        self._by_name = by_name = {}
        for name, value in self._headers:  # a comprehension would be one more call
            by_name[name.lower()] = value
        self.streams = wire.STREAMS.search(by_name.get("content-type", "")) is not None
        if (length := by_name.get("content-length", "")).isdecimal() and "transfer-encoding" not in by_name:
            self.length = int(length)
        if 200 <= status < 300:
            return True
        self.is_refused = status >= _REFUSALS and not self.streams
        self.reject(f"HTTP {status}")
        return False

    def reject(self, why: str) -> None:
        """End a call that its service did not take."""
        self._has_ended = True
        self._call.drop()
        self._link.break_off()
        self._observer.failed(why)

    def refused(self, body: bytes, *, encoded: bool = False) -> None:
        """The answer by which it was refused, after `answered`. ``encoded``: it is as its Content-Encoding says."""
        try:
            text = self._decoder(encoded=encoded)(body).decode() if len(body) <= MOST_OF_REFUSAL else ""
        except ValueError:
            text = ""
        self._refuse(text)

    def _unusable(self, body: bytes) -> None:
        """Its answer cannot be taken. Its code may do without it, as if it were refused."""
        self._observer.failed(UNUSABLE)
        if len(body) <= MOST_OF_REFUSAL and self.can_break_off and not self._is_kept_encoded:
            with contextlib.suppress(ValueError):
                self._refuse(body.decode())

    def _refuse(self, text: str) -> None:
        kept = wire.kept(self._headers, wire.KEPT_OF_REFUSAL)
        said = wire.text_of(self._status, kept, redact(text[:MOST_OF_REFUSAL]).encode(), NO_TOKENS, STEP)
        self._call.refuse(answer=json.loads(said))

    def whole(self, body: bytes, *, encoded: bool = False) -> None:
        """The answer: it is recorded if it can be taken. ``encoded``: it is as its Content-Encoding says."""
        if encoded and "content-encoding" in self._by_name:
            body, usage = self._decoded(body)
        else:
            usage = wire.taken(self._asked, self._by_name, body)
        if usage is not None:
            self._call.record(self._answered(body, usage), usage, self._observer.reports)
            self._recorded(usage)
        else:
            self._unusable(body)

    def post(self, body: bytes) -> Callable[[], None]:
        """Send the record of an answer as it came. Call what is returned before the answer's reader has all of it."""
        if "content-encoding" in self._by_name:
            body, usage = self._decoded(body)
        else:
            usage = wire.taken(self._asked, self._by_name, body)
        if usage is None:
            self._unusable(body)
            return _nothing
        journal, text = self._journal, self._answered(body, usage)
        writing = journal.cancel_scope.write.entries
        writing.append(None)  # as `write`, which would be two more calls
        try:
            acknowledged = journal.post_result(self._call.frame, text, usage, reported=self._observer.reports)
        finally:
            writing.pop()
        self._has_ended = True  # what breaks in before it is acknowledged leaves nothing in doubt
        fault_points.reached("model answer sent to the store, not acknowledged")
        return partial(self._acknowledge, usage, acknowledged)

    def _acknowledge(self, usage: Usage, acknowledged: Callable[[], None]) -> None:
        acknowledged()
        if self._caller.on_result is not None or self._observer.reports:
            self._recorded(usage)
        else:  # as of most, without a call
            fault_points.reached("step recorded, task not ended")
        self._journal.cancel_scope.check()

    async def whole_async(self, body: bytes, *, encoded: bool = False) -> None:
        """Record an unstreamed answer in a coroutine."""
        if encoded and "content-encoding" in self._by_name:
            body, usage = self._decoded(body)
        else:
            usage = wire.taken(self._asked, self._by_name, body)
        if usage is not None:
            await self._call.record_async(self._answered(body, usage), usage, self._observer.reports)
            self._recorded(usage)
        else:
            self._unusable(body)

    def _decoded(self, body: bytes) -> tuple[bytes, Usage | None]:
        """The answer as it is to be recorded, and its tokens; None if it cannot be taken."""
        decode = self._decoder(encoded=True)
        if self._is_kept_encoded:
            return body, NO_TOKENS
        try:
            body = decode(body)
        except ValueError:
            return body, None
        return body, wire.taken(self._asked, self._by_name, body)

    def _decoder(self, *, encoded: bool) -> Callable[[bytes], bytes]:
        """Return the decoder of the answer. One that cannot be decoded here is recorded as it is, since it is paid."""
        found = decoder(self._by_name.get("content-encoding", "") if encoded else "")
        self._is_kept_encoded = found is None
        return found or bytes

    def tee(self, version: bytes = b"HTTP/1.1", *, encoded: bool = False) -> Tee:
        """Return what a streamed answer passes through; it ends the call. ``encoded``: by its Content-Encoding."""
        self._call.streams()
        self._is_streamed, asked, decode = True, self._asked, self._decoder(encoded=encoded)
        ends, all_said = (None, None) if self._is_kept_encoded else (asked.ends, asked.all_said)
        return Tee(wire.Tape(ends, framed=wire.is_framed(self._by_name, version), all_said=all_said), self, decode)

    @property
    def is_left_unread(self) -> bool:
        """Whether its code cancelled it as the head came of an answer that is not read here: to be closed."""
        return 1 in self.came_late and (self.streams or self._has_ended)

    def broke(self, error: BaseException, why: str = "", *, came: bytes | None = None) -> None:
        """End a call that raised. It is in doubt if the service has all of it, or after a stop if it has any of it.

        ``came`` is the part of a streamed answer that its reader has.
        """
        if self._has_ended:
            return
        self._has_ended = True
        if self._has_answer:
            self._call.give_up(error, answered=True)
            return
        has_left = self._call.has_left and (self._has_left_whole or not isinstance(error, Exception))
        if not has_left:
            self._call.drop()
        if isinstance(error, Exception) and not (self._is_streamed or (has_left and is_timeout(error))):
            self._call.refuse(error=self._told(error), in_body=self._status > 0)
        elif not self._is_streamed and (has_left or not isinstance(error, Exception)):
            self._call.give_up(error, in_body=self._status > 0)
        elif self.can_break_off and came is not None and not self._is_kept_encoded:
            text = wire.text_of(self._status, wire.kept(self._headers), came, NO_TOKENS, STEP)
            self._call.give_up(error, answer=json.loads(text))
        self._link.break_off()
        self._observer.failed(why or type(error).__name__)

    def close(self) -> None:
        """Nothing more comes of it."""
        self._call.close()

    async def check_async(self) -> None:
        """Stop here, if the task is to stop, in the coroutine whose call this is."""
        await self._journal.check_async()

    def streamed(self, body: bytes) -> None:
        """Record an answer that was streamed to its end."""
        try:
            usage = NO_TOKENS if self._is_kept_encoded else wire.spent(self._asked, body)
            self._call.record(self._answered(body, usage), usage, self._observer.reports)
            self._recorded(usage)
        finally:
            self._call.close()
        if not self.is_awaited:
            self._call.check()

    def _answered(self, body: bytes, usage: Usage) -> str:
        """The record of the answer, as it is kept."""
        fault_points.reached("model answered, not recorded")
        entry = self._call.entry
        kept = wire.kept(self._headers)
        if self._is_kept_encoded:
            kept.append(("Content-Encoding", self._by_name["content-encoding"]))
        if self._journal.found and self._journal.diverged(self._call.place):
            self._observer.diverged()
        return self._call.frame.end(wire.text_of(self._status, kept, body, usage, entry, self._link.chain))

    def _recorded(self, usage: Usage) -> None:
        self._has_answer = True
        if self._caller.on_result is not None:
            self._caller.on_result(CallResult(self._call.entry.model, usage, replayed=False))
        if self._observer.reports:
            self._observer.ended(usage)
        fault_points.reached("step recorded, task not ended")


def _nothing() -> None:
    """Nothing is recorded."""
