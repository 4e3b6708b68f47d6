"""What is sent where many calls wait at once is, byte by byte, what OpenAI's client makes of it: it is found again."""

import asyncio
import json
from typing import Any

import pytest

from runner.llm.clients.completion import as_taken, read_openai

from ...support.later import Later

openai = Later("openai")
httpx2 = pytest.importorskip("httpx2")

FUNCTION = {"name": "f", "description": "ü", "parameters": {"type": "object", "properties": {"a": {"default": None}}}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "hellö"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "x", "odd": None},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]},
]
ANSWER = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Done."}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"user": "u", "temperature": 0.1, "top_k": 5, "n": 1, "stop": "x", "store": True, "audio": "a", "model": "n"},
        {"tools": [{"type": "function", "function": FUNCTION}], "temperature": 0.1, "top_k": 5, "extra_body": {"z": 1}},
        {"messages": [], "extra_headers": {"X-A": "1"}, "response_format": {"type": "json_object"}},
    ],
)
def test_it_is_the_same_request_and_answer(more: dict[str, Any]) -> None:
    from runner.llm.clients.openai import _raw

    sent: list[bytes] = []

    class Transport(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any:
            sent.append(await request.aread())
            return httpx2.Response(200, headers={"content-type": "application/json"}, content=json.dumps(ANSWER))

    async def ask() -> tuple[Any, Any]:
        http = httpx2.AsyncClient(transport=Transport())
        async with openai.AsyncOpenAI(api_key="k", base_url="http://m/v1", http_client=http) as client:
            chat, body = client.chat.completions, {"model": "m", "messages": MESSAGES, **more}
            return await chat.create(**as_taken(chat.create, body)), await _raw(chat.with_raw_response, body)

    answer, read = asyncio.run(ask())
    assert sent[0] == sent[1]
    assert read == read_openai(answer)
