"""Group commit: concurrent writes of a task's threads or coroutines go to the store together.

A writer that arrives while a write is in flight waits for it; then the first of the waiting ones writes for all of
them. So no write waits for others that may not come, and the busier a task is, the larger the groups. A coroutine that
writes does not await, and would never find a write in flight: if others are in flight, it first lets them reach this
point, once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from runner.core import fault_points
from runner.journal.recorder import BegunStep, DoneStep

MOST = 2**20  #: characters of results in one write, but for the last of them: the store does nothing else meanwhile


@dataclass(slots=True, eq=False)
class _Write:
    """The writes of one step: its beginning, or its result."""

    step: BegunStep | DoneStep
    is_over: bool = False
    error: BaseException | None = None


class GroupCommit:
    """The writes of one task. The writer holds ``lock``; ``write`` writes results and beginnings."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        write: Callable[[Sequence[DoneStep], Sequence[BegunStep]], None],
    ) -> None:
        self._lock, self._write = lock, write
        self._waiting = deque[_Write]()

    def add(self, step: BegunStep | DoneStep) -> None:
        """Write this step, and return when it is written. Raises what the write raised, for each step in it."""
        one = _Write(step)
        self._waiting.append(one)
        self._settle(one)

    async def aadd(self, step: BegunStep | DoneStep) -> None:
        """The same for a coroutine, after others of its loop that came this far. If cancelled, it is written first."""
        one = _Write(step)
        self._waiting.append(one)
        try:
            await asyncio.sleep(0)
        finally:
            self._settle(one)

    def _settle(self, one: _Write) -> None:
        with self._lock:
            while not one.is_over:
                self._write_waiting()
        if one.error is not None:
            raise one.error

    def _write_waiting(self) -> None:
        """Write as many as fit. If this is interrupted, the next writer finds the rest."""
        self._forget_written()
        group, room = list[_Write](), MOST
        for one in self._waiting.copy():
            if room <= 0:
                break
            group.append(one)
            room -= len(one.step.value) if isinstance(one.step, DoneStep) else 0
        done = [one.step for one in group if isinstance(one.step, DoneStep)]
        if done:
            fault_points.reached("steps gathered, not written")
        error = None
        try:
            self._write(done, [one.step for one in group if isinstance(one.step, BegunStep)])
        except BaseException as raised:
            error = raised
        for one in group:
            one.error, one.is_over = error, True
        self._forget_written()
        if done:
            fault_points.reached("steps written, not told")

    def _forget_written(self) -> None:
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()
