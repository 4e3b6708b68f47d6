"""A call that its client or the author's code gives up is given up again when it is replayed, and not made again."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest

from runner.core.errors import Interrupted
from runner.journal import end_order
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.testing import ModelServer, eventually

from ...support.later import Later
from .clients import ASKED, CLIENTS, Given
from .conftest import GPT, user
from .wire_server import EVENTS, Reply, WireServer

openai = Later("openai")
TIMED_OUT = 0.3
CONVERSE = b'{"output": {"message": {"role": "assistant", "content": [{"text": "whole"}]}}, "stopReason": "end_turn", '
CONVERSE += b'"usage": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}}'


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def answered(client: str) -> Reply:
    return Reply(body=CONVERSE) if client.startswith("botocore") else Reply()


# -- the time of its client is up


@pytest.mark.parametrize("client", CLIENTS)
def test_one_that_times_out_does_so_again_at_once(client: str, account: Any, attempt: Any) -> None:
    """Its code asks the same once more: that is answered, and the answer is not taken for that of the first."""
    whole = client.removesuffix(", streamed")

    def task() -> Any:
        ask = partial(CLIENTS[client], Given(wire.chat, timeout=TIMED_OUT))
        return outcome(ask), CLIENTS[whole](Given(wire.chat))

    with WireServer() as wire:
        wire.reply = lambda number: Reply(hangs=True) if number % 2 else answered(client)
        first = attempt(task)
        assert isinstance(first[0][0], type), first
        assert (len(wire.log), account.paid.total(), account.in_doubt) == (2, 1, 1)
        # when the answer is lost, too, it alone is asked for again
        wire.reply = lambda number: answered(client)
        assert attempt(task, lose=1) == first
        assert (len(wire.log), account.in_doubt, account.replayed.total()) == (3, 0, 0)
        assert attempt(task) == first
        assert (len(wire.log), account.in_doubt, account.replayed.total()) == (3, 0, 1)


@pytest.mark.parametrize("client", [name for name in CLIENTS if "streamed" not in name])
def test_one_whose_answer_stops_halfway_times_out_in_the_same_way(client: str, account: Any, attempt: Any) -> None:
    def pieces() -> Any:
        yield b'{"choices'
        wire.over.wait(20)

    def task() -> Any:
        return outcome(partial(CLIENTS[client], Given(wire.chat, timeout=TIMED_OUT)))

    with WireServer() as wire:
        wire.reply = lambda number: Reply(pieces=pieces())
        first = attempt(task)
        assert isinstance(first[0], type), first
        assert attempt(task) == first
        assert (len(wire.log), len(account.recorded), account.paid.total()) == (1, 1, 0)


def stalls(wire: WireServer) -> Any:
    """A stream that stops after its first event."""
    yield EVENTS[0]
    wire.over.wait(20)


STALLS = {"Content-Type": "text/event-stream"}


@pytest.mark.parametrize("client", [name for name in CLIENTS if "streamed" in name and "botocore" not in name])
def test_one_that_times_out_in_its_stream_does_so_again(client: str, account: Any, attempt: Any) -> None:
    def task() -> Any:
        return outcome(partial(CLIENTS[client], Given(wire.chat, timeout=TIMED_OUT)))

    with WireServer() as wire:
        wire.reply = lambda number: Reply(pieces=stalls(wire), headers=STALLS)
        first = attempt(task)
        assert isinstance(first[0], type), first
        assert attempt(task) == first
        assert (len(wire.log), len(account.recorded), account.paid.total()) == (1, 1, 0)


@pytest.mark.parametrize("client", ["urllib3", "requests", "botocore"])
def test_one_that_its_library_repeats_is_repeated_again(client: str, account: Any, attempt: Any) -> None:
    with WireServer() as wire:
        wire.reply = lambda number: Reply(hangs=True) if number == 1 else answered(client)
        for _ in range(2):
            attempt(lambda: CLIENTS[client](Given(wire.chat, timeout=TIMED_OUT, retries=2)))
        assert len(wire.log) == 2
    assert [name.endswith(" gave up") for name in account.recorded] == [True, False]


def test_a_client_that_retries_is_answered_by_the_record_of_the_same_attempt(account: Any, attempt: Any) -> None:
    def task() -> Any:
        with openai.OpenAI(base_url=wire.url, api_key="sk-secret", max_retries=1, timeout=TIMED_OUT) as client:
            return client.chat.completions.create(model="gpt", messages=user("it")).choices[0].message.content

    with WireServer() as wire:
        wire.reply = lambda number: Reply(hangs=number == 1)
        assert [attempt(task), attempt(task)] == ["whole", "whole"]
        assert len(wire.log) == 2
    assert account.replayed[GPT] == 1


def test_a_kill_before_it_is_recorded_leaves_it_in_doubt_and_it_is_made_again(account: Any, attempt: Any) -> None:
    def task() -> Any:
        return outcome(partial(CLIENTS["httpx"], Given(wire.chat, timeout=TIMED_OUT)))

    with WireServer() as wire:
        wire.reply = lambda number: Reply(hangs=number == 1)
        attempt(task)
        assert (len(account.recorded), account.in_doubt) == (1, 1)
        assert attempt(task, lose=1)[0] == 200
        assert (len(wire.log), account.paid.total(), account.in_doubt) == (2, 1, 0)


def test_an_attempt_that_ended_by_it_asks_again_in_the_next_one(account: Any, attempt: Any) -> None:
    def task() -> Any:
        try:
            return CLIENTS["httpx"](Given(wire.chat, timeout=TIMED_OUT))[0]
        except httpx.ReadTimeout as error:
            raise RuntimeError("the model is slow") from error

    with WireServer() as wire:
        wire.reply = lambda number: Reply(hangs=number < 3)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                attempt(task)
        assert attempt(task) == 200
        assert attempt(task) == 200
        assert len(wire.log) == 3


def test_an_attempt_that_ended_by_a_call_that_its_client_repeated_has_all_its_tries_again(
    account: Any, attempt: Any
) -> None:
    """Else each later attempt would ask once, however often its client is told to."""

    def task() -> Any:
        with openai.OpenAI(base_url=wire.url, api_key="sk-secret", max_retries=2, timeout=TIMED_OUT) as client:
            said = client.chat.completions.create(model="gpt", messages=user("before"), timeout=20)
            last = client.chat.completions.create(model="gpt", messages=user("it"))
        return said.choices[0].message.content, last.choices[0].message.content

    with WireServer() as wire:
        wire.reply = lambda number: Reply(hangs=1 < number < 7)
        with pytest.raises(openai.APITimeoutError):
            attempt(task)
        assert len(wire.log) == 4
        wire.reply = lambda number: Reply(hangs=number < 7)
        assert attempt(task) == ("whole", "whole")
        assert len(wire.log) == 7
        assert attempt(task) == ("whole", "whole")
        assert len(wire.log) == 7


# -- its coroutine is cancelled

Ask = Callable[[str], Awaitable[str]]


def by_httpx(library: Any, url: str) -> Any:
    @contextlib.asynccontextmanager
    async def opened() -> Any:
        async with library.AsyncClient(timeout=60) as client:

            async def ask(text: str) -> str:
                said = await client.post(url, json={"model": "gpt", "messages": user(text)})
                return str(said.json()["choices"][0]["message"]["content"])

            yield ask

    return opened()


def by_aiohttp(url: str) -> Any:
    @contextlib.asynccontextmanager
    async def opened() -> Any:
        async with aiohttp.ClientSession() as session:

            async def ask(text: str) -> str:
                async with session.post(url, json={"model": "gpt", "messages": user(text)}) as said:
                    return str((await said.json())["choices"][0]["message"]["content"])

            yield ask

    return opened()


def by_openai(url: str) -> Any:
    @contextlib.asynccontextmanager
    async def opened() -> Any:
        async with openai.AsyncOpenAI(base_url=url.removesuffix("/chat/completions"), api_key="sk-secret") as client:

            async def ask(text: str) -> str:
                said = await client.chat.completions.create(model="gpt", messages=user(text))
                return str(said.choices[0].message.content)

            yield ask

    return opened()


OPEN = {
    "httpx": partial(by_httpx, httpx),
    "httpx2": partial(by_httpx, httpx2),
    "aiohttp": by_aiohttp,
    "openai": by_openai,
}


async def the_first(ask: Ask, arrived: Callable[[], object]) -> list[str]:
    """The slower of two is cancelled."""
    calls = [asyncio.create_task(ask(name)) for name in ("slow", "quick")]
    done, rest = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    for one in rest:
        one.cancel()
    return [one.result() for one in done]


async def in_time(ask: Ask, arrived: Callable[[], object]) -> list[str]:
    """The time of the author's code is up, from when the model has the call."""
    try:
        async with asyncio.timeout(None) as limit:
            call = asyncio.create_task(ask("slow"))
            await asyncio.to_thread(arrived)
            limit.reschedule(asyncio.get_running_loop().time() + 0.1)
            return [await call]
    except TimeoutError:
        return ["too late"]


async def of_a_group(ask: Ask, arrived: Callable[[], object]) -> list[str]:
    """Another one of its group fails."""

    async def fail() -> None:
        await ask("quick")
        raise ValueError

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(ask("slow"))
            group.create_task(fail())
    return ["failed"]


@pytest.mark.parametrize("client", OPEN)
@pytest.mark.parametrize("way", [the_first, in_time, of_a_group])
def test_one_that_is_cancelled_waits_to_be_so_again(way: Any, client: str, account: Any, attempt: Any) -> None:
    """The model would be quick with it the second time."""
    asked: list[str] = []

    def answer(request: Any) -> str:
        asked.append(request.last)
        if request.last == "slow" and asked.count("slow") == 1:
            over.wait(30)
        elif len(asked) < 3:  # the quick one comes when the slow one is there
            eventually(lambda: "slow" in asked, within=30, why="the model is asked")
        return request.last

    def task() -> Any:
        async def go() -> list[str]:
            async with OPEN[client](f"{server.url}/chat/completions") as ask:
                found = await way(ask, arrived)
                return [*found, await ask("then")]

        return asyncio.run(go())

    def arrived() -> None:
        eventually(lambda: "slow" in asked, within=30, why="the model is asked")

    over = threading.Event()
    with ModelServer(answer) as server:
        first = attempt(task)
        in_doubt, made = account.in_doubt, len(asked)
        assert (in_doubt, made) == (1, account.paid.total() + 1)
        assert attempt(task) == first  # from the journal alone
        assert attempt(task, lose=1) == first  # killed after it was cancelled
        over.set()
    assert asked.count("slow") == 1
    assert asked.count("then") == 2
    assert account.in_doubt == 0


def test_one_that_is_not_cancelled_this_time_is_made(account: Any, attempt: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(end_order, "PATIENCE", 0.1)
    gate = threading.Event()

    def answer(request: Any) -> str:
        gate.wait(30)
        return str(request.last)

    def task(limit: float) -> Any:
        async def go() -> str:
            async with OPEN["httpx"](f"{server.url}/chat/completions") as ask:
                try:
                    return await asyncio.wait_for(ask("slow"), limit)
                except TimeoutError:
                    return "too late"

        return asyncio.run(go())

    with ModelServer(answer) as server:
        assert attempt(partial(task, 0.3)) == "too late"
        gate.set()
        assert attempt(partial(task, 60)) == "slow"
        assert attempt(partial(task, 60)) == "slow"
        assert server.requests == 2


@pytest.mark.parametrize("stopped", [False, True])
def test_one_that_ends_because_the_task_is_stopped_is_made_again(stopped: bool, account: Any, attempt: Any) -> None:
    scope, gate = CancelScope(), threading.Event()

    def answer(request: Any) -> str:
        gate.wait(30)
        return str(request.last)

    def task() -> Any:
        async def go() -> str:
            async with OPEN["httpx"](f"{server.url}/chat/completions") as ask:
                call = asyncio.create_task(ask("slow"))
                await asyncio.to_thread(eventually, lambda: server.requests, within=30, why="the model is asked")
                if stopped and not gate.is_set():
                    scope.ask(Interrupted("it is drained"))
                if not gate.is_set():
                    call.cancel()
                return await call

        return asyncio.run(go())

    with ModelServer(answer) as server:
        with pytest.raises((asyncio.CancelledError, Interrupted)):
            attempt(task, cancel_scope=scope)
        assert bool(account.recorded) is not stopped
        gate.set()
        if stopped:
            assert attempt(task) == "slow"
            assert server.requests == 2


async def pieces_by_httpx(library: Any, url: str, take: Callable[[bytes], None]) -> None:
    async with library.AsyncClient(timeout=60) as client, client.stream("POST", url, json=ASKED) as said:
        async for piece in said.aiter_bytes():
            take(piece)


async def pieces_by_aiohttp(url: str, take: Callable[[bytes], None]) -> None:
    async with aiohttp.ClientSession() as session, session.post(url, json=ASKED) as said:
        async for piece in said.content.iter_any():
            take(piece)


PIECES = {
    "httpx": partial(pieces_by_httpx, httpx),
    "httpx2": partial(pieces_by_httpx, httpx2),
    "aiohttp": pieces_by_aiohttp,
}


@pytest.mark.parametrize("client", PIECES)
def test_one_that_is_cancelled_in_its_stream_gives_the_same_part(client: str, account: Any, attempt: Any) -> None:
    taken: list[list[bytes]] = []

    def task() -> Any:
        async def go() -> str:
            came = asyncio.Event()
            taken.append([])

            def take(piece: bytes) -> None:
                taken[-1].append(piece)
                came.set()

            call = asyncio.create_task(PIECES[client](wire.chat, take))
            await came.wait()
            done, _ = await asyncio.wait([call], timeout=0.2)
            call.cancel()
            await asyncio.wait([call])
            return "it has ended" if done else "cancelled"

        return asyncio.run(go())

    with WireServer() as wire:
        wire.reply = lambda number: Reply(pieces=stalls(wire), headers=STALLS)
        for _ in range(3):
            assert attempt(task) == "cancelled"
        assert (len(wire.log), taken) == (1, [[EVENTS[0]]] * 3)
        assert (len(account.recorded), account.paid.total()) == (1, 0)
