"""Reads recorded answers of the usual form without the vendor's client; `read` returns None for others."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from runner.llm.clients.completion import Completion, Gathered, OnChunk, Piece, read_anthropic, read_openai
from runner.llm.clients.error_messages import Unreadable


class _Object:
    """A part of an answer, like the clients' objects. What it lacks is None."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.__dict__ = found

    def __getattr__(self, _: str) -> None:
        return None

    def __repr__(self) -> str:  # where a client would show the JSON that it was given
        return repr(vars(self))


_decoder = json.JSONDecoder(object_hook=_Object)  # one for all: to make it takes a fifth of reading an answer


def _json(text: bytes) -> Any:
    return _decoder.decode(text.decode("utf-8", "surrogatepass"))


def _openai_stream(body: bytes, on_chunk: OnChunk | None) -> Completion:
    gathered = Gathered(on_chunk)
    for event in filter(None, body.split(b"\n\n")):
        if event == b"data: [DONE]":
            break
        chunk = _json(event.removeprefix(b"data: "))
        if chunk.error is not None:
            raise Unreadable("it reports an error")
        gathered.add(chunk)
    return gathered.whole()


_READ: Mapping[tuple[str, bool], Callable[[bytes, OnChunk | None], Completion]] = {
    ("openai", False): lambda body, _: read_openai(_json(body)),
    ("openai", True): _openai_stream,
    ("anthropic", False): lambda body, _: read_anthropic(_json(body)),
}


def can_read(client: str, streamed: bool) -> bool:
    """Whether answers to this client can be read here, as a whole or ``streamed``."""
    return (client, streamed) in _READ


def read(client: str, streamed: bool, body: bytes, on_chunk: OnChunk | None = None) -> Completion | None:
    """Return the answer in this body; None if its client is needed. ``on_chunk`` is called with the streamed pieces."""
    pieces: list[Piece] = []
    try:
        found = _READ[client, streamed](body, pieces.append if on_chunk is not None else None)
    except (Unreadable, ValueError, TypeError, AttributeError):
        return None
    if on_chunk is not None:
        for piece in pieces:  # all can be read: it is not read again by the client, also if this raises
            on_chunk(piece)
    return found
