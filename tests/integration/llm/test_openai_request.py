"""What is sent where many calls wait at once is, byte by byte, what OpenAI's client makes of it: it is found again."""

import asyncio
import functools
import json
from typing import Any

import pytest

from runner.llm.clients.completion import as_taken, read_openai
from runner.testing import ModelServer

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
    from runner.llm.clients.openai import _answered, _asked

    sent: list[bytes] = []

    class Transport(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any:
            sent.append(await request.aread())
            return httpx2.Response(200, headers={"content-type": "application/json"}, content=json.dumps(ANSWER))

    async def ask() -> tuple[Any, Any]:
        http = httpx2.AsyncClient(transport=Transport())
        async with openai.AsyncOpenAI(api_key="k", base_url="http://m/v1", http_client=http) as client:
            chat, body = client.chat.completions, {"model": "m", "messages": MESSAGES, **more}
            return await chat.create(**as_taken(chat.create, body)), _answered(await _asked(client, body))

    answer, read = asyncio.run(ask())
    assert sent[0] == sent[1]
    assert read == read_openai(answer)


def test_what_requests_have_in_common_is_made_once_and_is_what_the_client_makes() -> None:
    """Of one whose address, headers or encoding are different, all is made anew."""
    from runner.llm.clients.openai import AsyncOpenAI, _asked

    sent: list[Any] = []
    sets_cookie = False

    class Transport(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any:
            body = await request.aread()
            headers = [(name.lower(), value) for name, value in request.headers.raw if value != b"true"]
            sent.append((request.method, request.url, sorted(headers), request.extensions, body))
            cookie = {"set-cookie": "a=b"} if sets_cookie else {}
            return httpx2.Response(200, headers={"content-type": "application/json", **cookie}, json=ANSWER)

    async def ask(kind: Any) -> list[Any]:
        nonlocal sets_cookie
        sent.clear()
        made = 0
        http = httpx2.AsyncClient(transport=Transport())
        async with kind(api_key="k", base_url="http://m/v1", http_client=http) as client:
            theirs = kind.__base__._build_request if kind is AsyncOpenAI else None

            def counted(self: Any, options: Any, **how: Any) -> Any:
                nonlocal made
                made += 1
                return theirs(self, options, **how)

            with pytest.MonkeyPatch.context() as patch:
                if theirs is not None:
                    patch.setattr(kind.__base__, "_build_request", counted)
                for number, (more, makes) in enumerate(REQUESTS):
                    body = {"model": "m", "messages": [{"role": "user", "content": f"ü {number}"}], **more}
                    sets_cookie = number == 1
                    before = made
                    if kind is AsyncOpenAI:
                        await _asked(client, body)
                        assert made - before == makes, more
                    else:
                        await client.chat.completions.create(**as_taken(client.chat.completions.create, body))
        return list(sent)

    ours, theirs = asyncio.run(ask(AsyncOpenAI)), asyncio.run(ask(openai.AsyncOpenAI))
    assert any((b"cookie", b"a=b") in headers for _, _, headers, _, _ in theirs)
    assert ours == theirs


REQUESTS: list[tuple[dict[str, Any], int]] = [
    ({}, 1),
    ({"temperature": 0.5}, 0),
    ({"messages": MESSAGES}, 0),  # with a cookie from here on
    ({"extra_headers": {"X-A": "1"}}, 1),
    ({"extra_headers": {"X-A": "1"}, "user": "u"}, 0),
    ({"extra_headers": {"X-A": "2"}}, 1),
    ({"extra_query": {"q": "1"}}, 1),
    ({"extra_query": {"q": "1"}}, 1),
    ({"timeout": 5.0}, 1),
    ({"timeout": None}, 1),
    ({"extra_headers": None, "extra_query": None, "extra_body": None}, 0),
    ({"user": None}, 0),
]


@pytest.mark.parametrize("by", ["wraps", "wrapt", "request"])
def test_who_instruments_the_client_sees_an_ordinary_call(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As OpenTelemetry's instrumentors and langfuse do, or openinference. None sees the call that finds out the order
    of a request's arguments.
    """
    from runner.core import waiting
    from runner.llm.clients import openai as clients
    from runner.llm.clients.completion import Request
    from runner.llm.clients.model_names import Target

    clients._form.cache_clear()
    chat, seen = clients.openai.resources.chat, list[Any]()

    def wrapping(owner: Any, name: str) -> None:
        theirs = getattr(owner, name)

        @functools.wraps(theirs)
        def traced(*args: Any, **kwargs: Any) -> Any:
            seen.append((args, kwargs))
            return theirs(*args, **kwargs)

        class Proxy:
            """As wrapt's: it says of itself what the function says."""

            __wrapped__, __code__, __name__ = theirs, theirs.__code__, theirs.__name__

            def __get__(self, instance: Any, owner: Any) -> Any:
                return self if instance is None else functools.partial(traced, instance)

            def __call__(self, *args: Any, **kwargs: Any) -> Any:
                return traced(*args, **kwargs)

        monkeypatch.setattr(owner, name, Proxy() if by == "wrapt" else traced)

    if by == "request":
        wrapping(clients.openai.AsyncOpenAI, "request")
    else:
        wrapping(chat.Completions, "create")
        wrapping(chat.AsyncCompletions, "create")
    monkeypatch.setattr(waiting, "shared", True)
    request = Request([{"role": "user", "content": "Go."}], options={"temperature": 0.5})
    with ModelServer("Done.") as models:
        client = clients.Client(Target("openai", "m", models.url, "k"), None, 0)
        client.warm()
        assert seen == []
        assert asyncio.run(client.acomplete(request)).text == "Done."
        [(args, kwargs)] = seen
    given = vars(args[2])["json_data"] if by == "request" else kwargs
    assert given == {"model": "m", "messages": [{"role": "user", "content": "Go."}], "temperature": 0.5}
