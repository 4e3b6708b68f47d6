"""Steps of coroutines that the author's code cancels: they are cancelled again when they are replayed, and not made."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runner.core.errors import Interrupted
from runner.core.ledger import STEP, AccountKey
from runner.journal import end_order
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.current_journal import inside_of
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne
from runner.journal.tool_uses import durable


class Recorder(OneByOne):
    """Keeps steps as a store would, and which of them are open."""

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}
        self.open = list[AccountKey]()

    def begin_step(self, entry: AccountKey = STEP, **_: Any) -> None:
        self.open.append(entry)

    def mark_sent(self, *_: Any) -> None: ...

    def drop_step(self, entry: AccountKey = STEP, **_: Any) -> None:
        self.open.remove(entry)

    def record_step(self, step: str, value: str, *, entry: AccountKey | None = STEP, **_: Any) -> None:
        assert step not in self.recorded
        self.recorded[step] = value
        if entry is not None:
            self.open.remove(entry)


Work = Callable[[Journal], Awaitable[Any]]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def attempt(recorder: Recorder) -> Callable[..., Any]:
    def make(work: Work, cancel_scope: CancelScope | None = None) -> Any:
        recorder.open.clear()
        journal = Journal(dict(recorder.recorded), recorder, cancel_scope or CancelScope())
        with inside_of(journal):
            return asyncio.run(work(journal))

    return make


class Uses:
    """Tools and steps of an author's, which ``hang`` the first time."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.begun = asyncio.Event()

    async def step(self, name: str) -> str:
        self.made.append(name)
        if name == "slow" and self.made.count(name) == 1:
            self.begun.set()
            await asyncio.sleep(60)
        return name

    def of(self, journal: Journal, kind: str) -> Callable[[str], Awaitable[str]]:
        if kind == "tool":
            return durable(self.step)
        return lambda name: journal.step("look", self.step, (name,), {})


@pytest.mark.parametrize("kind", ["tool", "step"])
def test_the_slower_of_two_is_cancelled_again(kind: str, recorder: Recorder, attempt: Any) -> None:
    uses = Uses()

    async def work(journal: Journal) -> list[str]:
        look = uses.of(journal, kind)

        async def quick() -> str:
            if not recorder.recorded:
                await uses.begun.wait()
            return await look("quick")

        calls = [asyncio.create_task(look("slow")), asyncio.create_task(quick())]
        done, rest = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for one in rest:
            one.cancel()
        return [one.result() for one in done] + [await look("then")]

    assert attempt(work) == ["quick", "then"]
    assert len(recorder.open) == 1, "it is in doubt, once"
    del recorder.recorded[next(name for name, text in recorder.recorded.items() if "then" in text)]
    assert attempt(work) == ["quick", "then"]
    assert uses.made == ["slow", "quick", "then", "then"]
    assert recorder.open == []


def test_what_ended_after_the_cancellation_is_replayed_after_it(recorder: Recorder, attempt: Any) -> None:
    uses, told = Uses(), list[str]()

    async def work(journal: Journal) -> None:
        later = asyncio.Event()

        async def limited() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(uses.of(journal, "step")("slow"), 0.2)
            told.append("cancelled")
            later.set()

        async def wait() -> str:
            await later.wait()
            return "later"

        async def long() -> None:
            told.append(await journal.step("long", wait, (), {}))

        await asyncio.gather(limited(), long())

    for _ in range(3):
        attempt(work)
    assert told == ["cancelled", "later"] * 3
    assert uses.made == ["slow"]


def test_the_same_step_once_more_is_another_one(recorder: Recorder, attempt: Any) -> None:
    uses = Uses()

    async def work(journal: Journal) -> str:
        look = uses.of(journal, "tool")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(look("slow"), 0.1)
        return await look("slow")

    assert [attempt(work), attempt(work)] == ["slow", "slow"]
    assert uses.made == ["slow", "slow"]


def test_one_that_is_not_cancelled_this_time_is_made_once(
    recorder: Recorder, attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_order, "PATIENCE", 0.1)
    uses, limits = Uses(), iter([0.1, None, None])

    async def work(journal: Journal) -> Any:
        return await asyncio.wait_for(uses.of(journal, "tool")("slow"), next(limits))

    with pytest.raises(TimeoutError):
        attempt(work)
    assert [attempt(work), attempt(work)] == ["slow", "slow"]
    assert uses.made == ["slow", "slow"]


def test_one_is_made_again_if_the_attempt_ended_by_it(recorder: Recorder, attempt: Any) -> None:
    uses = Uses()

    async def work(journal: Journal) -> Any:
        try:
            return await asyncio.wait_for(uses.of(journal, "tool")("slow"), 0.1)
        except TimeoutError as error:
            journal.ends_by(error)
            raise

    with pytest.raises(TimeoutError):
        attempt(work)
    assert [attempt(work), attempt(work)] == ["slow", "slow"]
    assert uses.made == ["slow", "slow"]


def test_one_that_is_cancelled_as_the_task_is_stopped_is_made_again(recorder: Recorder, attempt: Any) -> None:
    uses, scope = Uses(), CancelScope()

    async def work(journal: Journal) -> Any:
        call = asyncio.create_task(uses.of(journal, "tool")("slow"))
        if not uses.made:
            await uses.begun.wait()
            scope.ask(Interrupted("it is drained"))
            call.cancel()
        return await call

    with pytest.raises(asyncio.CancelledError):
        attempt(work, scope)
    assert (recorder.recorded, len(recorder.open)) == ({}, 1)
    assert attempt(work) == "slow"


def test_a_stop_ends_the_wait_for_the_cancellation(recorder: Recorder, attempt: Any) -> None:
    uses, scope = Uses(), CancelScope()

    async def work(journal: Journal) -> Any:
        call = asyncio.create_task(uses.of(journal, "tool")("slow"))
        if not recorder.recorded:
            await uses.begun.wait()
            call.cancel()
        else:
            scope.ask(Interrupted("it is drained"))
        return await call

    with pytest.raises(asyncio.CancelledError):
        attempt(work)
    with pytest.raises(Interrupted):
        attempt(work, scope)
    assert uses.made == ["slow"]
