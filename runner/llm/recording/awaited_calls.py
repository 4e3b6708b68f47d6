"""How the transports of coroutines await a call, or a part of its answer: what came as the task is stopped is kept."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from runner.journal.cancellation.calls_in_flight import awaited, cancel_next_wait
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.llm.recording.recorded_call import RecordedCall


async def make(call: RecordedCall, made: Callable[[], Awaitable[Any]]) -> Any:
    """Return what ``made`` gives, which makes the call and records its answer."""
    scope, given = call.cancel_scope, dict[int, Any]()
    if scope.stopping is not None:
        await call.check_async()
    call.is_awaited = True
    with call:
        call.came_late = given
        await awaited(made(), scope, given, put_off=True)
        if 1 in given and scope.stopping is None:
            raise given[1]
        if call.streams and 1 in given:  # else the stop is raised where the call ends
            cancel_next_wait(given[1])
    if scope.stopping is not None and not call.streams:
        if 1 not in given:
            await call.check_async()
        scope.check()
    return given[0]


class Stream(Protocol):
    """An answer that comes in parts, to a coroutine."""

    cancel_scope: CancelScope

    @property
    def is_over(self) -> bool:
        """Whether it is recorded, or broke off."""

    async def check_async(self) -> None:
        """Stop here, if the task is to stop."""


async def passed_on(part: Awaitable[Any], stream: Stream, take: Callable[[Any], object]) -> Any:
    """Await a part of an answer, and return it once ``take`` has had it: also if the cancellation is raised instead."""
    scope, kept = stream.cancel_scope, dict[int, Any]()
    await awaited(part, scope, kept)
    take(kept[0])
    if scope.stopping is not None and stream.is_over:
        if 1 not in kept:
            await stream.check_async()
        scope.check()
    if 1 in kept:
        raise kept[1]
    return kept[0]
