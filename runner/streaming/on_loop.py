"""A kickoff on the event loop, as an asynchronous iterator of what it emits."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Self, TypeVar

from runner.events.base import BaseEvent
from runner.events.sinks import receiving
from runner.streaming.nested_kickoffs import begun

Item = TypeVar("Item")
T = TypeVar("T")

_under_way: set[asyncio.Task[Any]] = set()
"""The loop itself would let one go that is not awaited."""


class OnLoop(Generic[Item, T]):
    """Begins with the first `anext`, ends with what the kickoff raises.

    If the caller stops iterating, the kickoff continues as long as its loop runs. `aclose` cancels its coroutines; its
    threads end by themselves.
    """

    def __init__(self, do: Callable[[], Coroutine[Any, Any, T]], item_of: Callable[[BaseEvent], Item | None]) -> None:
        self._do, self._item_of = do, item_of
        self._items: asyncio.Queue[Item | None] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None

    @property
    def results(self) -> list[T]:
        """The result, once the kickoff has ended."""
        task = self._task
        return [task.result()] if task and task.done() and not task.cancelled() and not task.exception() else []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        task = self._task or self._begin()
        if (item := await self._items.get()) is not None:
            return item
        self._items.put_nowait(None)  # it stays at its end
        task.result()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the kickoff, if it was begun, and wait until it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _begin(self) -> asyncio.Task[T]:
        self._loop = asyncio.get_running_loop()
        with receiving(self._put), begun():
            self._task = task = self._loop.create_task(self._do(), name="kickoff")
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)
        task.add_done_callback(lambda _: self._items.put_nowait(None))
        return task

    def _put(self, event: BaseEvent) -> None:
        item = self._item_of(event)
        if item is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._items.put_nowait, item)
