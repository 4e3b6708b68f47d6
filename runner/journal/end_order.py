"""The order in which concurrent steps ended, which a replay keeps.

Some frameworks give a model the results of concurrent tools in the order in which those ended. Replayed at once, they
would end in the order in which they began, and the next request would be another one, which is paid. So the record of a
step says which other one ended last before it, if that was while it was in progress, and it is replayed after that.

The record says so by white space at its end. That is the same JSON for all readers, of older versions too, and takes
no further write. Steps one after the other have none.

The same code never waits in vain: the other step began before this one had ended, and so without its result. If code
does other things than before, nothing is waited for any more after `PATIENCE`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runner.core import fault_points
from runner.core.made_once import made_once
from runner.journal.call_slots import is_call
from runner.journal.give_ups import GiveUp, causes_of, is_cancellation, is_timeout, name_for, reference_to
from runner.journal.steps import Frame, spelled
from runner.journal.stopped_together import StoppedTogether

log = logging.getLogger(__name__)

PATIENCE = 5.0  #: seconds without a new step until nothing is waited for any more
LOOK = 0.002  #: seconds between two looks whether the other step has ended
WAIT = 0.05  #: seconds between two looks whether a step still waits to be cancelled
TAKEN = 10  #: so many looks later its result has been taken, on a loop by as many turns at least

_LENGTH = 16


def overtaken(recorded: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the records that are to be replayed after others, each with the hash of the other's key."""
    return {name: text[-_LENGTH:] for name, text in recorded.items() if text[-_LENGTH:].isspace()}


class EndOrder(StoppedTogether):
    """The order of one task's steps, and those of them that its code gave up."""

    _began: float  #: when the attempt did
    _by_hash: Mapping[str, str] | None = None

    @made_once
    def _ended_on(self) -> dict[str, asyncio.AbstractEventLoop | None]:
        """The loops on which held steps were replayed."""
        return {}

    @made_once
    def _given_up(self) -> list[tuple[str, Callable[[], BaseException | None], int]]:
        """The give-ups of this attempt: their records, their errors, and how many steps had begun."""
        return []

    @made_once
    def _in_vain(self) -> list[str]:
        """The records of the give-ups that were waited for when the task was stopped."""
        return []

    def hold(self, frame: Frame) -> None:
        """Return when a held step may be replayed."""
        for seconds in self._held_back(frame):
            self.cancel_scope.sleep(seconds)

    async def hold_async(self, frame: Frame) -> None:
        """The same in a coroutine. If the other one has ended already, or on this loop, some turns of that are enough.

        A step that was cancelled is cancelled in here, or this returns when the code does something else this time.
        """
        if frame.gave_up is not None and frame.gave_up.error is None and not frame.gave_up.refused:
            await self._until_cancelled(frame)
        if frame.key not in self._held:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another kind of loop
            loop = None
        for seconds in self._held_back(frame, loop):
            await self.check_async()
            await self.clock.sleep_async(seconds)

    async def _until_cancelled(self, frame: Frame) -> None:
        """Wait to be cancelled, as before. The code does that by a clock of its own, or as others end.

        It has the time that it had from the beginning of its attempt, as no clock of the code's had begun before that,
        and `PATIENCE` after the last new step.
        """
        seen, end, gave_up, began = (-1, -1, -1), 0.0, frame.gave_up, self.clock.monotonic()
        with self._lock:
            self._pending |= {frame.key}
        try:
            while True:
                await self.check_async()
                now, at = (self._looked_up, self.calls, len(self._held)), self.clock.monotonic()
                if now != seen:
                    seen, end = now, at + PATIENCE
                elif gave_up is None or at > max(end, began + gave_up.at + PATIENCE):
                    log.warning("%s is made again: the code that cancelled it does not do so this time", frame.key)
                    break
                await self.clock.sleep_async(WAIT)
        except BaseException as error:
            if gave_up is not None and self.cancel_scope.stopping is not None:
                self._in_vain.append(gave_up.name)
            elif gave_up is not None and is_cancellation(error):
                self.files.lay([gave_up.name])
                self.is_given_up_again(frame, gave_up, error)
            raise
        finally:
            self.is_made_again(frame)

    def give_up(
        self,
        frame: Frame,
        error: BaseException,
        mark: int | None = None,
        *,
        in_body: bool = False,
        answer: Mapping[str, Any] | None = None,
        answered: bool = False,
    ) -> None:
        """Record that the code gave it up with this error, for a replay. Not if the task is being stopped.

        ``mark`` is when it began to write files, ``in_body`` whether a part of an answer had come,
        ``answer`` the part that its reader has of it, ``answered`` whether its result is recorded.
        """
        scope = self.cancel_scope
        if is_timeout(error):
            reason = type(error).__name__, str(error)
        elif is_cancellation(error) and not scope.of_coroutine:  # that may be cancelled itself
            reason = None
        else:
            return
        if self._is_stopped:
            return
        fault_points.reached("step done, not recorded")
        name = name_for(frame.recorded_as, self._recorded)
        if mark is not None and not self.files.idle:
            self.files.keep(name, mark)
        gave_up = GiveUp(name, self.clock.monotonic() - self._began, reason, in_body, answer, answered=answered)
        with scope.write:
            self.keep_result(Frame(self, name, None, None), frame.end(gave_up.text()))
        self.note_give_up(name, error)

    @property
    def _is_stopped(self) -> bool:
        """Whether what ends now may be ended by that, and not by the author's code."""
        return self._over or self.cancel_scope.stopping is not None or (self.asked or self.failure) is not None

    def is_given_up_again(self, frame: Frame, gave_up: GiveUp, error: BaseException) -> None:
        """It ends with this error, as before."""
        if frame.ends_in is not None:
            frame.ends_in.last_ended = frame.key
        self.note_give_up(gave_up.name, error)

    def note_give_up(self, name: str, error: BaseException) -> None:
        """Keep what `ended_attempt` looks for."""
        self._given_up.append((name, reference_to(error), self.calls + self._looked_up))

    def have_ended(self, error: BaseException) -> list[str]:
        """Return the names of the give-ups that led to the error by which the attempt ends.

        They are those among its causes, those after which no step began, as the code had ended then, and those before
        one of these that were the same step, as a client repeats a call. If the task's time is up: those that it waited
        for.
        """
        if self.cancel_scope.stopping is not None:
            return self._in_vain
        causes, steps = set(map(id, causes_of(error))), self.calls + self._looked_up
        found, repeated = list[str](), ("", 0)
        for name, one, at in reversed(self._given_up):
            same = name.rpartition("#")[0]
            if at == steps or id(one()) in causes or (same, at + 1) == repeated:
                found.append(name)
                repeated = same, at
        return found

    def is_made_again(self, frame: Frame) -> None:
        """It is not given up as before."""
        frame.gave_up = None
        with self._lock:
            self._pending -= {frame.key}

    def _held_back(self, frame: Frame, loop: asyncio.AbstractEventLoop | None = None) -> Iterator[float]:
        """Yield how long to sleep, repeatedly, until a held step may be replayed. ``loop`` is that of a coroutine."""
        name, seen, end, turn = frame.recorded_as, (-1, -1, -1), 0.0, 0.0
        other = self._key_of(self._overtaken.get(name, ""))
        try:
            while other and name in self._overtaken and not self._is_over(other):
                now = self._looked_up, self.calls, len(self._held)
                if now != seen or self._is_made(other):
                    seen, end = now, self.clock.monotonic() + PATIENCE
                elif self.clock.monotonic() > end:
                    self._overtaken.clear()
                turn = LOOK
                yield LOOK
            if loop is None:
                turn = LOOK
            elif self._ended_on.get(other) is loop:
                turn = 0.0
            for _ in range(TAKEN if other else 0):
                yield turn
        finally:
            with self._lock:
                self._held -= {frame.key}
                self._ended_on[frame.key] = loop
                if frame.ends_in is not None:
                    frame.ends_in.last_ended = frame.key

    def _key_of(self, hashed: str) -> str:
        """Return the key of a recorded step; "" if there is none with this hash."""
        with self._lock:
            if self._by_hash is None:
                self._by_hash = {spelled(key): key for key in (*self._recorded, *self._gave_up)}
        return self._by_hash.get(hashed, "")

    def _is_over(self, key: str) -> bool:
        """Whether this step has ended, or is behind the task, or raised."""
        with self._lock:
            identity, _, number = key.rpartition("#")
            if is_call(key):
                has_begun = not self._calls.is_waiting(key)
            else:
                has_begun = self._occurrences.get(identity, 0) >= int(number)
        return has_begun and key not in self._held and not self._is_made(key)

    def _is_made(self, key: str) -> bool:
        """Whether the step is under way, as its record could not be used, or waits to be cancelled."""
        return key in self._pending or any(one.key == key for one in [*list(self.doing.frames), *list(self.calls_out)])
