"""A call that its service refused is refused again when it is replayed, if the code went on without it."""

import asyncio
import contextlib
import importlib
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import aiohttp
import pytest

from runner.journal.current_journal import inside_of

from ...support.later import Later
from .clients import ASKED, CLIENTS, Given
from .conftest import journal_now, user
from .wire_server import Reply, WireServer

openai = Later("openai")
CONVERSE = b'{"output": {"message": {"role": "assistant", "content": [{"text": "whole"}]}}, "stopReason": "end_turn", '
CONVERSE += b'"usage": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}}'
ERROR = json.dumps({"error": {"message": "it is busy", "type": "busy"}, "message": "it is busy"}).encode()
WHOLE = [name for name in CLIENTS if "streamed" not in name]


def refusal(status: int = 503, **headers: str) -> Reply:
    return Reply(status, ERROR, headers={"Content-Type": "application/json", **headers})


def answered(client: str) -> Reply:
    return Reply(body=CONVERSE) if client.startswith("botocore") else Reply()


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error).__name__, str(error)


def closed() -> str:
    """Where nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}/v1/chat/completions"


def fallback(client: str, first: Given, second: Given) -> tuple[Any, Any]:
    """What an agent's code does: it asks another model where the first refuses."""
    return outcome(partial(CLIENTS[client], first)), CLIENTS[client.removesuffix(", streamed")](second)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [400, 429, 529])
def test_it_is_refused_again_if_the_code_went_on_without_it(
    client: str, status: int, account: Any, attempt: Any
) -> None:
    with WireServer() as one, WireServer() as other:
        one.reply, other.reply = lambda number: refusal(status), lambda number: answered(client)
        task = partial(fallback, client, Given(one.chat), Given(other.chat))
        first = attempt(task)
        assert (len(account.recorded), account.paid.total(), account.in_doubt) == (2, 1, 0)
        one.reply = lambda number: answered(client)
        assert [attempt(task), attempt(task)] == [first, first]
        assert (len(one.log), len(other.log)) == (1, 1)
        assert (account.paid.total(), account.replayed.total(), account.in_doubt) == (1, 2, 0)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_connection_that_was_refused_is_so_again(client: str, account: Any, attempt: Any) -> None:
    with WireServer() as other:
        other.reply = lambda number: answered(client)
        task = partial(fallback, client, Given(closed()), Given(other.chat))
        first = attempt(task)
        assert "onnect" in str(first[0]), first
        assert (len(account.recorded), account.paid.total(), account.in_doubt) == (2, 1, 0)
        assert attempt(task) == first
        assert len(other.log) == 1
        assert len(account.recorded) == 2


FAILS = {
    "an error": Reply(body=ERROR.replace(b', "message": "it is busy"}', b"}")),
    "no JSON": Reply(body=b"busy"),
    "half of it": Reply(cut=True),
}


@pytest.mark.parametrize("fails", FAILS)
@pytest.mark.parametrize("client", [name for name in WHOLE if name != "botocore"])
def test_an_answer_that_cannot_be_taken_comes_again(client: str, fails: str, account: Any, attempt: Any) -> None:
    """It is in doubt, once."""
    with WireServer() as one, WireServer() as other:
        one.reply = lambda number: FAILS[fails]
        task = partial(fallback, client, Given(one.chat), Given(other.chat))
        first = attempt(task)
        assert (len(account.recorded), account.paid.total(), account.in_doubt) == (2, 1, 1)
        one.reply = lambda number: Reply()
        assert attempt(task) == first
        assert (len(one.log), len(other.log), account.in_doubt) == (1, 1, 0)


@pytest.mark.parametrize("client", WHOLE)
def test_one_that_is_repeated_and_answered_leaves_no_record(client: str, account: Any, attempt: Any) -> None:
    def task() -> Any:
        for _ in range(4):
            found = outcome(partial(CLIENTS[client], Given(wire.chat)))
            if "busy" not in str(found):
                return found
        return None

    with WireServer() as wire:
        wire.reply = lambda number: refusal() if number < 3 else answered(client)
        assert attempt(task) == attempt(task)
        assert (len(wire.log), len(account.recorded), account.in_doubt) == (3, 1, 0)


@pytest.mark.parametrize("client", ["urllib3", "requests", "botocore"])
def test_one_that_its_library_repeats_is_repeated_again(client: str, account: Any, attempt: Any) -> None:
    with WireServer() as one, WireServer() as other:
        one.reply, other.reply = lambda number: refusal(), lambda number: answered(client)
        task = partial(fallback, client, Given(one.chat, retries=2), Given(other.chat))
        first = attempt(task)
        assert len(one.log) == 3
        one.reply = lambda number: answered(client)
        assert attempt(task) == first
        assert (len(one.log), len(other.log)) == (3, 1)


def test_what_an_attempt_ended_by_is_asked_again(account: Any, attempt: Any) -> None:
    """Another step was recorded meanwhile, and so was the refusal."""

    def task() -> Any:
        refused = outcome(partial(CLIENTS["httpx"], Given(one.chat)))
        if beside:
            beside.pop()(Given(other.chat))
        if refused[0] != 200:
            raise RuntimeError("the model is busy")
        return refused

    with WireServer() as one, WireServer() as other:
        one.reply = lambda number: refusal()
        beside: list[Any] = []
        with pytest.raises(RuntimeError):
            attempt(task)
        assert account.recorded == {}
        with pytest.raises(RuntimeError):
            attempt(task)
        one.reply = lambda number: Reply()
        assert attempt(task)[0] == 200
        assert attempt(task)[0] == 200
        assert len(one.log) == 3


def test_what_the_code_went_on_without_is_not_asked_after_another_error(account: Any, attempt: Any) -> None:
    def task() -> Any:
        fallback("httpx", Given(one.chat), Given(other.chat))
        raise KeyError("its own")

    with WireServer() as one, WireServer() as other:
        one.reply = lambda number: refusal() if number == 1 else Reply()
        for _ in range(3):
            with pytest.raises(KeyError):
                attempt(task)
        assert (len(one.log), len(other.log)) == (1, 1)


def test_all_that_refused_are_asked_again_if_none_answered(account: Any, attempt: Any) -> None:
    """Another thread's step was recorded between them."""

    def beside(journal: Any) -> None:
        with inside_of(journal):
            CLIENTS["httpx"](Given(other.chat))

    def task() -> Any:
        found = [outcome(partial(CLIENTS["httpx"], Given(one.chat)))]
        with ThreadPoolExecutor(1) as pool:
            pool.submit(beside, journal_now()).result()
        found.append(outcome(partial(CLIENTS["httpx"], Given(f"{one.url}/messages"))))
        if {status for status, _ in found} == {503}:
            raise RuntimeError("all are busy")
        return found

    with WireServer() as one, WireServer() as other:
        one.reply = lambda number: refusal() if number < 3 else Reply()
        with pytest.raises(RuntimeError):
            attempt(task)
        assert [status for status, _ in attempt(task)] == [200, 200]
        assert (len(one.log), len(other.log)) == (4, 1)


def test_nothing_secret_and_nothing_long_is_recorded(account: Any, attempt: Any) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    said = json.dumps({"error": {"message": f"Incorrect API key provided: {key}"}})
    headers = {"Content-Type": "application/json", "Set-Cookie": "of=them", "Retry-After": "3"}

    def task() -> list[int]:
        ask = CLIENTS["httpx"]
        return [ask(Given(url))[0] for url in (one.chat, other.chat, one.chat, f"{other.url}/messages")]

    with WireServer() as one, WireServer() as other:
        one.reply = lambda number: (
            Reply(401, said.encode(), headers=headers) if number == 1 else Reply(500, b"x" * 2**20)
        )
        assert attempt(task) == [401, 200, 500, 200]
        text = json.dumps(account.recorded)
        assert key not in text
        assert "of=them" not in text
        assert "retry-after" in text
        assert len(text) < 4096
        assert attempt(task) == [401, 200, 500, 200]
        assert (len(one.log), len(other.log)) == (2, 2)


def test_a_client_that_retries_is_refused_as_often(account: Any, attempt: Any) -> None:
    def task() -> Any:
        with openai.OpenAI(base_url=one.url, api_key="sk-secret", max_retries=2) as client:
            try:
                return client.chat.completions.create(model="gpt", messages=user("it")).choices[0].message.content
            except openai.RateLimitError as error:
                return str(error), CLIENTS["httpx"](Given(other.chat))

    with WireServer() as one, WireServer() as other:
        one.reply = lambda number: refusal(429, **{"Retry-After-Ms": "1"})
        first = attempt(task)
        one.reply = lambda number: Reply()
        assert attempt(task) == first
        assert (len(one.log), len(other.log)) == (3, 1)


def test_an_answer_after_its_fallback_is_not_taken_for_that_of_the_first(account: Any, attempt: Any) -> None:
    def task() -> Any:
        return [outcome(partial(CLIENTS["httpx"], Given(url))) for url in (one.chat, other.chat, one.chat)]

    with WireServer() as one, WireServer() as other:
        one.reply = lambda number: refusal() if number == 1 else Reply()
        first = attempt(task)
        assert [found[0] for found in first] == [503, 200, 200]
        assert attempt(task) == first
        assert (len(one.log), len(other.log)) == (2, 1)


def test_one_of_many_that_is_repeated_is_answered_at_once(account: Any, attempt: Any) -> None:
    """Others were recorded between its refusal and its answer, in other threads of the task."""
    gate = threading.Barrier(2, timeout=30)

    def ask(journal: Any) -> list[int]:
        with inside_of(journal):
            found = [CLIENTS["httpx"](Given(one.chat))[0]]
            for _ in range(2 * gates):
                gate.wait()
            found += [CLIENTS["httpx"](Given(one.chat))[0]] if found == [503] else []
            return found

    def task() -> Any:
        with ThreadPoolExecutor(1) as pool:
            repeated = pool.submit(ask, journal_now())
            if gates:
                gate.wait()
            said = CLIENTS["httpx"](Given(other.chat))[0]
            if gates:
                gate.wait()
            return repeated.result(), said

    with WireServer() as one, WireServer() as other:
        one.reply = lambda number: refusal() if number == 1 else Reply()
        gates = 1
        assert attempt(task) == ([503, 200], 200)
        assert [name.startswith("=ended by") for name in account.recorded] == [False, False, True, False]
        gates = 0
        assert attempt(task) == ([200], 200)
        assert (len(one.log), len(other.log)) == (2, 1)
        assert [account.replayed.total(), account.in_doubt] == [2, 0]


def test_a_session_that_raises_for_a_status_does_so_again(account: Any, attempt: Any) -> None:
    def task() -> Any:
        async def go() -> tuple[int, str, int]:
            async with aiohttp.ClientSession(raise_for_status=True) as session:
                try:
                    await session.post(one.chat, json=ASKED)
                except aiohttp.ClientResponseError as error:
                    async with session.post(other.chat, json=ASKED) as said:
                        return error.status, str(error.headers and error.headers["Content-Type"]), said.status
            raise AssertionError

        return asyncio.run(go())

    with WireServer() as one, WireServer() as other:
        one.reply = lambda number: refusal()
        assert attempt(task) == attempt(task) == (503, "application/json", 200)
        assert (len(one.log), len(other.log), account.in_doubt) == (1, 1, 0)


def by_pydantic_ai(first: str, second: str) -> str:
    provider = pytest.importorskip("pydantic_ai.providers.openai").OpenAIProvider
    chat = importlib.import_module("pydantic_ai.models.openai").OpenAIChatModel
    fallback = importlib.import_module("pydantic_ai.models.fallback").FallbackModel

    async def go() -> str:
        async with contextlib.AsyncExitStack() as stack:
            of = [openai.AsyncOpenAI(base_url=url, api_key="sk-secret") for url in (first, second)]
            models = [chat("gpt", provider=provider(openai_client=await stack.enter_async_context(one))) for one in of]
            return str((await importlib.import_module("pydantic_ai").Agent(fallback(*models)).run("it")).output)

    return asyncio.run(go())


def by_langchain(first: str, second: str) -> str:
    chat = pytest.importorskip("langchain_openai").ChatOpenAI
    both = [chat(model="gpt", base_url=url, api_key="sk-secret", max_retries=1) for url in (first, second)]
    return str(both[0].with_fallbacks(both[1:]).invoke("it").content)


@pytest.mark.parametrize("framework", [by_pydantic_ai, by_langchain])
def test_a_framework_that_falls_back_does_so_again(framework: Any, account: Any, attempt: Any) -> None:
    with WireServer() as one, WireServer() as other:
        one.reply = lambda number: refusal(429, **{"Retry-After-Ms": "1"})
        assert attempt(partial(framework, one.url, other.url)) == "whole"
        asked, one.reply = len(one.log), lambda number: Reply()
        assert asked > 1, "the client repeats it"
        assert attempt(partial(framework, one.url, other.url)) == "whole"
        assert (len(one.log), len(other.log), account.in_doubt) == (asked, 1, 0)
