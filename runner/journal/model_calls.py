"""The model calls of a task in flight: their slots, their recorded answers, and what is recorded now."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from runner.core.ledger import AccountKey, Usage, caller, usage_in
from runner.journal.call_slots import CallSlot
from runner.journal.recorder import BegunStep, DoneStep
from runner.journal.step_writes import StepWrites
from runner.journal.steps import Frame, current_step, supersede


class ModelCalls(StepWrites):
    """The calls of models of one task. ``calls`` is how many came to it, recorded or made."""

    replay_from_start: bool
    calls_out: set[Frame]  #: those that are under way
    calls = 0

    def has_call(self, digest: str, *, unattributed: bool = False) -> bool:
        """Whether a call of a model with this hash of its request is recorded for where it would be made now."""
        if not self._found:
            return False
        outer = self.doing.sole() if unattributed else current_step.get()
        with self._lock:
            return self._calls.waits(self._within(outer), digest, unattributed=unattributed)

    def place_call(
        self, digest: str, model: Callable[[], str], *, unattributed: bool = False
    ) -> tuple[Frame, CallSlot, Mapping[str, Any] | None]:
        """Where a call of a model belongs that is about to leave the process, and what was recorded of it.

        ``digest`` is its request's hash, ``model`` gives the name; ``unattributed``: of a thread without context.
        """
        outer = self.doing.sole() if unattributed else current_step.get()
        with self._lock:
            self.calls += 1
            place = self._calls.reserve("" if outer is None else self._within(outer), digest, unattributed=unattributed)
            recorded = json.loads(self._recorded[place.key]) if place.recorded else None
            entry = AccountKey("model", caller.get().agent, model() if recorded is None else recorded["model"])
            if recorded is not None:
                self._progress.serve(place.key, entry, usage_in(recorded))
        if recorded is not None:
            self._supersede_enclosing(outer)
        return Frame(self, place.key, entry, outer), place, recorded

    def serve_call(self, chain: str, read: Callable[[Mapping[str, Any]], Any]) -> tuple[AccountKey, Any] | None:
        """Serve the call with this chain as `place_call` would, if it is recorded and ``read`` can read its record."""
        outer = current_step.get()
        with self._lock:
            digest, key = self._calls.find(self._within(outer), chain)
            recorded = json.loads(self._recorded[key]) if key else {}
            if not key or (value := read(recorded)) is None:
                return None
            self.calls += 1
            self._calls.reserve(self._within(outer), digest)
            entry = AccountKey("model", caller.get().agent, recorded["model"])
            self._progress.serve(key, entry, usage_in(recorded))
        self._supersede_enclosing(outer)
        return entry, value

    def diverged(self, place: CallSlot) -> bool:
        """Whether another call was recorded at a place, and is not asked for."""
        if not self._found:
            return False
        with self._lock:
            return self.replay_from_start and self._calls.diverged(place)

    def _supersede_enclosing(self, outer: Frame | None) -> None:
        """A call that is replayed stands for the steps around it, as it did when it was made."""
        with self.cancel_scope.write:
            for entry in supersede(outer):
                self._recorder.drop_step(entry)

    async def enter_call(self, frame: Frame) -> None:
        """The same of a call that a coroutine intends, together with those of others."""
        if self.asked is not None:
            self._refuse_if_asked(self.asked)
        if self._has_company() and frame.entry is not None:
            await self._together.aadd(BegunStep(frame.entry, supersede(frame.outer), intent_only=True))
        else:
            self.enter(frame, intent_only=True)

    def _has_company(self) -> bool:
        """Whether other calls may come as far, where a coroutine of asyncio's asks."""
        if len(self.calls_out) < 2:
            return False
        try:
            return bool(asyncio.get_running_loop())
        except RuntimeError:  # another kind of loop
            return False

    def release(self, place: CallSlot) -> None:
        """Release the slot of a call that failed: the next attempt at it reserves the same one."""
        with self._lock:
            self._calls.release(place)

    async def keep_answer(self, frame: Frame, text: str, usage: Usage, *, reported: bool) -> None:
        """The same of a call that a coroutine made, together with those of others."""
        if self._has_company():
            await self._together.aadd(DoneStep(frame.recorded_as, text, frame.entry, usage, reported))
        else:
            self.keep_result(frame, text, usage, reported=reported)
