"""Streams of frames, and the result of the flow that they come from."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Generic, Self, TypeVar

from runner.streaming.frames import StreamChannel, StreamFrame
from runner.streaming.stream import Stream

T = TypeVar("T")
Frames = TypeVar("Frames")

Channels = Sequence[StreamChannel] | None


class StreamSessionBase(Stream[StreamFrame, T], Generic[T, Frames]):
    """Frames in their order. Once all came, each iteration begins with the first again."""

    _of = "frames"

    @abstractmethod
    def subscribe(self, channels: Channels = None) -> Frames:
        """The frames of these channels; the others are kept for an iteration after this."""

    def interleave(self, channels: Channels) -> Frames:
        """The same."""
        return self.subscribe(channels)

    @property
    def frames(self) -> list[StreamFrame]:
        """Those that came so far."""
        return list(self._came)

    @property
    def events(self) -> Frames:
        """All frames."""
        return self.subscribe()

    @property
    def llm(self) -> Frames:
        """Those of models."""
        return self.subscribe(["llm"])

    @property
    def messages(self) -> Frames:
        """Those of what is said in a conversation."""
        return self.subscribe(["messages"])

    @property
    def flow(self) -> Frames:
        """Those of the flow and its methods."""
        return self.subscribe(["flow"])

    @property
    def tools(self) -> Frames:
        """Those of tools."""
        return self.subscribe(["tools"])


class StreamSession(StreamSessionBase[T, Iterator[StreamFrame]]):
    """What ``kickoff()`` gives of a flow with ``stream = True``, and ``stream_events()`` of any flow."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamFrame]:
        return self.subscribe()

    def subscribe(self, channels: Channels = None) -> Iterator[StreamFrame]:
        """The frames of these channels; the others are kept for an iteration after this."""
        for frame in self.frames if self._exhausted else self._iterate():
            if channels is None or frame.channel in channels:
                yield frame


class AsyncStreamSession(StreamSessionBase[T, AsyncIterator[StreamFrame]]):
    """What ``kickoff_async()`` gives of a flow with ``stream = True``, and ``astream()`` of any flow."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[StreamFrame]:
        return self.subscribe()

    async def subscribe(self, channels: Channels = None) -> AsyncIterator[StreamFrame]:
        """The frames of these channels; the others are kept for an iteration after this."""
        if self._exhausted:
            for frame in self.frames:
                if channels is None or frame.channel in channels:
                    yield frame
            return
        async for frame in self._aiterate():
            if channels is None or frame.channel in channels:
                yield frame
