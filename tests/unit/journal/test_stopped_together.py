"""A coroutine waits to be stopped until the calls beside it have ended, and not for longer than these may last."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from runner.core.errors import ClaimLost, Interrupted, Stop, TimedOut
from runner.journal.cancellation.calls_in_flight import RETURNING
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.testing.clock import START, ManualClock

from .test_end_order import Recorder

ENDS: dict[str, tuple[Callable[[CancelScope, ManualClock], object], float]] = {
    "a timeout": (lambda scope, _: scope.ask(TimedOut("it timed out")), RETURNING),
    "a drain whose time is over": (lambda scope, _: (scope.ask(Interrupted("drain")), scope.force()), RETURNING),
    "a lost claim": (lambda scope, _: scope.ask(ClaimLost("it is another's")), 0),
}


class Turns(ManualClock):
    """Gives others their turn as it advances."""

    def __init__(self, then: Callable[[float], object] = lambda _: None) -> None:
        super().__init__()
        self._then = then

    async def sleep_async(self, seconds: float, /) -> None:
        self.advance(seconds)
        self._then(self.now() - START)
        await asyncio.sleep(0)


async def beside_one_that_waits_for_it(journal: Journal, stops: Callable[[], object]) -> None:
    """A step ends, as the task is stopped, beside one that waits for it."""

    begun = asyncio.Event()

    async def first() -> None:
        await begun.wait()
        stops()

    one = asyncio.ensure_future(journal.step("one", first, (), {}))

    async def waits() -> Any:
        begun.set()
        return await one

    await asyncio.gather(one, journal.step("other", waits, (), {}))


@pytest.mark.parametrize("how", ENDS)
def test_none_waits_without_end_for_one_that_waits_for_it(how: str) -> None:
    stop, seconds = ENDS[how]
    clock, scope, recorder = Turns(), CancelScope(), Recorder()
    journal = Journal(recorder.recorded, recorder, scope, clock=clock)
    with pytest.raises(Stop):
        asyncio.run(beside_one_that_waits_for_it(journal, lambda: stop(scope, clock)))
    assert clock.now() - START == pytest.approx(seconds, abs=0.6)
    assert [name.partition("#")[0] for name in recorder.recorded] == ["one"]


@pytest.mark.parametrize("at", [3.0, 30.0])
def test_a_drain_lets_it_wait_until_the_claim_is_lost(at: float) -> None:
    scope, recorder = CancelScope(), Recorder()
    clock = Turns(lambda passed: scope.ask(ClaimLost("it is another's")) if passed >= at else None)
    journal = Journal(recorder.recorded, recorder, scope, clock=clock)
    with pytest.raises(ClaimLost):
        asyncio.run(beside_one_that_waits_for_it(journal, lambda: scope.ask(Interrupted("drain"))))
    assert clock.now() - START == pytest.approx(at, abs=0.6)
