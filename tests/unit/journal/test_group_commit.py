"""What several threads or coroutines of a task write at about the same time goes in one write."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from runner.core.errors import ClaimLost
from runner.core.ledger import NO_TOKENS, STEP, AccountKey
from runner.journal import group_commit
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.recorder import BegunStep, DoneStep
from runner.journal.steps import Frame
from runner.testing import eventually

GPT = AccountKey("model", "A", "gpt")


class Store:
    """Keeps what is written, and how much at once: +1 begins, -1 is done. The first write waits to be let go."""

    can_wait = True

    def __init__(self) -> None:
        self.writes: list[tuple[int, int]] = []
        self.recorded: dict[str, str] = {}
        self.open, self.is_lost = 0, False
        self.is_out, self.let_go = threading.Event(), threading.Event()

    def _write(self, done: Sequence[DoneStep], begins: Sequence[BegunStep]) -> None:
        self.writes.append((len(begins), len(done)))
        self.is_out.set()
        assert self.let_go.wait(30)
        if self.is_lost:
            raise ClaimLost("the claim is lost")
        self.open += len(begins) - len(done)
        for one in done:
            assert one.step not in self.recorded, "each is recorded once"
            self.recorded[one.step] = one.value

    def begin_step(self, entry: Any = STEP, *, supersedes: Any = (), intent_only: bool = False) -> None:
        self._write((), [BegunStep(entry)])

    def begin_steps(self, begins: Sequence[BegunStep]) -> None:
        self._write((), begins)

    def record_step(self, step: str, value: str, *, replayed: Any, **about: Any) -> None:
        self._write([DoneStep(step, value)], ())

    def record_steps(self, done: Any, *, dropped: int = 0, begins: Any = (), replayed: Any) -> None:
        self._write(done, begins)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def journal(store: Store) -> Journal:
    return Journal({}, store, CancelScope())


def frame(journal: Journal, number: int) -> Frame:
    return Frame(journal, f"s#{number}", GPT, None)


def while_one_is_out(store: Store, journal: Journal, writes: Sequence[Callable[[], None]]) -> list[BaseException]:
    """Do them on threads, all while the first write is out. Returns what was raised."""
    raised: list[BaseException] = []

    def on_thread(write: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                write()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    threads = [on_thread(lambda: journal.enter(frame(journal, 99)))]
    assert store.is_out.wait(30)
    threads += map(on_thread, writes)
    eventually(lambda: len(journal._together._waiting) == len(writes), why="all of them wait")
    store.let_go.set()
    for thread in threads:
        thread.join(30)
    return raised


def test_what_comes_while_a_write_is_out_goes_with_the_next(store: Store, journal: Journal) -> None:
    begin = [lambda n=n: journal.enter(frame(journal, n)) for n in range(3)]
    keep = [lambda n=n: journal.keep_result(frame(journal, n), str(n)) for n in range(3, 8)]
    assert not while_one_is_out(store, journal, [*begin, *keep])
    assert store.writes == [(1, 0), (3, 5)]
    assert store.recorded == {f"s#{n}": str(n) for n in range(3, 8)}
    assert store.open == 1 + 3 - 5


def test_all_that_are_written_together_hear_that_the_claim_is_lost(store: Store, journal: Journal) -> None:
    store.is_lost = True
    keep = [lambda n=n: journal.keep_result(frame(journal, n), str(n)) for n in range(4)]
    raised = while_one_is_out(store, journal, keep)
    assert [type(one) for one in raised] == [ClaimLost] * 5
    assert (store.writes, store.recorded) == ([(1, 0), (0, 4)], {})


def test_a_writer_that_is_broken_into_leaves_what_it_gathered_to_the_next(
    store: Store, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own is among that: it was done, and paid for."""
    breaks = iter([True])

    def reached(point: str) -> None:
        if point == "steps gathered, not written" and next(breaks, False):
            raise KeyboardInterrupt

    monkeypatch.setattr(group_commit.fault_points, "reached", reached)
    keep = [lambda n=n: journal.keep_result(frame(journal, n), str(n)) for n in range(4)]
    raised = while_one_is_out(store, journal, keep)
    assert [type(one) for one in raised] == [KeyboardInterrupt]
    assert (store.writes, sorted(store.recorded)) == ([(1, 0), (0, 4)], [f"s#{n}" for n in range(4)])
    assert not journal._together._waiting


def test_what_is_too_much_for_one_write_goes_in_several(
    store: Store, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these could be stored, where all of them together could not."""
    monkeypatch.setattr(group_commit, "MOST", 200)
    keep = [lambda n=n: journal.keep_result(frame(journal, n), "x" * 100) for n in range(5)]
    assert not while_one_is_out(store, journal, keep)
    assert store.writes == [(1, 0), (0, 2), (0, 2), (0, 1)]
    assert len(store.recorded) == 5


def test_one_alone_is_written_as_ever(store: Store, journal: Journal) -> None:
    store.let_go.set()
    journal.enter(frame(journal, 1))
    journal.keep_result(frame(journal, 1), "1")
    assert (store.writes, store.open) == ([(1, 0), (0, 1)], 0)


def test_who_comes_after_the_end_of_the_task_writes_nothing(store: Store, journal: Journal) -> None:
    store.let_go.set()
    journal.close()
    journal._is_writing = True
    with pytest.raises(BaseException, match="the task is over"):
        journal.keep_result(frame(journal, 1), "1")
    assert store.writes == []


def test_a_call_of_who_was_left_behind_does_not_leave(
    store: Store, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was noted while the task went on. What it said would stand where the next task's process says what it sent."""
    said = list[AccountKey]()
    monkeypatch.setattr(store, "mark_sent", said.append, raising=False)
    store.let_go.set()
    journal.begin(GPT, intent_only=True)
    journal.close()
    with pytest.raises(BaseException, match="the task is over"):
        journal.mark_sent(GPT)
    assert said == []


async def call(journal: Journal, number: int, answers: asyncio.Event) -> None:
    one = frame(journal, number)
    journal.calls_out.add(one)
    try:
        await journal.enter_call(one)
        await answers.wait()
        await journal.keep_answer(one, str(number), NO_TOKENS, reported=False)
    finally:
        journal.calls_out.discard(one)


def test_coroutines_that_are_as_far_write_together(store: Store, journal: Journal) -> None:
    store.let_go.set()

    async def gather() -> None:
        answers = asyncio.Event()
        calls = [asyncio.create_task(call(journal, n, answers)) for n in range(8)]
        while store.open < 8:
            await asyncio.sleep(0)
        answers.set()
        await asyncio.gather(*calls)

    asyncio.run(gather())
    # The first may have gone alone: it knew of no other
    assert len(store.writes) <= 4
    assert store.recorded == {f"s#{n}": str(n) for n in range(8)}
    assert store.open == 0


def test_a_coroutine_that_is_cancelled_has_written(store: Store, journal: Journal) -> None:
    """Its call was answered, and paid for."""
    store.let_go.set()

    async def stopped() -> None:
        journal.calls_out |= {frame(journal, 1), frame(journal, 2)}
        task = asyncio.create_task(journal.keep_answer(frame(journal, 1), "1", NO_TOKENS, reported=False))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stopped())
    assert store.recorded == {"s#1": "1"}
