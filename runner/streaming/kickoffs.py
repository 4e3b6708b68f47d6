"""The streams of kickoffs that are about to begin."""

from collections.abc import Callable, Coroutine
from typing import Any

from runner.streaming.chunks import chunk_of
from runner.streaming.frames import frame_of
from runner.streaming.in_thread import InThread
from runner.streaming.on_loop import OnLoop
from runner.streaming.outputs import CrewStreamingOutput
from runner.streaming.sessions import AsyncStreamSession, StreamSession


def of_crew(kickoff: Callable[[], Any]) -> CrewStreamingOutput:
    """Return the stream of a crew's kickoff."""
    return CrewStreamingOutput(sync_iterator=InThread(kickoff, chunk_of))


def of_crew_async(kickoff: Callable[[], Coroutine[Any, Any, Any]]) -> CrewStreamingOutput:
    """Return the stream of an awaited kickoff of a crew, or of several."""
    return CrewStreamingOutput(async_iterator=OnLoop(kickoff, chunk_of))


def of_flow(kickoff: Callable[[], Any]) -> StreamSession[Any]:
    """Return the stream of a flow's kickoff, or of a model call."""
    return StreamSession(sync_iterator=InThread(kickoff, frame_of))


def of_flow_async(kickoff: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncStreamSession[Any]:
    """Return the stream of an awaited kickoff of a flow."""
    return AsyncStreamSession(async_iterator=OnLoop(kickoff, frame_of))
