"""The bodies of httpx's own classes by which a call is seen to leave, and a part of an answer is given again."""

from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any

from runner.llm.recording.recorded_call import RecordedCall


def leaving_class(library: Any) -> Any:
    """The body of a request that is a call, of a library's own class.

    The call begins when that is asked for, and not when it waits for a connection: its headers have gone out then, and
    with these alone the server cannot act on it. One without a body begins before (`watch`).
    """

    class Leaving(library.SyncByteStream):  # type: ignore[misc]  # of whichever library
        def __init__(self, exchange: Any, body: Any) -> None:
            self.exchange, self.call, self.body = exchange, exchange.call, body

        def __iter__(self) -> Iterator[bytes]:
            if self.exchange.is_left:
                raise ConnectionAbortedError("its task was stopped")
            self.call.begins()
            yield from self.body
            self.call.body_has_left()

        def close(self) -> None:
            self.body.close()

    return Leaving


@cache
def part_class(library: Any) -> Any:
    """The part of a streamed answer that is recorded, of a library's own class."""

    class Part(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]  # of whichever library
        def __init__(self, body: bytes, call: RecordedCall) -> None:
            self.body, self.call = body, call

        def __iter__(self) -> Iterator[bytes]:
            yield self.body
            self.call.break_off()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield self.body
            await self.call.break_off_async()

    return Part
