"""Coroutines side by side are stopped together: once none of their calls is under way.

A stop that is raised in one of them ends what awaits them all, as `asyncio.gather` or a task group, and with that the
others are cancelled. Calls that they had out would be in doubt, and paid again, though the stop leaves them the time to
end. So a coroutine in which the stop would be raised waits for the calls beside it. A lost claim is raised at once. As
one of those may itself wait for this coroutine, that is for as long as calls have to end: none waits without end.
"""

import asyncio
import math
from collections.abc import Iterator

from runner.core.made_once import made_once
from runner.journal.cancellation.calls_in_flight import RETURNING
from runner.journal.records import StepRecords
from runner.journal.steps import Frame, current_step

LOOK, SELDOM = 0.002, 0.5
"""Seconds between two looks at the calls beside: for each coroutine that waits for them; and at most."""


def this_coroutine() -> object:
    """Return the asyncio task that runs; under another kind of loop, what is no other's."""
    try:
        return asyncio.current_task() or object()
    except RuntimeError:
        return object()


class StoppedTogether(StepRecords):
    """The coroutines of one task."""

    calls_out: set[Frame]  #: the model calls that are under way

    @made_once
    def _stopped(self) -> dict[object, Frame | None]:
        """The coroutines that wait to be stopped, and the steps that these are in."""
        return {}

    async def check_async(self) -> None:
        """Stop here, as `CancelScope.check`, if the task is to stop: when no call of another coroutine is under way."""
        scope, here = self.cancel_scope, this_coroutine()
        if scope.stopping is not None:
            self._stopped[here], now, ends = current_step.get(), self.clock.monotonic, math.inf
            try:
                while scope.awaits_answer and now() < ends and self._is_any_beside():
                    if scope.ends_calls:
                        ends = min(ends, now() + RETURNING)
                    await self.clock.sleep_async(min(LOOK * len(self._stopped), SELDOM))
            finally:
                del self._stopped[here]
        scope.check()

    def _is_any_beside(self) -> bool:
        """Whether a call is under way that none of the coroutines that wait makes, or reads."""
        if any(one.reader not in self._stopped for one in list(self.calls_out)):
            return True
        steps = list(self.doing.frames)  # other threads begin some
        idle = {one for step in list(self._stopped.values()) for one in _around(step)} | {one.outer for one in steps}
        return any(one not in idle for one in steps)


def _around(step: Frame | None) -> Iterator[Frame]:
    while step is not None:
        yield step
        step = step.outer
