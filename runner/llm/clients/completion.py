"""Requests to models and their answers, in the form of OpenAI's protocol."""

import contextlib
import copy
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runner.core.annotations import signature_of
from runner.core.errors import RunnerError
from runner.llm.clients.error_messages import Unreadable

Message = dict[str, Any]


class Piece(NamedTuple):
    """A piece of a streamed answer: of its text, or of a tool call.

    ``tool_call`` is in OpenAI's form, with an ``index``, as far as it has arrived; ``text`` is then the new part of its
    arguments.
    """

    text: str
    tool_call: Message | None = None


OnChunk = Callable[[Piece], object]


@dataclass(frozen=True)
class Request:
    """One request. ``options`` are those of the vendor's client; ``schema`` is the named JSON schema of the answer."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    schema: tuple[str, Mapping[str, Any]] | None = None
    stream: bool = False
    on_chunk: OnChunk | None = None


@dataclass(frozen=True)
class Completion:
    """One answer: text, or calls of tools, or both; and the tokens that were counted for it.

    The halves of an emoji that a stream sent in two pieces are put together. Half a surrogate pair alone, as where a
    text was cut in the middle of one, is a "?": no output could hold it.
    """

    text: str = ""
    tool_calls: tuple[Message, ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    finish_reason: str = ""

    def __post_init__(self) -> None:
        if not self.text.isascii():
            object.__setattr__(self, "text", _as_utf8(self.text))

    def message(self) -> Message:
        """Return the answer as a message of the conversation."""
        said: Message = {"role": "assistant", "content": self.text}
        return {**said, "tool_calls": [dict(call) for call in self.tool_calls]} if self.tool_calls else said


class ToolCalls(list[Message]):
    """The tool calls that a model asks for. ``content`` is the text that came with them."""

    def __init__(self, calls: Sequence[Message], content: str = "") -> None:
        super().__init__(calls)
        self.content = content


def sendable(value: Any) -> Any:
    """Return a copy that can be sent: half a surrogate pair, as in file names, is not UTF-8 and becomes a "?"."""
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        case Mapping():
            return {name: sendable(one) for name, one in value.items()}
        case list() | tuple():
            return [sendable(one) for one in value]
    return copy.deepcopy(value)


def as_taken(function: Callable[..., Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call; those that this version of a client does not name are sent unchanged."""
    names = named(getattr(function, "__func__", function))
    if names is None:
        return body
    known = {name: value for name, value in body.items() if name in names}
    others = {name: value for name, value in body.items() if name not in names}
    return {**known, "extra_body": {**known.get("extra_body", {}), **others}} if others else known


@functools.lru_cache(maxsize=64)  # looking costs as much as sending
def named(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names of a function's arguments; None if it takes any."""
    named = signature_of(function).parameters
    return None if any(one.kind is one.VAR_KEYWORD for one in named.values()) else frozenset(named) - {"self"}


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Wrap the reading of a stream: the client does not retry errors in here."""
    try:
        yield
    except RunnerError:
        raise
    except Exception as error:
        if hasattr(error, "status_code"):
            raise
        raise Unreadable(f"the stream was cut off: {error}") from None


def tool_call(number: int, ident: str | None, name: str | None, arguments: Any) -> Message:
    """Return a tool call; a call without an id gets one that is the same in every replay."""
    given = _joined(arguments) if isinstance(arguments, str) else "{}"
    function = {"name": _as_utf8(name or ""), "arguments": given}
    return {"id": ident or f"call_{number}", "type": "function", "function": function}


def _as_utf8(text: str) -> str:
    return text if text.isascii() else _joined(text).encode("utf-8", "replace").decode()


def _joined(text: str) -> str:
    """Return the text with adjacent halves of surrogate pairs joined into one character."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def usage_of(
    prompt: Any, completion: Any, *, cached: Any = None, written: Any = None, reasoning: Any = None
) -> dict[str, int]:
    """Return the token counts by their names in events; {} if one is no number: the answer is paid for all the same."""
    try:
        counted = {"prompt_tokens": int(prompt or 0), "completion_tokens": int(completion or 0)}
        extra = {
            "cached_prompt_tokens": int(cached or 0),
            "cache_creation_tokens": int(written or 0),
            "reasoning_tokens": int(reasoning or 0),
        }
    except (TypeError, ValueError, OverflowError):  # NaN, infinity
        return {}
    counted["total_tokens"] = sum(counted.values())
    return {**counted, **{name: value for name, value in extra.items() if value}}


class Gathered:
    """Puts together the pieces of a streamed answer of OpenAI's protocol."""

    def __init__(self, on_chunk: OnChunk | None) -> None:
        self._on_chunk = on_chunk
        self._text: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._usage: Any = None
        self._finish = ""

    def add(self, chunk: Any) -> None:
        """Add the next piece."""
        self._usage = getattr(chunk, "usage", None) or self._usage
        for choice in getattr(chunk, "choices", None) or ():
            self._finish = choice.finish_reason or self._finish
            delta = choice.delta
            if delta is None:
                continue
            if delta.content:
                self._text.append(delta.content)
                if self._on_chunk is not None:
                    self._on_chunk(Piece(delta.content))
            for piece in delta.tool_calls or ():
                # Some servers number the pieces, others send each call whole.
                at = piece.index if isinstance(piece.index, int) else len(self._calls)
                call = self._calls.setdefault(at, {"id": None, "name": "", "arguments": ""})
                call["id"] = call["id"] or piece.id
                if piece.function is not None:
                    call["name"] += piece.function.name or ""
                    call["arguments"] += piece.function.arguments or ""
                if self._on_chunk is not None:
                    more = (piece.function.arguments if piece.function is not None else None) or ""
                    self._on_chunk(Piece(more, so_far(at, **call)))

    def whole(self) -> Completion:
        """Return the whole answer. Raises `Unreadable` if the model did not end it itself."""
        if not self._finish:
            raise Unreadable("the stream was cut off")
        return self.completion()

    def completion(self) -> Completion:
        """Return the answer as far as it came."""
        calls = [
            tool_call(number, call["id"], call["name"], call["arguments"])
            for number, (_, call) in enumerate(sorted(self._calls.items()))
        ]
        return Completion("".join(self._text), tuple(calls), openai_usage(self._usage), self._finish)


def so_far(index: int, id: str | None, name: str, arguments: str) -> Message:
    """Return a tool call, as far as it has arrived."""
    function = {"name": name or None, "arguments": arguments}
    return {"id": id, "type": "function", "index": index, "function": function}


def openai_usage(usage: Any) -> dict[str, int]:
    """Return the token counts of an answer of OpenAI's protocol."""
    if usage is None:
        return {}
    prompt, completion = (getattr(usage, name, None) for name in ("prompt_tokens_details", "completion_tokens_details"))
    return usage_of(
        getattr(usage, "prompt_tokens", 0),
        getattr(usage, "completion_tokens", 0),
        cached=getattr(prompt, "cached_tokens", 0),
        reasoning=getattr(completion, "reasoning_tokens", 0),
    )


def read_openai(answer: Any) -> Completion:
    """Read an answer of OpenAI's protocol. Raises `Unreadable` if it lacks what an answer must have."""
    choices = getattr(answer, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        raise Unreadable("it is not a chat completion")
    message = choices[0].message
    calls = tuple(
        tool_call(number, call.id, call.function.name, call.function.arguments)
        for number, call in enumerate(message.tool_calls or ())
        if getattr(call, "function", None) is not None
    )
    text = message.content or getattr(message, "refusal", None) or ""
    return Completion(str(text), calls, openai_usage(answer.usage), choices[0].finish_reason or "")


def read_anthropic(answer: Any) -> Completion:
    """Read an answer of Anthropic's protocol. Raises `Unreadable` if it is no message."""
    if not isinstance(getattr(answer, "content", None), list):
        raise Unreadable("it is not a message")
    text = "".join(block.text for block in answer.content if block.type == "text")
    uses = [block for block in answer.content if block.type == "tool_use"]
    calls = tuple(tool_call(i, use.id, use.name, json.dumps(use.input, default=vars)) for i, use in enumerate(uses))
    usage = answer.usage
    cached = getattr(usage, "cache_read_input_tokens", 0) or 0
    written = getattr(usage, "cache_creation_input_tokens", 0) or 0
    counted = usage_of(usage.input_tokens + cached + written, usage.output_tokens, cached=cached, written=written)
    return Completion(text, calls, counted, answer.stop_reason or "")
