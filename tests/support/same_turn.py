"""Stops a task in the turn of its event loop in which what it waits for comes, before it is told."""

import asyncio
from collections.abc import Callable
from typing import Any

from runner.core.errors import TimedOut
from runner.journal.cancellation.cancel_scope import CancelScope


async def strike(task: "asyncio.Task[Any]", scope: CancelScope | None, is_due: Callable[[], bool]) -> str:
    """Stop it in the first such turn in which that ``is_due``, and return how it ended; without scope, cancel it."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        waits: Any = task
        while hasattr(waits, "_fut_waiter"):  # a task, which has no other way to see it
            waits = waits._fut_waiter
        if waits is not None and waits.done() and is_due():
            if scope is not None:
                scope.ask(TimedOut("too long"))
            task.cancel()
        elif not task.done():
            loop.call_soon(look)

    look()
    await asyncio.wait([task], timeout=60)
    return "cancelled" if task.cancelled() else type(task.exception()).__name__
