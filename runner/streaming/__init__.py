"""Streamed kickoffs: an iterator of what they emit, and the result at its end.

A crew emits chunks (`StreamChunk`: the pieces of its models' answers), a flow frames (`StreamFrame`: its events). The
kickoff begins when the iterator is first advanced. Its events are those of its context, so concurrent kickoffs receive
only their own, and the events of a nested kickoff are in both streams.
"""

from typing import TYPE_CHECKING

from runner.core.runtime import names_from

if TYPE_CHECKING:
    from runner.streaming.chunks import StreamChunk, StreamChunkType, ToolCallChunk
    from runner.streaming.frames import StreamChannel, StreamFrame
    from runner.streaming.outputs import CrewStreamingOutput, FlowStreamingOutput, StreamingOutputBase
    from runner.streaming.sessions import AsyncStreamSession, StreamSession, StreamSessionBase

__all__ = [
    "AsyncStreamSession",
    "CrewStreamingOutput",
    "FlowStreamingOutput",
    "StreamChannel",
    "StreamChunk",
    "StreamChunkType",
    "StreamFrame",
    "StreamSession",
    "StreamSessionBase",
    "StreamingOutputBase",
    "ToolCallChunk",
]

# A kickoff that is not streamed pays for none of it.
__getattr__ = names_from(
    __name__,
    {
        "runner.streaming.chunks": "StreamChunk StreamChunkType ToolCallChunk",
        "runner.streaming.frames": "StreamChannel StreamFrame",
        "runner.streaming.outputs": "CrewStreamingOutput FlowStreamingOutput StreamingOutputBase",
        "runner.streaming.sessions": "AsyncStreamSession StreamSession StreamSessionBase",
    },
)
