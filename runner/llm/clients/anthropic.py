"""Anthropic's own client (``pip install 'crew-runner[anthropic]'``)."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import anthropic

from runner.llm.clients import prompt_caching
from runner.llm.clients.completion import (
    Completion,
    Message,
    OnChunk,
    Piece,
    Request,
    as_taken,
    read_anthropic,
    reading,
    so_far,
)
from runner.llm.clients.error_messages import Unreadable
from runner.llm.clients.model_names import Target
from runner.llm.clients.shared import OwnClient, arguments

MAX_TOKENS = 4096  #: the protocol wants a limit; this one where the model was given none

_OPTIONS = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"}
_NOT_THEIRS = ("seed", "presence_penalty", "frequency_penalty", "reasoning_effort", "response_format", "n")


class Client:
    """Calls one of Anthropic's models."""

    def __init__(self, target: Target, timeout: float | None, max_retries: int) -> None:
        self._target = target
        self._about = arguments(target, timeout, max_retries)
        self._own = OwnClient(partial(anthropic.Anthropic, **self._about))

    def warm(self) -> None:
        """Create the vendor's client ahead of the first call."""
        self._own.get()

    def complete(self, request: Request) -> Completion:
        """Send the request and return the answer."""
        client, body = self._own.get(), self._body(request)
        if not request.stream:
            with prompt_caching.made():
                return read_anthropic(client.messages.create(**as_taken(client.messages.create, body)))
        with (
            prompt_caching.made(),
            client.messages.stream(**as_taken(client.messages.stream, body)) as stream,
            reading(),
        ):
            pieces = _StreamedPieces(request.on_chunk)
            for event in stream:
                pieces.add(event)
            return _whole(stream.get_final_message())

    async def acomplete(self, request: Request) -> Completion:
        """Send the request and return the answer, like `complete`, without blocking the event loop."""
        body = self._body(request)
        with prompt_caching.made():
            async with anthropic.AsyncAnthropic(**self._about) as client:
                if not request.stream:
                    return read_anthropic(await client.messages.create(**as_taken(client.messages.create, body)))
                async with client.messages.stream(**as_taken(client.messages.stream, body)) as stream:
                    with reading():
                        pieces = _StreamedPieces(request.on_chunk)
                        async for event in stream:
                            pieces.add(event)
                        return _whole(await stream.get_final_message())

    def _body(self, request: Request) -> dict[str, Any]:
        system, messages = as_blocks(request.messages)
        options = {_OPTIONS.get(k, k): v for k, v in request.options.items() if k not in _NOT_THEIRS}
        body = {"model": self._target.model, "messages": messages, "max_tokens": MAX_TOKENS, **options}
        if isinstance(body.get("stop_sequences"), str):
            body["stop_sequences"] = [body["stop_sequences"]]
        if system:
            body["system"] = system
        tools = [_as_tool(tool["function"]) for tool in request.tools]
        if not tools and (used := _used(messages)):
            # A conversation that used tools has to name them, even where none may be used any more.
            tools = [_as_tool({"name": name, "parameters": {"type": "object", "properties": {}}}) for name in used]
            body["tool_choice"] = {"type": "none"}
        if tools:
            body["tools"] = tools
        prompt_caching.mark(body)
        return body


def as_blocks(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """Return the system text, and the conversation in Anthropic's form: alternating roles, tools in blocks."""
    system: list[str] = []
    turns: list[Message] = []
    for message in messages:
        role, content = message["role"], message.get("content")
        if role in ("system", "developer"):
            system.append(_plain(content))
            continue
        blocks = _blocks(role, content, message)
        side = "assistant" if role == "assistant" else "user"
        if turns and turns[-1]["role"] == side:
            turns[-1]["content"].extend(blocks)
        elif blocks:
            turns.append({"role": side, "content": blocks})
    return "\n\n".join(system), turns


def _blocks(role: str, content: Any, message: Message) -> list[Message]:
    if role == "tool":
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": _plain(content)}]
    blocks: list[Message] = [{"type": "text", "text": text}] if (text := _plain(content).rstrip()) else []
    for call in message.get("tool_calls") or ():
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["function"]["name"],
                "input": _arguments(call["function"]["arguments"]),
            }
        )
    return blocks


def _arguments(text: str) -> Any:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def _as_tool(function: Message) -> Message:
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function["name"], "description": function.get("description", ""), "input_schema": parameters}


def _used(messages: Sequence[Message]) -> list[str]:
    names = (b["name"] for m in messages for b in m["content"] if isinstance(b, dict) and b.get("type") == "tool_use")
    return list(dict.fromkeys(names))


class _StreamedPieces:
    """Reports the pieces of a streamed answer as they arrive."""

    def __init__(self, on_chunk: OnChunk | None) -> None:
        self._on_chunk = on_chunk
        self._uses: dict[int, tuple[int, Any, list[str]]] = {}  # by the place of its block: its number, and what came

    def add(self, event: Any) -> None:
        """Process the next event of the stream."""
        if self._on_chunk is None:
            return
        if event.type == "content_block_start" and event.content_block.type == "tool_use":
            self._uses[event.index] = (len(self._uses), event.content_block, [])
            self._report(self._on_chunk, event.index, "")
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            self._on_chunk(Piece(event.delta.text))
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            self._report(self._on_chunk, event.index, event.delta.partial_json)

    def _report(self, on_chunk: OnChunk, at: int, more: str) -> None:
        if at in self._uses:
            number, block, came = self._uses[at]
            came.append(more)
            on_chunk(Piece(more, so_far(number, block.id, block.name, "".join(came))))


def _whole(answer: Any) -> Completion:
    if getattr(answer, "stop_reason", None) is None:
        raise Unreadable("the stream was cut off")
    return read_anthropic(answer)
