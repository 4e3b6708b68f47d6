"""Group commit: writes that threads or coroutines of a task make at about the same time go to the store together.

Who comes while a write is out waits for it; the first of those who waited writes what all of them have to say, and the
others find it done. So nothing waits for company that does not come, and the busier a task is, the more go together.
A coroutine that writes does not await, and would never find a write out: where others are under way it lets them come
as far as this first, once.
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
    """What one of them has to say: that a step begins, or what it gave."""

    step: BegunStep | DoneStep
    is_over: bool = False
    error: BaseException | None = None


class GroupCommit:
    """The writes of one task. ``lock`` is held by who writes; ``write`` writes what was done, and what begins then."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        write: Callable[[Sequence[DoneStep], Sequence[BegunStep]], None],
    ) -> None:
        self._lock, self._write = lock, write
        self._waiting = deque[_Write]()

    def add(self, step: BegunStep | DoneStep) -> None:
        """Return when it is written. Raises what that raised, for all who were written together."""
        one = _Write(step)
        self._waiting.append(one)
        self._settle(one)

    async def aadd(self, step: BegunStep | DoneStep) -> None:
        """The same of a coroutine, after the others of its loop that are as far. Cancelled, it is written first."""
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
        """Write as many as fit. Whoever is broken into here leaves them where another writer finds them."""
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
