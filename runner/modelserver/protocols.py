"""An answer as OpenAI's and Anthropic's servers would send it: one body, or the pieces of a stream."""

import json
import re
from collections.abc import Iterator
from typing import Any

from runner.modelserver.answers import Answer, Call
from runner.modelserver.request import ModelRequest

PIECES = 4  #: how many a text is streamed in


def usage_of(request: ModelRequest, answer: Answer) -> tuple[int, int]:
    """Tokens of prompt and completion: what the answer says, else four characters each."""
    if answer.usage is not None:
        return answer.usage
    said = len(answer.text) + sum(len(call.name) + len(arguments_of(call)) for call in answer.calls)
    asked = request.body.get("messages", request.body.get("input", ""))
    return max(1, len(json.dumps(asked)) // 4), max(1, said // 4)


def arguments_of(call: Call) -> str:
    """The arguments of a call as JSON, or as the text that they are."""
    arguments = call.arguments
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def pieces_of(text: str) -> list[str]:
    """The pieces in which a text is streamed."""
    size = max(1, -(-len(text) // PIECES))
    return [text[i : i + size] for i in range(0, len(text), size)]


def event_of(data: Any, name: str = "") -> bytes:
    """An event of a stream."""
    head = f"event: {name}\n" if name else ""
    body = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{head}data: {body}\n\n".encode()


def error_body(protocol: str, status: int, message: str) -> dict[str, Any]:
    """An error as the vendor words it."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    error = {"type": kinds.get(status, "api_error"), "message": message}
    if protocol == "anthropic":
        return {"type": "error", "error": error}
    return {"error": {**error, "param": None, "code": None}}


# -- OpenAI


def openai_body(request: ModelRequest, answer: Answer) -> dict[str, Any]:
    """A chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or (None if answer.calls else "")}
    if answer.calls:
        message["tool_calls"] = _openai_calls(request, answer)
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer), "logprobs": None}
    return {**_openai_head(request, "chat.completion"), "choices": [choice], "usage": _openai_usage(request, answer)}


def openai_stream(request: ModelRequest, answer: Answer) -> Iterator[bytes]:
    """Yield the answer as streamed chunks."""
    head = _openai_head(request, "chat.completion.chunk")

    def piece(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return event_of({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]})

    yield piece({"role": "assistant", "content": "" if answer.text or not answer.calls else None})
    for part in pieces_of(answer.text):
        yield piece({"content": part})
    for index, call in enumerate(_openai_calls(request, answer)):
        function = call["function"]
        yield piece({"tool_calls": [{**call, "index": index, "function": {"name": function["name"], "arguments": ""}}]})
        for part in pieces_of(function["arguments"]):
            yield piece({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield piece({}, _finish(answer))
    if (request.body.get("stream_options") or {}).get("include_usage"):
        yield event_of({**head, "choices": [], "usage": _openai_usage(request, answer)})
    yield event_of("[DONE]")


def _openai_head(request: ModelRequest, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request.digest}", "object": kind, "created": 0, "model": request.model}


def _openai_calls(request: ModelRequest, answer: Answer) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{request.digest}_{n}", "type": "function",
         "function": {"name": call.name, "arguments": arguments_of(call)}}
        for n, call in enumerate(answer.calls)
    ]  # fmt: skip


def _openai_usage(request: ModelRequest, answer: Answer) -> dict[str, int]:
    prompt, completion = usage_of(request, answer)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"


def embeddings_body(request: ModelRequest) -> dict[str, Any]:
    """A vector for each text: what letters it has, so that texts with the same words lie close."""
    given = request.body.get("input", "")
    texts = given if isinstance(given, list) and not all(isinstance(one, int) for one in given) else [given]
    data = [
        {"object": "embedding", "index": n, "embedding": _vector(str(text), request.body.get("dimensions") or 64)}
        for n, text in enumerate(texts)
    ]
    tokens = sum(max(1, len(str(text)) // 4) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": request.model, "data": data, "usage": usage}


def _vector(text: str, size: int) -> list[float]:
    found = [0.0] * size
    for word in re.findall(r"\w+", text.lower()):
        place = 0
        for letter in word:
            place = (place * 31 + ord(letter)) % size
        found[place] += 1.0
    length = sum(one * one for one in found) ** 0.5 or 1.0
    return [one / length for one in found]


# -- Anthropic


def anthropic_body(request: ModelRequest, answer: Answer) -> dict[str, Any]:
    """A message."""
    prompt, completion = usage_of(request, answer)
    return {
        **_anthropic_head(request),
        "content": _blocks(request, answer),
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "usage": {"input_tokens": prompt, "output_tokens": completion},
    }


def anthropic_stream(request: ModelRequest, answer: Answer) -> Iterator[bytes]:
    """Yield the answer as streamed events."""
    prompt, completion = usage_of(request, answer)

    def event(kind: str, **more: Any) -> bytes:
        return event_of({"type": kind, **more}, kind)

    begun = {**_anthropic_head(request), "content": [], "usage": {"input_tokens": prompt, "output_tokens": 1}}
    yield event("message_start", message=begun)
    for index, block in enumerate(_blocks(request, answer)):
        if block["type"] == "text":
            empty, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": p} for p in pieces_of(block["text"])]
        else:
            written = arguments_of(answer.calls[index - bool(answer.text)])
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in pieces_of(written)]
        yield event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ended = {"stop_reason": "tool_use" if answer.calls else "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=ended, usage={"output_tokens": completion})
    yield event("message_stop")


def _anthropic_head(request: ModelRequest) -> dict[str, Any]:
    return {
        "id": f"msg_{request.digest}", "type": "message", "role": "assistant", "model": request.model,
        "stop_reason": None, "stop_sequence": None,
    }  # fmt: skip


def _blocks(request: ModelRequest, answer: Answer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
    for n, call in enumerate(answer.calls):
        given = call.arguments if isinstance(call.arguments, dict) else _read(call.arguments)
        found.append({"type": "tool_use", "id": f"toolu_{request.digest}_{n}", "name": call.name, "input": given})
    return found


def _read(arguments: str) -> Any:
    """Anthropic sends arguments as a value: those that are no JSON go out as the text they are."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
