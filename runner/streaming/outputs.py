"""Streams of chunks with the output of their crew."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Self, TypeVar

from runner.streaming.chunks import StreamChunk, StreamChunkType
from runner.streaming.stream import Stream

T = TypeVar("T")


class StreamingOutputBase(Stream[StreamChunk, T]):
    """Chunks as they arrive, by ``for`` or ``async for``, depending on the kickoff."""

    def __iter__(self) -> Iterator[StreamChunk]:
        return self._iterate()

    def __aiter__(self) -> AsyncIterator[StreamChunk]:
        return self._aiterate()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def chunks(self) -> list[StreamChunk]:
        """The chunks so far."""
        return list(self._came)

    def get_full_text(self) -> str:
        """Return the text of all chunks so far, in the order of arrival."""
        return "".join(one.content for one in self._came if one.chunk_type is StreamChunkType.TEXT)


class CrewStreamingOutput(StreamingOutputBase[Any]):
    """The stream of ``Crew(stream=True).kickoff()``; its ``result`` is the `CrewOutput`.

    ``kickoff_for_each_async`` returns one for all of its kickoffs, with ``results``.
    """

    _results: list[Any] | None = None

    @property
    def results(self) -> list[Any]:
        """The outputs of all kickoffs. Raises as ``result`` does."""
        self._refuse_early("results")
        return [self.result] if self._results is None else list(self._results)

    def _set_result(self, result: Any) -> None:
        if isinstance(result, list):
            self._results, self._completed = result, True
        else:
            super()._set_result(result)


class FlowStreamingOutput(StreamingOutputBase[Any]):
    """Chunks with the result of a flow. ``Flow.kickoff()`` returns a `StreamSession` instead, with all events."""
