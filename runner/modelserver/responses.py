"""An answer as OpenAI's other protocol has it: ``/v1/responses``, a list of things said, in and out."""

from collections.abc import Iterator
from typing import Any

from runner.modelserver.answers import Answer
from runner.modelserver.protocols import arguments_of, event_of, pieces_of, usage_of
from runner.modelserver.request import ModelRequest

Body = dict[str, Any]


def body(request: ModelRequest, answer: Answer) -> Body:
    """A response."""
    prompt, completion = usage_of(request, answer)
    counted = {
        "input_tokens": prompt, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": prompt + completion,
    }  # fmt: skip
    return {**_head(request, "completed"), "output": _items(request, answer), "usage": counted}


def stream(request: ModelRequest, answer: Answer) -> Iterator[bytes]:
    """Yield the answer as streamed events."""
    number = -1

    def event(kind: str, **more: Any) -> bytes:
        nonlocal number
        number += 1
        return event_of({"type": f"response.{kind}", "sequence_number": number, **more}, f"response.{kind}")

    begun = {**_head(request, "in_progress"), "output": [], "usage": None}
    yield event("created", response=begun)
    yield event("in_progress", response=begun)
    for index, item in enumerate(_items(request, answer)):
        about = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            part, text = item["content"][0], answer.text
            yield event("output_item.added", output_index=index, item={**item, "status": "in_progress", "content": []})
            yield event("content_part.added", **about, content_index=0, part={**part, "text": ""})
            for piece in pieces_of(text):
                yield event("output_text.delta", **about, content_index=0, delta=piece, logprobs=[])
            yield event("output_text.done", **about, content_index=0, text=text, logprobs=[])
            yield event("content_part.done", **about, content_index=0, part=part)
        else:
            empty = {**item, "status": "in_progress", "arguments": ""}
            yield event("output_item.added", output_index=index, item=empty)
            for piece in pieces_of(item["arguments"]):
                yield event("function_call_arguments.delta", **about, delta=piece)
            yield event("function_call_arguments.done", **about, name=item["name"], arguments=item["arguments"])
        yield event("output_item.done", output_index=index, item=item)
    yield event("completed", response=body(request, answer))


def _head(request: ModelRequest, status: str) -> Body:
    return {
        "id": f"resp_{request.digest}", "object": "response", "created_at": 0, "model": request.model, "status": status,
        "error": None, "incomplete_details": None, "instructions": request.body.get("instructions"), "metadata": {},
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": request.body.get("tools") or [],
        "temperature": None, "top_p": None,
    }  # fmt: skip


def _items(request: ModelRequest, answer: Answer) -> list[Body]:
    found: list[Body] = []
    if answer.text or not answer.calls:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        about = {"id": f"msg_{request.digest}", "type": "message", "role": "assistant", "status": "completed"}
        found.append({**about, "content": [part]})
    for n, call in enumerate(answer.calls):
        found.append(
            {"id": f"fc_{request.digest}_{n}", "call_id": f"call_{request.digest}_{n}", "type": "function_call",
             "status": "completed", "name": call.name, "arguments": arguments_of(call)}
        )  # fmt: skip
    return found
