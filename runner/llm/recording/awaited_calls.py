"""How the transports of coroutines await a call, or a part of its answer: what came as the task is stopped is kept."""

from collections.abc import Awaitable, Callable
from typing import Any

from runner.journal.cancellation.calls_in_flight import awaited, cancel_next_wait
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.llm.recording.recorded_call import RecordedCall


async def make(call: RecordedCall, made: Callable[[], Awaitable[Any]]) -> Any:
    """Return what ``made`` gives, which makes the call and records its answer."""
    with call:
        given = dict[int, Any]()
        await awaited(made(), call.cancel_scope, given)
        if call.streams and 1 in given:  # else the stop is raised where the call ends
            cancel_next_wait(given[1])
        return given[0]


async def passed_on(part: Awaitable[Any], scope: CancelScope, take: Callable[[Any], object]) -> Any:
    """Await a part of an answer, and return it once ``take`` has had it: also if the cancellation is raised instead."""
    kept = dict[int, Any]()
    await awaited(part, scope, kept)
    take(kept[0])
    if 1 in kept:
        raise kept[1]
    return kept[0]
