"""The deep agent's conversation, as every peer holds it: the same as that of ``crews/deep/crew.py``."""

import json
import os
from typing import Any

BACKSTORY = "All that is known of it. " * (836_000 // 25)
START = [{"role": "system", "content": BACKSTORY}, {"role": "user", "content": "Read it."}]
TOOLS = [{
    "type": "function",
    "function": {
        "name": "fetch",
        "description": "Fetches a part of the archive.",
        "parameters": {
            "type": "object",
            "properties": {"part": {"type": "integer"}, "size": {"type": "integer"}},
            "required": ["part", "size"],
        },
    },
}]  # fmt: skip


def fetch(part: int, size: int) -> str:
    """The tool."""
    return f"part {part} " * (size // len(f"part {part} "))


def use(call: dict[str, Any]) -> dict[str, Any]:
    """The message of one use of the tool."""
    return {"role": "tool", "tool_call_id": call["id"], "content": fetch(**json.loads(call["function"]["arguments"]))}


def client() -> Any:
    """The vendor's client; it never asks twice by itself."""
    from openai import OpenAI

    return OpenAI(base_url=os.environ.get("OPENAI_BASE_URL"), api_key="none", max_retries=0, timeout=600)


def ask(openai: Any, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """One call of the model: the assistant's message."""
    answer = openai.chat.completions.create(model="gpt-4.1", messages=messages, tools=TOOLS)
    said: dict[str, Any] = answer.choices[0].message.model_dump(exclude_none=True)
    return said


async def ask_once(openai: Any, n: int) -> str:
    """The one call of an agent that waits."""
    messages = [{"role": "user", "content": f"Write number {n}."}]
    answer = await openai.chat.completions.create(model="m", messages=messages)
    return str(answer.choices[0].message.content)


def async_client() -> Any:
    """The same, asynchronous, without a bound on connections."""
    import httpx2
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    http = DefaultAsyncHttpxClient(limits=limits)
    return AsyncOpenAI(base_url=os.environ.get("OPENAI_BASE_URL"), api_key="none", max_retries=0, timeout=600,
                       http_client=http)  # fmt: skip
