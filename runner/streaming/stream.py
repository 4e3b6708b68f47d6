"""The base of streamed outputs and sessions: what has arrived so far, and the result at the end."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

from runner.streaming.in_thread import InThread
from runner.streaming.on_loop import OnLoop

Item = TypeVar("Item")
T = TypeVar("T")

_NONE: Any = object()


class Stream(Generic[Item, T]):
    """Items of an iterator, kept as they arrive.

    Args:
        sync_iterator: iterated by ``for``; None if only ``async for`` is possible.
        async_iterator: iterated by ``async for``.
    """

    _of = "chunks"

    def __init__(
        self, sync_iterator: Iterator[Item] | None = None, async_iterator: AsyncIterator[Item] | None = None
    ) -> None:
        self._sync_iterator, self._async_iterator = sync_iterator, async_iterator
        self._came: list[Item] = []
        self._result: T = _NONE
        self._error: Exception | None = None
        self._completed = self._cancelled = self._exhausted = False

    @property
    def result(self) -> T:
        """The kickoff's result. Raises what the kickoff raised, and `RuntimeError` before it has ended."""
        self._refuse_early("result")
        if self._result is _NONE:
            raise RuntimeError("No result available: the stream was left before its end")
        return self._result

    @property
    def is_completed(self) -> bool:
        """Whether the iteration has ended, or was closed."""
        return self._completed

    @property
    def is_cancelled(self) -> bool:
        """Whether it was closed before its end."""
        return self._cancelled

    @property
    def is_exhausted(self) -> bool:
        """Whether the iteration reached its end."""
        return self._exhausted

    def close(self) -> None:
        """Stop iterating, and wait for the end of the kickoff, which continues."""
        if self._leave() and (close := getattr(self._sync_iterator, "close", None)) is not None:
            close()
            self._take_result(self._sync_iterator)

    async def aclose(self) -> None:
        """Stop iterating, and cancel the kickoff if it runs on the event loop: a flow's coroutines, not a crew."""
        if self._leave() and (aclose := getattr(self._async_iterator, "aclose", None)) is not None:
            await aclose()
            self._take_result(self._async_iterator)

    def _refuse_early(self, what: str) -> None:
        if not self._completed:
            raise RuntimeError(
                f"Streaming has not completed yet: iterate over all {self._of} before you ask for the {what}"
            )
        if self._error is not None:
            raise self._error

    def _leave(self) -> bool:
        if self._cancelled or self._exhausted or self._error is not None:
            return False
        self._cancelled = self._completed = True
        return True

    def _iterate(self) -> Iterator[Item]:
        if self._sync_iterator is None:
            raise RuntimeError("Sync iterator not available: it is iterated by async for")
        with self._to_its_end(self._sync_iterator):
            for item in self._sync_iterator:
                self._came.append(item)
                yield item

    async def _aiterate(self) -> AsyncIterator[Item]:
        if self._async_iterator is None:
            raise RuntimeError("Async iterator not available: it is iterated by for")
        with self._to_its_end(self._async_iterator):
            async for item in self._async_iterator:
                self._came.append(item)
                yield item

    @contextlib.contextmanager
    def _to_its_end(self, of: Any) -> Iterator[None]:
        try:
            yield
            self._exhausted = True
            self._take_result(of)
        except Exception as error:
            self._error = error
            raise
        finally:
            self._completed = True

    def _take_result(self, of: Any) -> None:
        if isinstance(of, InThread | OnLoop):
            for result in of.results:
                self._set_result(result)

    def _set_result(self, result: T) -> None:
        self._result, self._completed = result, True
