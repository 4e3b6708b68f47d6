"""Durable steps side by side: each is done once, in any order; so many at once; stored in groups."""

import asyncio
import threading
from typing import Any

import pytest

from runner.core.errors import ClaimLost, Interrupted
from runner.core.ledger import STEP
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.step_map import StepMap
from runner.testing import eventually


class Store:
    """Keeps what a store would: the records, how many are under way, and how many came at once."""

    can_wait = True

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}
        self.open, self.most, self.groups, self.replayed = 0, 0, list[int](), 0
        self.lost = False

    def record_steps(self, done: Any, *, dropped: int = 0, begins: Any = (), replayed: Any) -> None:
        if self.lost:
            raise ClaimLost("the claim is lost")
        self.open += len(begins) - dropped - sum(one.entry is not None for one in done)
        self.most = max(self.most, self.open)
        self.recorded.update({one.step: one.value for one in done})
        self.groups.append(len(done))
        self.replayed += replayed.total()

    def begin_step(self, entry: Any = STEP, **about: Any) -> None:
        self.open += 1

    def record_step(self, step: str, value: str, *, entry: Any = STEP, replayed: Any, **about: Any) -> None:
        self.open -= 1
        self.recorded[step] = value

    def drop_step(self, entry: Any = STEP, **about: Any) -> None:
        self.open -= 1


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture(params=["threads", "coroutines"])
def mapped(request: pytest.FixtureRequest, store: Store) -> Any:
    """Maps as `ctx.map` does, or as `ctx.amap`."""

    def do(fn: Any, items: Any, *, at_once: int = 4, scope: CancelScope | None = None, **how: Any) -> Any:
        async def afn(item: Any) -> Any:
            await asyncio.sleep(0)
            return fn(item)

        journal = Journal(store.recorded, store, scope or CancelScope())
        awaited = request.param == "coroutines"
        steps = StepMap(journal, "fn", afn if awaited else fn, items, at_once=at_once, **how)
        return asyncio.run(steps.arun()) if awaited else steps.run()

    return do


def test_results_are_in_the_order_of_the_items(mapped: Any, store: Store) -> None:
    assert mapped(lambda i: i * 2, range(100)) == [2 * i for i in range(100)]
    assert (len(store.recorded), store.open, store.most <= 4) == (100, 0, True)


def test_what_is_recorded_is_served_and_not_done_again(mapped: Any, store: Store) -> None:
    done = list[int]()
    mapped(lambda i: done.append(i) or i, range(10))
    assert mapped(lambda i: done.append(i) or i, range(20)) == list(range(20))
    assert sorted(done) == list(range(20))
    assert store.replayed == 10


def test_equal_items_are_steps_of_their_own(mapped: Any, store: Store) -> None:
    assert mapped(len, ["x", "x", "x"]) == [1, 1, 1]
    assert len(store.recorded) == 3


def test_items_are_taken_as_there_is_room(mapped: Any, store: Store) -> None:
    taken = 0

    def items() -> Any:
        nonlocal taken
        for i in range(50):
            taken += 1
            assert taken - len(store.recorded) <= 4 + 4  # what is under way, and what ended since the last write
            yield i

    assert mapped(str, items()) == [str(i) for i in range(50)]


def test_items_that_raise_lose_nothing_that_was_done(mapped: Any, store: Store) -> None:
    def pages() -> Any:
        yield from range(4)
        raise OSError("page 2 cannot be had")

    with pytest.raises(OSError, match="page 2"):
        mapped(str, pages())
    assert (len(store.recorded), store.open) == (4, 0)


def bad(i: int) -> int:
    if i % 3 == 2:
        raise ValueError(f"{i} is bad")
    return i


def test_the_first_error_ends_it_when_what_is_under_way_is_recorded(mapped: Any, store: Store) -> None:
    with pytest.raises(ValueError, match="2 is bad"):
        mapped(bad, range(1000))
    assert store.open == 0
    assert 2 <= len(store.recorded) < 20


def test_all_are_done_before_errors_are_raised(mapped: Any, store: Store) -> None:
    with pytest.raises(ExceptionGroup, match="3 of 9 steps raised") as told:
        mapped(bad, range(9), on_error="all")
    assert [str(one) for one in told.value.exceptions] == ["2 is bad", "5 is bad", "8 is bad"]
    assert (len(store.recorded), store.open) == (6, 0)


def test_errors_are_collected_in_their_places(mapped: Any, store: Store) -> None:
    found = mapped(bad, range(4), on_error="collect")
    assert [str(one) for one in found] == ["0", "1", "2 is bad", "3"]
    assert store.open == 0


def test_what_is_no_json_is_an_error(mapped: Any, store: Store) -> None:
    with pytest.raises(TypeError, match="not JSON"):
        mapped(lambda i: object(), range(2))


def test_an_exit_is_collected_by_nobody(mapped: Any) -> None:
    def leave(i: int) -> None:
        raise SystemExit(i)

    with pytest.raises(SystemExit):
        mapped(leave, [3], on_error="collect")


def test_a_drain_lets_end_what_is_under_way(mapped: Any, store: Store) -> None:
    scope = CancelScope()

    def do(i: int) -> int:
        if i == 2:
            scope.ask(Interrupted("the worker is draining"))
        return i

    with pytest.raises(Interrupted):
        mapped(do, range(1000), scope=scope)
    assert store.open == 0
    assert 3 <= len(store.recorded) < 20


def test_a_lost_claim_ends_it_at_once(store: Store) -> None:
    """Also while all that is under way is in a call; nothing of that is recorded."""
    scope, at_work, go = CancelScope(), threading.Barrier(5), threading.Event()

    def do(i: int) -> int:
        at_work.wait(10)
        go.wait(10)
        return i

    def lose() -> None:
        at_work.wait(10)
        store.lost = True
        scope.ask(ClaimLost("the claim is lost"))

    losing = threading.Thread(target=lose)
    losing.start()
    journal = Journal(store.recorded, store, scope)
    with pytest.raises(ClaimLost):
        StepMap(journal, "do", do, range(100), at_once=4).run()
    losing.join(10)
    go.set()
    assert (store.recorded, store.open) == ({}, 4)


def test_what_ends_while_others_are_stored_is_stored_together(store: Store) -> None:
    first_is_stored, record = threading.Event(), store.record_steps

    def do(i: int) -> int:
        first_is_stored.wait(10) if i else None
        return i

    def recording(done: Any, **how: Any) -> None:
        if any(one.value == "0" for one in done):
            first_is_stored.set()
            eventually(lambda: len(steps._done) == 8, why="all others have ended")
        record(done, **how)

    store.record_steps = recording
    steps = StepMap(Journal({}, store, CancelScope()), "do", do, range(9), at_once=9)
    steps.run()
    assert store.groups == [0, 1, 8]


def test_steps_inside_of_one_are_its_own(mapped: Any, store: Store) -> None:
    scope = CancelScope()

    def run() -> list[int]:
        journal = Journal(store.recorded, store, scope)

        def do(i: int) -> int:
            return int(journal.step("inner", lambda n: n + 1, (i,), {}))

        return StepMap(journal, "do", do, range(6), at_once=3).run()

    assert run() == run() == [1, 2, 3, 4, 5, 6]
    assert (len(store.recorded), store.open) == (12, 0)
