"""The events of a task's code among its run's: those that are waited for, and those that go with the next write.

A told event costs no round trip. It is sent ahead of whatever the task writes next, or by itself soon, and the
store's answer is read with the next one. What was sent and lost is sent again under the same nonce, which the store
compares: it is there once. A commit names the nonce of what it does not know to be there, and is refused without that.
No write fails because of what was told before it: what the store will never take is left out, and the log says so.
"""

import json
import logging
import os
from collections.abc import Sequence
from typing import Any, Unpack

from redis.exceptions import ResponseError

from runner.core.errors import ClaimLost
from runner.core.made_once import made_once
from runner.core.redaction import redact
from runner.providers.records import DeferredEvent, EventDetails
from runner.providers.redis import scripts
from runner.providers.redis.outages import call_later, outage
from runner.providers.redis.posted_steps import PostedSteps
from runner.providers.redis.scripts import PackedScript, flat, stamp

log = logging.getLogger(__name__)

SOON = 0.02  #: seconds after which a told event is sent by itself
AT_ONCE = 100  #: events that one script appends: a journal of thousands of calls is replayed within a moment


class _Batch:
    """Events as they are sent together: the slots of their script, and what the store said."""

    __slots__ = ("events", "is_heard", "nonce", "sequence", "slots")

    def __init__(self, events: Sequence[DeferredEvent], nonce: str, slots: Sequence[str]) -> None:
        self.events, self.nonce, self.slots = events, nonce, slots
        self.sequence: int | None = None  # the first one's; 0 where the claim is lost
        self.is_heard = False

    def hear(self, answer: Any) -> None:
        """The script's answer; None where it failed, or was lost."""
        self.is_heard = True
        if answer is None:
            return
        self.sequence = int(answer)
        for number, event in enumerate(self.events):
            event.sequence = self.sequence + number if self.sequence else 0


Telling = tuple[DeferredEvent, str, str, str, tuple[int | DeferredEvent, ...], str]
"""An event that is to be sent: type, task, further fields as JSON, relatives, and what ends it."""


class RunEvents(PostedSteps):
    """What a claimed task tells its run. Each write shows the token; `ClaimLost` if it no longer holds."""

    _unsent: list[Telling] | None
    _sent: _Batch | None = None  #: of which it is not known whether they came
    _is_awaited = False  #: whether `call_later` looks at it
    _said = 0  #: how often it said something

    @made_once
    def _append(self) -> PackedScript:
        return PackedScript(scripts.load("append_event"), self._run, self._branch, self._task, *self._who.values())

    def _nonce(self) -> str:
        """Of what it says among the run's events: most tasks say nothing."""
        self._said += 1
        return f"{self._me}.{self._said}"

    @made_once
    def _me(self) -> str:
        return os.urandom(4).hex()

    def note(self, kind: str, text: str) -> None:
        """Put a line among the run's events."""
        with self._lock:
            self._confirm_events()
            slots = {
                "run": self._run,
                "task": self._task,
                **self._who,
                "kind": kind,
                "text": redact(text),
                "nonce": self._nonce(),
            }
            self._held(scripts.load("note"), **slots)

    def append_event(self, kind: str, about: str, *, trigger: str = "", **details: Unpack[EventDetails]) -> int:
        """Put an event of the task's code among the run's, after those told. Returns its sequence."""
        telling = _telling(kind, about, details)
        with self._lock:
            if self._posted is not None:
                self._settle(self._posted)
            if self._unsent is not None and len(self._unsent) >= AT_ONCE:
                self._send_events()
            if self._sent is not None:
                self._confirm_sent()
            steps = self._unnumbered if trigger else None
            self._append_surely(self._batch(telling, trigger, steps or ()))
            if steps:
                steps.clear()
        return telling[0].sequence or 0

    def defer_event(self, kind: str, about: str, **details: Unpack[EventDetails]) -> DeferredEvent:
        """The same of one whose sequence is not needed yet: it goes with the next write, or by itself soon."""
        telling = _telling(kind, about, details)
        with self._lock:
            if self._unsent is None:
                self._unsent = [telling]
            else:
                self._unsent.append(telling)
            if not self._is_awaited:
                self._is_awaited = True
                call_later(self._send_deferred, SOON)
        return telling[0]

    def _batch(self, last: Telling | None = None, trigger: str = "", steps: Sequence[str] = ()) -> _Batch:
        """What is to be sent next, and ``last``, of which the other arguments are."""
        unsent = self._unsent or []
        tellings, self._unsent = unsent[:AT_ONCE], unsent[AT_ONCE:] or None
        if last is not None:
            tellings.append(last)
        for place, (event, *_) in enumerate(tellings, 1):
            event.place = place
        rows = [
            [kind, about, more, *map(_reference, relatives), ends] for _, kind, about, more, relatives, ends in tellings
        ]
        nonce, before = self._nonce(), rows[:-1]
        recorded, others = (json.dumps(one, ensure_ascii=False) if one else "" for one in (steps, before))
        return _Batch([one[0] for one in tellings], nonce, (*rows[-1], trigger, recorded, stamp(), nonce, others))

    def _send_events(self) -> None:
        """Send those that were told. Nothing waits for the answer."""
        while self._unsent is not None:
            if self._sent is not None:
                self._confirm_sent()
            if self._append.script.sha not in self._line.known:
                self._line.load(self._append.script)
            self._sent = batch = self._batch()
            self._line.send_nowait(self._append.packed(*batch.slots), heard=batch.hear)

    def _send_deferred(self) -> None:
        """The same, where nothing was written for a moment.

        Nothing is sent between a record and its answer, nor after what may be lost: there it is left to the next write.
        """
        with self._lock:
            self._is_awaited = False
            is_sure = self._sent is None or self._sent.sequence is not None
            if self._unsent is not None and self._posted is None and is_sure and not outage.waiting:
                self._send_events()

    def _confirm_events(self) -> None:
        """Return when all that was told is in the store."""
        if self._posted is not None or self._unsent is not None:
            self._make_way()
        if self._sent is not None:
            self._confirm_sent()

    def _confirm_sent(self) -> None:
        """Return when what was sent is in the store. Where it was lost, it is sent again. Raises `ClaimLost`."""
        assert self._sent is not None
        if not self._sent.is_heard:
            self._line.settle()
        if self._sent.sequence is None:
            try:
                self._append_surely(self._sent)
            except ResponseError as error:
                log.error("events of %s are left out, as the store refused them: %s", self._claim.job.ref, error)
        self._sent = None

    def _append_surely(self, batch: _Batch) -> None:
        """Send events, and wait for the answer. Raises `ClaimLost`."""
        self._sent = batch  # who is interrupted here sends it again with what is written next
        try:
            batch.hear(self._append(self._line, *batch.slots))
        except ResponseError:
            batch.hear(0)  # what names one of them has no relative
            self._sent = None
            raise
        self._sent = None
        if not batch.sequence:
            raise ClaimLost(f"the claim on {self._claim.job.ref} is lost")
        self._sure()


def _telling(kind: str, about: str, details: EventDetails) -> Telling:
    """An event that is to be sent. Half a surrogate pair, as in the name that a model gave, becomes a "?"."""
    more = details.get("more")
    relatives = details.get("parent", 0), details.get("started", 0), details.get("cause", 0)
    fields = flat(more).encode(errors="replace").decode() if more else "[]"
    return DeferredEvent(), kind, about, fields, relatives, details.get("ends", "")


def _reference(event: int | DeferredEvent) -> str:
    """Return an event as ``append_event.lua`` takes it."""
    if isinstance(event, DeferredEvent):
        return f"-{event.place}" if event.sequence is None else str(event.sequence)
    return str(event)
