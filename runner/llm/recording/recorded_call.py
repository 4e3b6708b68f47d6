"""One call of a model on its way through a transport, whichever library's that is."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from runner.core import fault_points
from runner.core.errors import RunnerError
from runner.core.ledger import CallResult, Usage, caller
from runner.journal.journal import Journal
from runner.llm.clients import marks
from runner.llm.recording import wire
from runner.llm.recording.call import Call
from runner.llm.recording.call_observer import CallObserver, observer_of
from runner.llm.recording.chain import Link
from runner.modelserver.stubs import Standin, chosen, named


def parse_request(method: str, url: str, body: bytes, journal: Journal, unattributed: bool) -> wire.Request | None:
    """The call of a model that a request made in a task is; None if it is none."""
    return wire.request(method, url, marks.without(body), partial(journal.has_call, unattributed=unattributed))


UNUSABLE = "its answer is not usable: not JSON, an error, or empty"


class RecordedCall:
    """One call of a model, from a transport's view: replayed if it is recorded, else made and recorded.

    A real one goes: `wait`, then as a context, which shields it from stops, `headers_leave`, `body_leaves`,
    `body_has_left`, `answered`, then `whole` or, for a stream, what `tee` gives.
    """

    def __init__(self, asked: wire.Request, journal: Journal, unattributed: bool) -> None:
        self._asked, self._journal, self.clock = asked, journal, journal.clock
        self._call = Call(journal, *journal.place_call(asked.digest, asked.model, unattributed=unattributed))
        self.instead: Standin | None = chosen() or named(journal.standin or "")
        self._unattributed = unattributed
        self._link = Link()
        self._caller = caller.get()
        self._has_left_whole = self._is_streamed = self._has_ended = False
        self._status = 0
        self._headers: list[tuple[str, str]] = []
        self._by_name: dict[str, str] = {}

    def recorded(self) -> wire.Answer | None:
        """The recorded answer of the model, if there is one: it is served now."""
        if self._call.recorded is None:
            return None
        self._call.check()
        answer = wire.answer_of(self._call.recorded)
        if self._caller.on_result is not None:
            self._caller.on_result(CallResult(self._call.entry.model, answer.usage, replayed=True))
        return answer

    def wait(self) -> None:
        """Return when it may be made."""
        self._journal.wait_for_turn()

    async def wait_async(self) -> None:
        """Return when it may be made."""
        for seconds in self._journal.delays():
            await self.clock.sleep_async(seconds)

    def __enter__(self) -> None:
        self._observer: CallObserver = observer_of(
            self._call, self._caller, self._call.entry.model, unattributed=self._unattributed
        )
        self._call.open()
        self._observer.began()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.broke(error)
        if not self._is_streamed:
            self._call.close()
        if error is None and not self._is_streamed:
            self._call.check()

    # -- on the wire

    def headers_leave(self) -> None:
        """It has its connection, and its headers go out next: with these alone the server cannot act on it."""
        self._call.begins()
        fault_points.reached("model call noted, not sent")

    async def headers_leave_async(self) -> None:
        """The same of a coroutine's call."""
        await self._call.begins_async()
        fault_points.reached("model call noted, not sent")

    def body_leaves(self) -> None:
        """From here on its service may have it."""
        self._call.mark_sent()

    def body_has_left(self) -> None:
        """Its service may have all of it."""
        self._has_left_whole = True
        fault_points.reached("model call sent, not answered")

    def answered(self, status: int, headers: Iterable[tuple[str, str]]) -> bool:
        """The head of the answer came. Returns whether that says that the call was taken; if not, it is over."""
        self._status, self._headers = status, list(headers)
        self._by_name = {name.lower(): value for name, value in self._headers}
        if 200 <= status < 300:
            return True
        self.reject(status)
        return False

    def reject(self, status: int) -> None:
        """It was not taken."""
        self._has_ended = True
        self._call.drop()
        self._link.break_off()
        self._observer.failed(f"HTTP {status}")

    @property
    def streams(self) -> bool:
        """Whether the answer comes piece by piece."""
        return wire.is_stream(self._by_name)

    def whole(self, body: bytes) -> None:
        """The answer, decoded: it is recorded if it can be taken."""
        usage = wire.taken(self._asked, self._by_name, body)
        if usage is not None:
            self._call.record(self._answered(body, usage), usage, self._observer.reports)
            self._recorded(usage)
        else:
            self._observer.failed(UNUSABLE)

    async def whole_async(self, body: bytes) -> None:
        """The same of a coroutine's call."""
        usage = wire.taken(self._asked, self._by_name, body)
        if usage is not None:
            await self._call.record_async(self._answered(body, usage), usage, self._observer.reports)
            self._recorded(usage)
        else:
            self._observer.failed(UNUSABLE)

    def tee(self, version: bytes = b"HTTP/1.1") -> "Tee":
        """What a streamed answer passes; the call is over when that is."""
        self._is_streamed, asked = True, self._asked
        return Tee(wire.Tape(asked.ends, framed=wire.is_framed(self._by_name, version), all_said=asked.all_said), self)

    def broke(self, error: BaseException) -> None:
        """It raised. What its service has all of is in doubt; a stop leaves in doubt whatever has left."""
        if self._has_ended:
            return
        self._has_ended = True
        if not self._call.has_left or (isinstance(error, Exception) and not self._has_left_whole):
            self._call.drop()
        self._link.break_off()
        self._observer.failed(type(error).__name__)

    def close(self) -> None:
        """Nothing more comes of it."""
        self._call.close()

    def streamed(self, body: bytes) -> None:
        """All of a stream passed."""
        try:
            usage = wire.spent(self._asked, body)
            self._call.record(self._answered(body, usage), usage, self._observer.reports)
            self._recorded(usage)
        finally:
            self._call.close()
        self._call.check()

    def _answered(self, body: bytes, usage: Usage) -> str:
        """The record of the answer, as it is kept."""
        fault_points.reached("model answered, not recorded")
        entry = self._call.entry
        answer = wire.Answer(self._status, wire.kept(self._headers), body, usage)
        if self._call.diverged:
            self._observer.diverged()
        return answer.text(model=entry.model, agent=entry.agent, chain=self._link.chain)

    def _recorded(self, usage: Usage) -> None:
        if self._caller.on_result is not None:
            self._caller.on_result(CallResult(self._call.entry.model, usage, replayed=False))
        self._observer.ended(usage)
        fault_points.reached("step recorded, task not ended")


class Tee:
    """One stream: recorded when it is complete, whoever still reads; in doubt if it breaks off."""

    def __init__(self, tape: wire.Tape, call: RecordedCall) -> None:
        self._tape, self._call = tape, call
        self._is_over = False

    @property
    def has_said_all(self) -> bool:
        """Whether its reader may stop here: what is left is to be taken before it gets this piece."""
        return self._tape.has_said_all and not self._is_over

    def passed(self, piece: bytes) -> None:
        """A piece of it, decoded, is about to be given to its reader."""
        if self._tape.take(piece) and not self._is_over:
            self._complete()
        elif self._tape.broken:
            self.broke(_LeftOff("its service reports an error"))

    def ended(self) -> None:
        """There is no more."""
        if self._tape.ended() and not self._is_over:
            self._complete()
        else:
            self.broke(_LeftOff("its end is missing"))

    def _complete(self) -> None:
        self._is_over = True
        self._call.streamed(self._tape.body)

    def broke(self, error: BaseException) -> None:
        """Reading it raised."""
        if not self._is_over:
            self._is_over = True
            self._call.broke(error)
            self._call.close()

    def left(self) -> None:
        """It is closed: in doubt, if it was not read to its end."""
        self.broke(_LeftOff("it was not read to its end"))


class _LeftOff(RunnerError):
    """A stream that was not read to its end."""
