"""A coroutine that is cancelled as what it waits for comes records that; else it is cancelled as asyncio does it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from runner.core.errors import ClaimLost, Stop, TimedOut
from runner.core.ledger import STEP
from runner.journal.cancellation import calls_in_flight
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne

from ...support.same_turn import strike


class Store(OneByOne):
    """What of a task's steps is recorded, and under way."""

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}
        self.open = 0

    def begin_step(self, *_: Any, **__: Any) -> None:
        self.open += 1

    def record_step(self, step: str, value: str, *, entry: Any = STEP, **_: Any) -> None:
        self.recorded[step] = value
        self.open -= entry is not None


class Struck:
    """A task that is a coroutine, and what it is stopped by."""

    def __init__(self) -> None:
        self.store, self.scope = Store(), CancelScope()
        self.scope.of_coroutine = True
        self.journal = Journal({}, self.store, self.scope)
        self.stop: Stop = TimedOut("too long")


async def cancelled_in(struck: Struck, call: Callable[..., Any], *, comes: bool = True) -> BaseException:
    """Cancel a step, which is stopped, as what it waits for comes, or before that. Returns its end."""
    answer = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(struck.journal.step("call", call, (answer,), {}))
    async with asyncio.timeout(60):
        while not getattr(answer, "_callbacks", None):
            await asyncio.sleep(0)
    if comes:
        answer.set_result("head")
    struck.scope.ask(struck.stop)
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.done()
    with pytest.raises((asyncio.CancelledError, Stop)) as ended:
        task.result()
    return ended.value


def test_a_coroutine_that_is_cancelled_as_its_answer_comes_records_it() -> None:
    struck = Struck()

    async def call(answer: "asyncio.Future[str]") -> str:
        await asyncio.sleep(0)
        return await answer

    assert isinstance(asyncio.run(cancelled_in(struck, call)), TimedOut)
    assert (list(struck.store.recorded.values()), struck.store.open) == (['"head"'], 0)


def test_a_coroutine_that_waits_on_and_on_is_cancelled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once what it waited for has come, it has a moment to take all of it."""
    struck, seen = Struck(), list[str]()
    monkeypatch.setattr(calls_in_flight, "FINISHING", 0.01)

    async def call(answer: "asyncio.Future[str]") -> None:
        seen.append(await answer)
        await asyncio.sleep(0)
        seen.append("went on")
        await asyncio.Event().wait()

    assert isinstance(asyncio.run(cancelled_in(struck, call)), asyncio.CancelledError)
    assert (seen, struck.store.recorded, struck.store.open) == (["head", "went on"], {}, 1)


def test_a_coroutine_whose_claim_is_lost_goes_on_with_nothing() -> None:
    """Another worker has its task: whatever it paid from now on nobody would record."""
    struck, seen = Struck(), list[str]()
    struck.stop = ClaimLost("gone")

    async def call(answer: "asyncio.Future[str]") -> None:
        seen.append(await answer)

    assert isinstance(asyncio.run(cancelled_in(struck, call)), asyncio.CancelledError)
    assert (seen, struck.store.recorded, struck.store.open) == ([], {}, 1)


def test_what_a_coroutine_would_wait_for_next_is_cancelled_with_it() -> None:
    """As by asyncio: it may be another task, which would go on, and pay, with nobody to record that."""
    struck, others = Struck(), list[asyncio.Task[bool]]()

    async def call(answer: "asyncio.Future[str]") -> None:
        await answer
        others.extend(asyncio.create_task(asyncio.Event().wait()) for _ in range(2))
        await asyncio.gather(*others)

    async def main() -> None:
        assert isinstance(await cancelled_in(struck, call), asyncio.CancelledError)
        assert [other.cancelled() for other in others] == [True, True]

    asyncio.run(main())


def test_what_a_socket_gave_is_recorded_though_it_is_still_to_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its service has answered, and was paid: whoever stops the task waits until the socket is closed."""
    struck, asked = Struck(), list[str | bytes]()
    monkeypatch.setattr(calls_in_flight, "FINISHING", 60.0)

    async def answer(socket: ServerConnection) -> None:
        async for message in socket:
            asked.append(message)
            await socket.send("paid")

    async def main() -> str:
        async with serve(answer, "127.0.0.1", 0) as server:
            ((_, port),) = (socket.getsockname() for socket in server.sockets)

            async def call() -> str | bytes:
                async with connect(f"ws://127.0.0.1:{port}", proxy=None) as socket:
                    await socket.send("what")
                    return await socket.recv()

            task = asyncio.create_task(struck.journal.step("call", call, (), {}))
            return await strike(task, struck.scope, lambda: bool(asked))

    assert asyncio.run(main()) == "TimedOut"
    assert (asked, list(struck.store.recorded.values()), struck.store.open) == (["what"], ['"paid"'], 0)


def test_a_coroutine_that_only_lets_others_run_is_cancelled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    struck, polls = Struck(), 0
    monkeypatch.setattr(calls_in_flight, "FINISHING", 0.01)

    async def call(answer: "asyncio.Future[str]") -> None:
        nonlocal polls
        await answer
        while polls < 1_000_000:
            polls += 1
            await asyncio.sleep(0)

    async def main() -> None:
        assert isinstance(await cancelled_in(struck, call), asyncio.CancelledError)

    asyncio.run(main())
    assert polls > 1


@pytest.mark.parametrize("how", [asyncio.gather, asyncio.wait_for, asyncio.shield])
def test_a_coroutine_that_handles_its_cancellation_is_cancelled_once(how: Any) -> None:
    """As by asyncio: what it awaits after that is awaited."""
    struck, seen = Struck(), list[str]()

    async def call(answer: "asyncio.Future[str]") -> None:
        try:
            await (how(answer, 60) if how is asyncio.wait_for else how(answer))
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)
            seen.append("cleaned up")
            raise

    async def main() -> None:
        assert isinstance(await cancelled_in(struck, call, comes=False), asyncio.CancelledError)

    asyncio.run(main())
    assert seen == ["cleaned up"]


def test_the_end_of_a_stream_that_comes_as_its_reader_is_cancelled_is_seen() -> None:
    scope = CancelScope()

    async def stream(end: "asyncio.Future[str]") -> Any:
        yield "all of it"
        await end

    async def read(end: "asyncio.Future[str]") -> str:
        pieces, found = stream(end), list[str]()
        try:
            while True:
                came = dict[int, Any]()
                await calls_in_flight.awaited(anext(pieces), scope, came)
                found.append(came[0])
        except StopAsyncIteration:
            return "".join(found)

    async def main() -> str:
        end = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(read(end))
        await asyncio.sleep(0)
        end.set_result("end")
        scope.ask(TimedOut("too long"))
        task.cancel()
        return await task

    assert asyncio.run(main()) == "all of it"


def test_a_cancellation_that_was_put_off_is_made_where_its_coroutine_waits_next() -> None:
    """As after the head of a stream: what is there is read, and then it waits no more."""
    scope, seen = CancelScope(), list[str]()

    async def read(head: "asyncio.Future[str]") -> None:
        came = dict[int, Any]()
        await calls_in_flight.awaited(head, scope, came)
        calls_in_flight.cancel_next_wait(came[1])
        seen.append(came[0])
        await asyncio.Event().wait()

    async def main() -> None:
        head = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(read(head))
        await asyncio.sleep(0)
        head.set_result("head")
        scope.ask(TimedOut("too long"))
        task.cancel()
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()
        assert task.cancelling() == 1

    asyncio.run(main())
    assert seen == ["head"]
