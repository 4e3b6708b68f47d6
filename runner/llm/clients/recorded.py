"""Reads recorded answers as the vendor's client reads them, without the client.

Only answers of the usual form are read here. For others, or in doubt, `read` returns None, and the client reads them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from runner.llm.clients.completion import Completion, Gathered, Message, OnChunk, Piece, tool_call, usage_of


class _Unusual(Exception):
    """The answer does not have the usual form."""


def _get(of: Any, name: str, kind: type) -> Any:
    """Return a value of exactly this type; None if it is missing or null."""
    value = of.get(name)
    if value is not None and type(value) is not kind:
        raise _Unusual
    return value


def _must(of: Any, name: str, kind: type) -> Any:
    value = _get(of, name, kind)
    if value is None:
        raise _Unusual
    return value


def _openai(data: Mapping[str, Any]) -> Completion:
    choices = _must(data, "choices", list)
    if not choices or type(choices[0]) is not dict:
        raise _Unusual
    message = _must(choices[0], "message", dict)
    calls = [_of_openai(i, call) for i, call in enumerate(_get(message, "tool_calls", list) or ())]
    text = _get(message, "content", str) or _get(message, "refusal", str) or ""
    counted = _counted_by_openai(_get(data, "usage", dict))
    return Completion(text, tuple(calls), counted, _must(choices[0], "finish_reason", str))


def _counted_by_openai(usage: Mapping[str, Any] | None) -> dict[str, int]:
    if not usage:
        return {}
    prompt, completion = (_get(usage, f"{name}_tokens_details", dict) or {} for name in ("prompt", "completion"))
    return usage_of(
        _get(usage, "prompt_tokens", int),
        _get(usage, "completion_tokens", int),
        cached=_get(prompt, "cached_tokens", int),
        reasoning=_get(completion, "reasoning_tokens", int),
    )


def _of_openai(number: int, call: Any) -> Message:
    if type(call) is not dict or call.get("type") != "function":
        raise _Unusual
    function = _must(call, "function", dict)
    return tool_call(number, _must(call, "id", str), _must(function, "name", str), _must(function, "arguments", str))


def _openai_stream(body: bytes, on_chunk: OnChunk | None) -> Completion:
    pieces: list[Piece] = []
    gathered = Gathered(pieces.append if on_chunk is not None else None)
    counted: dict[str, int] = {}
    for event in filter(None, body.split(b"\n\n")):
        if event == b"data: [DONE]":
            break
        data = json.loads(event.removeprefix(b"data: "))
        if type(data) is not dict or "error" in data:
            raise _Unusual
        counted = _counted_by_openai(_get(data, "usage", dict)) or counted
        gathered.add(SimpleNamespace(choices=[_piece(one) for one in _get(data, "choices", list) or ()]))
    if not gathered.complete:
        raise _Unusual
    if on_chunk is not None:
        for piece in pieces:  # all can be read: it is not read again by the client
            on_chunk(piece)
    return replace(gathered.completion(), usage=counted)


def _piece(choice: Any) -> SimpleNamespace:
    if type(choice) is not dict:
        raise _Unusual
    delta = _get(choice, "delta", dict) or {}
    calls = [_piece_of_call(one) for one in _get(delta, "tool_calls", list) or ()]
    said = SimpleNamespace(content=_get(delta, "content", str), tool_calls=calls)
    return SimpleNamespace(finish_reason=_get(choice, "finish_reason", str), delta=said)


def _piece_of_call(call: Any) -> SimpleNamespace:
    if type(call) is not dict:
        raise _Unusual
    function = _get(call, "function", dict) or {}
    named = SimpleNamespace(name=_get(function, "name", str), arguments=_get(function, "arguments", str))
    return SimpleNamespace(index=_get(call, "index", int), id=_get(call, "id", str), function=named)


def _anthropic(data: Mapping[str, Any]) -> Completion:
    texts: list[str] = []
    calls: list[Message] = []
    for block in _must(data, "content", list):
        kind = block.get("type") if type(block) is dict else None
        if kind == "text":
            texts.append(_must(block, "text", str))
        elif kind == "tool_use":
            given = json.dumps(_must(block, "input", dict))
            calls.append(tool_call(len(calls), _must(block, "id", str), _must(block, "name", str), given))
        else:
            raise _Unusual
    usage = _must(data, "usage", dict)
    cached = _get(usage, "cache_read_input_tokens", int) or 0
    written = _get(usage, "cache_creation_input_tokens", int) or 0
    prompt = _must(usage, "input_tokens", int) + cached + written
    counted = usage_of(prompt, _must(usage, "output_tokens", int), cached=cached, written=written)
    return Completion("".join(texts), tuple(calls), counted, _must(data, "stop_reason", str))


def _whole(read: Callable[[Mapping[str, Any]], Completion]) -> Callable[[bytes, OnChunk | None], Completion]:
    def of(body: bytes, on_chunk: OnChunk | None) -> Completion:  # noqa: ARG001 - it comes in one
        data = json.loads(body)
        if type(data) is not dict:
            raise _Unusual
        return read(data)

    return of


_READ = {("openai", False): _whole(_openai), ("openai", True): _openai_stream, ("anthropic", False): _whole(_anthropic)}


def can_read(client: str, streamed: bool) -> bool:
    """Whether answers to this client can be read here, as a whole or ``streamed``."""
    return (client, streamed) in _READ


def read(client: str, streamed: bool, body: bytes, on_chunk: OnChunk | None = None) -> Completion | None:
    """Return the answer in this body; None if its client is needed. ``on_chunk`` is called with the streamed pieces."""
    try:
        return _READ[client, streamed](body, on_chunk)
    except (_Unusual, ValueError):
        return None
