"""One call of a model, between the journal and the transport."""

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from runner.core import fault_points
from runner.core.ledger import STEP, Usage
from runner.journal.call_slots import CallSlot
from runner.journal.give_ups import GiveUp
from runner.journal.journal import Journal
from runner.journal.steps import Frame


class Call:
    """One call of a model, from where it leaves the process.

    ``recorded`` is what was recorded of it, if it was; ``frame`` its step, ``place`` its slot. A real one goes: `open`,
    `begins`, `mark_sent`, then `record`, `drop` (not taken) or neither (outcome unknown: it is in doubt), and `close`.
    """

    def __init__(self, journal: Journal, frame: Frame, place: CallSlot, recorded: Mapping[str, Any] | None) -> None:
        self._journal, self._cancel_scope, self.frame, self.place = journal, journal.cancel_scope, frame, place
        self.entry = frame.entry or STEP  #: what it is in the account
        self.watched = journal.watched  #: whether an observer wants it
        self._held: contextlib.AbstractContextManager[None] | None = None
        self._lock = threading.Lock()
        self.recorded = recorded
        self._noted = False
        self.has_left = False

    @property
    def number(self) -> int:
        """The call's index among the calls of its task, or of the enclosing step."""
        return self.place.number

    @property
    def step(self) -> str:
        """The step around it; "" for none."""
        return self.place.prefix.rstrip("/").rpartition("#")[0]

    @property
    def is_held(self) -> bool:
        """Whether it is recorded, and to be replayed after another step: `hold` it."""
        return self._journal.is_held(self.frame)

    def hold(self) -> None:
        """Return when it may be replayed."""
        self._journal.hold(self.frame)

    async def hold_async(self) -> None:
        """Return when it may be replayed."""
        await self._journal.hold_async(self.frame)

    def gives_up(self) -> GiveUp | None:
        """Return how it was given up, if its client timed out: it does so now."""
        return self._journal.gives_up(self.frame)

    def gives_up_by(self, gave_up: GiveUp, error: BaseException) -> None:
        """Its client raises this error, as before."""
        self._journal.is_given_up_again(self.frame, gave_up, error)

    def refuse(
        self,
        *,
        error: tuple[str, ...] | None = None,
        in_body: bool = False,
        answer: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep that it was refused by this answer, or raised this error.

        ``in_body``: when a part of the answer had come.
        """
        self._journal.refuse(self.frame, error, in_body, answer)

    def is_refused_again(self, gave_up: GiveUp) -> None:
        """It is refused as before."""
        self._journal.is_refused_again(self.frame, self.place, gave_up)

    def is_made_again(self) -> None:
        """It is not given up, or refused, as before."""
        self._journal.is_made_again(self.frame)

    def give_up(
        self,
        error: BaseException,
        *,
        in_body: bool = False,
        answer: Mapping[str, Any] | None = None,
        answered: bool = False,
    ) -> None:
        """Record that the code gave it up with this error.

        ``in_body``: a part of the answer had come; ``answer``: its reader has this part of it; ``answered``: it came as
        the code cancelled it, and is recorded.
        """
        self._journal.give_up(self.frame, error, in_body=in_body, answer=answer, answered=answered)

    def streams(self) -> None:
        """Its answer begins to come, piece by piece."""
        self._journal.streams(self.frame)

    def check(self) -> None:
        """Stop here, if the task is to stop."""
        self._cancel_scope.check()

    def write(self) -> contextlib.AbstractContextManager[None]:
        """In here no stop breaks in."""
        return self._cancel_scope.write

    def open(self) -> None:
        """The call is about to be made: from here on, a deferrable stop waits for its end."""
        held = self._cancel_scope.call
        held.__enter__()
        self._held = held
        self._journal.calls_out.add(self.frame)

    def close(self) -> None:
        """The call has ended, in whatever way."""
        with self._lock:
            held, self._held = self._held, None
            self._journal.calls_out.discard(self.frame)
        if held is not None:
            held.__exit__(None, None, None)

    def begins(self) -> None:
        """Note the call in the journal. It has its connection and is sent next."""
        if not self._noted:
            self._noted = True
            with self._cancel_scope.write:
                self._journal.enter(self.frame, intent_only=True)

    async def begins_async(self) -> None:
        """The same in a coroutine: the notes of concurrent calls are written together."""
        if not self._noted:
            self._noted = True
            with self._cancel_scope.write:
                await self._journal.enter_call(self.frame)

    def leaves(self) -> None:
        """`begins`, and `mark_sent`, in one: most calls leave at once."""
        if self._noted:
            self.mark_sent()
            return
        self._noted = True
        writing = self._cancel_scope.write.entries
        writing.append(None)  # as `write`, which would be two more calls
        try:
            self._journal.enter(self.frame, intent_only=True)
            fault_points.reached("model call noted, not sent")
            self.has_left = True
            self._journal.send(self.entry)
        finally:
            writing.pop()

    def mark_sent(self) -> None:
        """Mark the call as possibly received by its service."""
        if self._noted and not self.has_left:
            self.has_left = True
            self._journal.mark_sent(self.entry)

    def record(self, text: str, usage: Usage, reported: bool) -> None:
        """Record the answer. ``reported``: the event bus is told elsewhere."""
        with self._cancel_scope.write:
            self._journal.keep_result(self.frame, text, usage, reported=reported)

    async def record_async(self, text: str, usage: Usage, reported: bool) -> None:
        """Record the answer in a coroutine: the records of concurrent calls are written together."""
        with self._cancel_scope.write:
            await self._journal.keep_answer(self.frame, text, usage, reported=reported)

    def drop(self) -> None:
        """Remove the note of a call that its service did not take."""
        self._journal.release(self.place)
        if self._noted:
            with self._cancel_scope.write:
                self._journal.leave(self.frame, intent_only=not self.has_left)
