"""The vendors' own clients, sync and async, streamed and not, several calls at once: each call is paid once."""

import asyncio
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from runner.core.ledger import Counters
from runner.events import event_bus
from runner.events.call_events import CallDivergedEvent
from runner.testing import ModelServer

from ...support.later import Later
from ...support.soak import in_soak
from .conftest import GPT, user
from .wire_server import CHAT, Reply, WireServer

anthropic, openai = Later("anthropic"), Later("openai")


def openai_sync(server: ModelServer, stream: bool) -> Any:
    with openai.OpenAI(base_url=server.url, api_key="k") as client:

        def one(text: str) -> Any:
            if not stream:
                return client.chat.completions.create(model="gpt", messages=user(text)).choices[0].message.content
            chunks = client.chat.completions.create(
                model="gpt", messages=user(text), stream=True, stream_options={"include_usage": True}
            )
            return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

        with ThreadPoolExecutor(3) as pool:
            return [one("first"), *pool.map(one, ["a", "b", "c"]), one("last")]


def openai_async(server: ModelServer, stream: bool) -> Any:
    async def go() -> Any:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:

            async def one(text: str) -> Any:
                if not stream:
                    said = await client.chat.completions.create(model="gpt", messages=user(text))
                    return said.choices[0].message.content
                chunks = await client.chat.completions.create(
                    model="gpt", messages=user(text), stream=True, stream_options={"include_usage": True}
                )
                return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])

            return [await one("first"), *await asyncio.gather(*map(one, "abc")), await one("last")]

    return asyncio.run(go())


def responses(server: ModelServer, stream: bool) -> Any:
    with openai.OpenAI(base_url=server.url, api_key="k") as client:

        def one(text: str) -> Any:
            if not stream:
                return client.responses.create(model="gpt", input=text).output_text
            pieces = client.responses.create(model="gpt", input=user(text), stream=True)
            return "".join(p.delta for p in pieces if p.type == "response.output_text.delta")

        with ThreadPoolExecutor(3) as pool:
            return [one("first"), *pool.map(one, ["a", "b", "c"]), one("last")]


def anthropic_sync(server: ModelServer, stream: bool) -> Any:
    with anthropic.Anthropic(base_url=server.root, api_key="k") as client:

        def one(text: str) -> Any:
            if not stream:
                return client.messages.create(model="gpt", max_tokens=9, messages=user(text)).content[0].text
            with client.messages.stream(model="gpt", max_tokens=9, messages=user(text)) as pieces:
                return "".join(pieces.text_stream)

        with ThreadPoolExecutor(3) as pool:
            return [one("first"), *pool.map(one, ["a", "b", "c"]), one("last")]


def anthropic_async(server: ModelServer, stream: bool) -> Any:
    async def go() -> Any:
        async with anthropic.AsyncAnthropic(base_url=server.root, api_key="k") as client:

            async def one(text: str) -> Any:
                if not stream:
                    said = await client.messages.create(model="gpt", max_tokens=9, messages=user(text))
                    return said.content[0].text
                async with client.messages.stream(model="gpt", max_tokens=9, messages=user(text)) as pieces:
                    return "".join([text async for text in pieces.text_stream])

            return [await one("first"), *await asyncio.gather(*map(one, "abc")), await one("last")]

    return asyncio.run(go())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("vendor", [openai_sync, openai_async, responses, anthropic_sync, anthropic_async])
def test_each_call_is_paid_once(vendor, stream, server, account, attempt):
    first = attempt(lambda: vendor(server, stream), unattributed=True)
    assert server.paid == account.paid.total() == 5
    assert account.tokens == sum(server.tokens) > 0
    assert account.in_doubt == 0
    # The next attempt is served from the journal, as if it had been answered
    assert attempt(lambda: vendor(server, stream), unattributed=True) == first
    assert (server.requests, account.replayed) == (5, Counters({GPT: 5}))
    assert account.replayed.tokens == {GPT: account.tokens}
    # One that was killed before its last record pays for that one only
    assert attempt(lambda: vendor(server, stream), unattributed=True, lose=1) == first
    assert server.paid == 6


SAID = {"id": "m", "type": "message", "role": "assistant", "model": "gpt", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "whole"}], "usage": {"input_tokens": 5, "output_tokens": 2}}  # fmt: skip


def by_openai(url: str) -> Any:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=2) as client:
        return client.chat.completions.create(model="gpt", messages=user("it")).choices[0].message.content


def by_openai_async(url: str) -> Any:
    async def go() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=2) as client:
            said = await client.chat.completions.create(model="gpt", messages=user("it"))
            return said.choices[0].message.content

    return asyncio.run(go())


def by_anthropic(url: str) -> Any:
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=2) as client:
        return client.messages.create(model="gpt", max_tokens=9, messages=user("it")).content[0].text


def by_anthropic_async(url: str) -> Any:
    async def go() -> Any:
        async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=2) as client:
            return (await client.messages.create(model="gpt", max_tokens=9, messages=user("it"))).content[0].text

    return asyncio.run(go())


REFUSING = [by_openai, by_openai_async, by_anthropic, by_anthropic_async]
EACH_ONCE = [*zip(itertools.cycle(REFUSING), [408, 409, 429, 500, 503, 529], strict=False)]


@pytest.mark.parametrize(
    ("vendor", "status"),
    [
        *EACH_ONCE,
        *in_soak(
            *(one for one in itertools.product(REFUSING, [status for _, status in EACH_ONCE]) if one not in EACH_ONCE)
        ),
    ],
)
def test_what_was_refused_and_is_repeated_is_paid_once(vendor: Any, status: int, account: Any, attempt: Any) -> None:
    refused = Reply(status, b"{}", headers={"Content-Type": "application/json", "Retry-After-Ms": "1"})
    with WireServer() as wire:
        wire.reply = lambda number: (
            refused if number == 1 else Reply(body=json.dumps(SAID if "messages" in wire.log[-1][1] else CHAT).encode())
        )
        url = wire.url.removesuffix("/v1")
        assert attempt(lambda: vendor(url)) == attempt(lambda: vendor(url)) == "whole"
        assert (len(wire.log), account.paid.total(), account.in_doubt) == (2, 1, 0)


def test_calls_side_by_side_diverge_from_nothing(server, account, attempt):
    openai_task = lambda: openai_async(server, False)  # noqa: E731 - an expression with a name
    attempt(openai_task)
    heard: list[Any] = []
    with event_bus.scoped_handlers():
        event_bus.on(CallDivergedEvent)(lambda _, event: heard.append(event.call))
        for key in [key for key in account.recorded if key.endswith(":2")]:
            del account.recorded[key]
        attempt(openai_task)
        event_bus.flush()
    assert (heard, server.paid) == ([], 6)
