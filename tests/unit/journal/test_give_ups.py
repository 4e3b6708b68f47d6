"""Steps of coroutines that the author's code cancels: they are cancelled again when they are replayed, and not made."""

import asyncio
import contextlib
import gc
import json
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from runner.core.errors import Interrupted, StepFailed, TimedOut
from runner.core.ledger import STEP, AccountKey
from runner.journal import end_order
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.current_journal import inside_of
from runner.journal.give_ups import GiveUp, given_up
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


@pytest.mark.parametrize("again", [True, False])
def test_one_that_is_cancelled_as_its_result_comes_is_recorded_and_cancelled_again(
    again: bool, recorder: Recorder, attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_order, "PATIENCE", 0.2)
    made = list[str]()

    async def work(journal: Journal, *, is_cancelled: bool = True) -> str:
        came = asyncio.get_running_loop().create_future()

        async def call() -> str:
            made.append("made")
            return str(await came)

        paid = asyncio.ensure_future(journal.step("call", call, (), {}))
        for _ in range(3):
            await asyncio.sleep(0)
        if not came.done() and made:
            came.set_result("paid")  # and in the same turn of the loop
        if is_cancelled:
            paid.cancel()
        try:
            return await paid
        except asyncio.CancelledError:
            return "cancelled"

    # Given a step that the code cancels in the turn in which its result comes: the code is told that it is cancelled
    assert attempt(work) == "cancelled"
    assert (made, recorder.open) == (["made"], []), "what was paid is not in doubt"
    assert "'\"paid\"'" in str([*recorder.recorded.values()])
    # Then a replay cancels it, too; code that does not do so has the result, and nothing is made again
    made[1:] = []
    journaled = partial(work, is_cancelled=again)
    assert attempt(journaled) == ("cancelled" if again else "paid")
    assert made == ["made"]


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


def test_one_is_made_again_if_the_time_of_the_task_was_up_as_it_waited(recorder: Recorder, attempt: Any) -> None:
    """Else each attempt would wait for a cancellation that does not come, until its time is up."""
    uses, scope = Uses(), CancelScope()

    async def work(journal: Journal) -> Any:
        call = asyncio.create_task(uses.of(journal, "tool")("slow"))
        if not recorder.recorded:
            await uses.begun.wait()
            call.cancel()
            await asyncio.wait([call])
            return await uses.of(journal, "tool")("instead")
        try:
            await asyncio.sleep(0)
            if journal.cancel_scope is scope:
                scope.ask(stop)
            return await call
        except TimedOut as error:
            journal.ends_by(error)
            raise

    stop = TimedOut.after(3)
    assert attempt(work) == "instead"
    with pytest.raises(TimedOut):
        attempt(work, scope)
    assert attempt(work) == "slow"
    assert uses.made == ["slow", "instead", "slow"]


def test_one_that_is_cancelled_as_another_could_not_be_recorded_is_made_again(recorder: Recorder, attempt: Any) -> None:
    uses = Uses()

    async def work(journal: Journal) -> Any:
        call = asyncio.create_task(uses.of(journal, "step")("slow"))
        if not uses.made:
            await uses.begun.wait()
            with contextlib.suppress(StepFailed):
                journal.fail(OSError("the store is full"))
            call.cancel()
        return await call

    with pytest.raises(asyncio.CancelledError):
        attempt(work)
    assert recorder.recorded == {}
    assert attempt(work) == "slow"


def test_nothing_of_what_was_given_up_is_kept_in_memory(attempt: Any) -> None:
    """Its error leads to the frames that it went through, and to all that was in them."""
    kept = list[Any]()

    class Large:
        pass

    @durable
    async def slow(number: int) -> None:
        large = Large()
        kept.append(weakref.ref(large))
        await asyncio.sleep(60)

    async def work(journal: Journal) -> list[Any]:
        for number in range(3):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(slow(number), 0.01)
        gc.collect()
        return [one() for one in kept]

    assert attempt(work)[:2] == [None] * 2  # Python 3.12 and later keep the last one for a while


def test_no_other_record_is_taken_for_a_give_up() -> None:
    """Those of the files that a step wrote until it was given up, and those of a kickoff inside of the task."""
    gave_up = GiveUp("", 1.0).text()
    found = given_up({
        "outer#1/look(00)#1 gave up": gave_up,
        "=files outer#1/look(00)#1 gave up": "[1, {}]",
        "=files get https://a/b(00)#1 gave up": "[1, {}]",
        "kickoff#1/look(00)#1 gave up": gave_up,
        "kickoff#1/=files look(00)#1 gave up": "[1, {}]",
        "kickoff#1/=ended by look(00)#1 gave up": '["look(00)#1 gave up"]',
        "an agent gave up#1": '"a step of the author\'s"',
    })  # fmt: skip
    assert list(found) == ["outer#1/look(00)#1", "kickoff#1/look(00)#1"]


def test_the_latest_give_up_counts_and_what_a_newer_worker_adds_to_it_does_not() -> None:
    names = [f"look#1 gave up{number}" for number in range(2, 12)]
    found = given_up({name: json.dumps({"at": at, "added": 1}) for at, name in enumerate(["look#1 gave up", *names])})
    assert found == {"look#1": GiveUp(names[-1], 10.0)}
