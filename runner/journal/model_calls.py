"""The model calls of a task in flight: their slots, their recorded answers, and what is recorded now."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.core.ledger import AccountKey, Usage, caller, model_key, usage_in
from runner.journal.call_slots import CallSlot
from runner.journal.end_order import EndOrder
from runner.journal.give_ups import GiveUp, name_for
from runner.journal.recorder import BegunStep, DoneStep
from runner.journal.records import HELD_AT_MOST
from runner.journal.steps import Frame, current_step, supersede, supposed_step
from runner.journal.stopped_together import this_coroutine

if TYPE_CHECKING:
    from runner.journal.refusals import Refusals


class ModelCalls(EndOrder):
    """The model calls of one task."""

    replay_from_start: bool
    root: Path | None = None  #: where code was imported from whose calls were made elsewhere, too: it does not count

    def has_call(self, digest: str, *, unattributed: bool = False) -> bool:
        """Whether a model call with this hash is recorded for the current position."""
        if not self.found:
            return False
        outer = current_step.get()
        unattributed = unattributed and outer is supposed_step.get()
        with self._lock:
            return self._calls.waits(self._within(outer), digest, unattributed=unattributed)

    def place_call(
        self, digest: str, model: Callable[[], str], *, unattributed: bool = False
    ) -> tuple[Frame, CallSlot, Mapping[str, Any] | None]:
        """Return the slot of a model call that is about to be sent, and its record, if there is one.

        ``digest`` is its request's hash, ``model`` returns the name; ``unattributed``: from a thread without context.
        """
        outer = current_step.get()
        unattributed = unattributed and outer is supposed_step.get()
        with self._lock:
            self.calls += 1
            place = self._calls.reserve("" if outer is None else self._within(outer), digest, unattributed=unattributed)
            text = self._recorded.get(place.key) if place.recorded else None
            recorded = json.loads(text) if text is not None else None
            entry = model_key(caller.get().agent, model() if recorded is None else recorded["model"])
            frame = Frame(self, place.key, entry, outer)
            frame.ends_in = ends_in = self if outer is None or outer.journal is not self else outer
            frame.before = ends_in.last_ended
            if self._refusals is not None:
                self._refusals.began(place.key, is_recorded=recorded is not None)
            if recorded is not None:
                self._progress.serve(place.key, entry, usage_in(recorded))
                if place.key in self._overtaken and len(self._held) < HELD_AT_MOST:
                    self._held |= {place.key}
                else:
                    ends_in.last_ended = place.key
            if place.key in self._gave_up and place.recorded:
                self._find_give_up(frame, has_result=recorded is not None)
        if recorded is not None:
            self._supersede_enclosing(outer)
        return frame, place, recorded

    def serve_call(self, chain: str, read: Callable[[Mapping[str, Any]], Any]) -> tuple[AccountKey, Any] | None:
        """Replay the call with this chain, as `place_call` would, if ``read`` can parse its record."""
        outer = current_step.get()
        with self._lock:
            digest, key = self._calls.find(self._within(outer), chain)
            recorded = json.loads(self._recorded.get(key, "{}"))
            if key not in self._recorded or key in self._overtaken or key in self._gave_up:
                return None
            if (value := read(recorded)) is None:
                return None
            self.calls += 1
            (self if outer is None or outer.journal is not self else outer).last_ended = key
            self._calls.reserve(self._within(outer), digest)
            if self._refusals is not None:
                self._refusals.began(key, is_recorded=True)
            entry = model_key(caller.get().agent, recorded["model"])
            self._progress.serve(key, entry, usage_in(recorded))
        self._supersede_enclosing(outer)
        return entry, value

    def diverged(self, place: CallSlot) -> bool:
        """Whether another call was recorded in a slot, and is not made again."""
        if not self.found:
            return False
        with self._lock:
            return self.replay_from_start and self._calls.diverged(place)

    def _supersede_enclosing(self, outer: Frame | None) -> None:
        """A replayed call is counted instead of the enclosing steps, as when it was made."""
        with self.cancel_scope.write:
            for entry in supersede(outer):
                self._recorder.drop_step(entry)

    def is_held(self, frame: Frame) -> bool:
        """Whether the call is recorded, and replayed later, or waits to be cancelled again: `hold` it."""
        return frame.key in self._held or frame.key in self._pending

    def gives_up(self, frame: Frame) -> GiveUp | None:
        """Return how a call was given up, if its client timed out: it does so now.

        A call that was cancelled is made if it gets here: it is not awaited, or not cancelled this time.
        """
        gave_up = frame.gave_up
        if gave_up is None or gave_up.error is None:
            self.is_made_again(frame)
            return None
        if frame.key in self._held:
            self.hold(frame)
        self.cancel_scope.check()
        return gave_up

    def refuse(
        self, frame: Frame, error: tuple[str, ...] | None, in_body: bool, answer: Mapping[str, Any] | None
    ) -> None:
        """Keep that a call was refused by this answer, or raised this error. Not if the task is being stopped."""
        if not self._is_stopped:
            name, at = name_for(frame.recorded_as, self._recorded), self.clock.monotonic() - self._began
            gave_up = GiveUp(name, at, error, in_body, answer, refused=True)
            with self._lock:
                self._kept_refusals().add(frame.key, gave_up)

    def is_refused_again(self, frame: Frame, place: CallSlot, gave_up: GiveUp) -> None:
        """It is refused as before."""
        self.cancel_scope.check()
        with self._lock:
            self._calls.release(place)
            self._kept_refusals().add(frame.key, gave_up, is_written=True)

    def _kept_refusals(self) -> "Refusals":
        if self._refusals is None:
            from runner.journal.refusals import Refusals

            self._refusals = Refusals()
        return self._refusals

    def streams(self, frame: Frame) -> None:
        """The answer begins to come, and may be acted on: the call ends after nothing that begins from now on."""
        frame.reader = this_coroutine()
        under_way = [one.key for one in (*self.doing.frames, *self.calls_out)]
        frame.beside = under_way if frame.ends_in is None else (*under_way, frame.ends_in.last_ended)

    async def enter_call(self, frame: Frame) -> None:
        """The same for a call that a coroutine intends, grouped with others."""
        if self.asked is not None or self.failure is not None:
            self._refuse_if_ended()
        if self._has_company() and frame.entry is not None:
            await self._together.aadd(BegunStep(frame.entry, supersede(frame.outer), intent_only=True))
        else:
            self.enter(frame, intent_only=True)

    def _has_company(self) -> bool:
        """Whether other calls may reach this point, if an asyncio coroutine asks."""
        if len(self.calls_out) < 2:
            return False
        try:
            return bool(asyncio.get_running_loop())
        except RuntimeError:  # another kind of loop
            return False

    def release(self, place: CallSlot) -> None:
        """Release the slot of a failed call, so that the next attempt reserves it again."""
        with self._lock:
            self._calls.release(place)

    async def keep_answer(self, frame: Frame, text: str, usage: Usage, *, reported: bool) -> None:
        """The same for a call of a coroutine, grouped with others."""
        if self._has_company():
            await self._together.aadd(DoneStep(frame.recorded_as, text, frame.entry, usage, reported))
        else:
            self.keep_result(frame, text, usage, reported=reported)
