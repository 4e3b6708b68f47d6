"""Streams of frames with the result of their flow."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Generic, Self, TypeVar

from runner.streaming.frames import StreamChannel, StreamFrame
from runner.streaming.stream import Stream

T = TypeVar("T")
Frames = TypeVar("Frames")

Channels = Sequence[StreamChannel] | None


class StreamSessionBase(Stream[StreamFrame, T], Generic[T, Frames]):
    """Frames in order. After the last one has arrived, each iteration starts again with the first."""

    _of = "frames"

    @abstractmethod
    def subscribe(self, channels: Channels = None) -> Frames:
        """Iterate over the frames of these channels; others are kept for later iterations."""

    def interleave(self, channels: Channels) -> Frames:
        """The same as `subscribe`."""
        return self.subscribe(channels)

    @property
    def frames(self) -> list[StreamFrame]:
        """The frames so far."""
        return list(self._came)

    @property
    def events(self) -> Frames:
        """All frames."""
        return self.subscribe()

    @property
    def llm(self) -> Frames:
        """The frames of models."""
        return self.subscribe(["llm"])

    @property
    def messages(self) -> Frames:
        """The frames of conversations."""
        return self.subscribe(["messages"])

    @property
    def flow(self) -> Frames:
        """The frames of the flow and its methods."""
        return self.subscribe(["flow"])

    @property
    def tools(self) -> Frames:
        """The frames of tools."""
        return self.subscribe(["tools"])


class StreamSession(StreamSessionBase[T, Iterator[StreamFrame]]):
    """The stream of ``kickoff()`` for a flow with ``stream = True``, and of ``stream_events()`` for any flow."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamFrame]:
        return self.subscribe()

    def subscribe(self, channels: Channels = None) -> Iterator[StreamFrame]:
        """Iterate over the frames of these channels; others are kept for later iterations."""
        for frame in self.frames if self._exhausted else self._iterate():
            if channels is None or frame.channel in channels:
                yield frame


class AsyncStreamSession(StreamSessionBase[T, AsyncIterator[StreamFrame]]):
    """The stream of ``kickoff_async()`` for a flow with ``stream = True``, and of ``astream()`` for any flow."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[StreamFrame]:
        return self.subscribe()

    async def subscribe(self, channels: Channels = None) -> AsyncIterator[StreamFrame]:
        """Iterate over the frames of these channels; others are kept for later iterations."""
        if self._exhausted:
            for frame in self.frames:
                if channels is None or frame.channel in channels:
                    yield frame
            return
        async for frame in self._aiterate():
            if channels is None or frame.channel in channels:
                yield frame
