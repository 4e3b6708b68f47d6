"""Waits, in code that is not awaited itself, for what is to be awaited."""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def awaited(value: Awaitable[T]) -> T:
    """What it gives, as a coroutine: `asyncio.run` takes no other awaitables."""
    return await value


def result_of(value: Any) -> Any:
    """The value; where it is to be awaited, what it gives, on an event loop of its own."""
    return asyncio.run(awaited(value)) if inspect.isawaitable(value) else value
