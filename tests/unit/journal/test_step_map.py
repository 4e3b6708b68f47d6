"""Durable steps side by side: each is done once, in any order; so many at once; stored in groups."""

import asyncio
import threading
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from runner.core.errors import ClaimLost, Interrupted
from runner.core.ledger import STEP
from runner.journal import step_map
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
        self.post_steps: Any = None
        self._posted: Callable[[], None] | None = None
        self.waited: Callable[[], object] = bool  # called before an acknowledgement

    def record_steps(self, done: Any, *, dropped: int = 0, begins: Any = (), replayed: Any) -> None:
        self._settle()
        if self.lost:
            raise ClaimLost("the claim is lost")
        self.open += len(begins) - dropped - sum(one.entry is not None for one in done)
        self.most = max(self.most, self.open)
        self.recorded.update({one.step: one.value for one in done})
        self.groups.append(len(done))
        self.replayed += replayed.total()

    def post(self, done: Any, **how: Any) -> Callable[[], None]:
        """What ``post_steps`` is of a store that need not be waited for at once."""
        self._settle()
        self._posted = posted = partial(self.record_steps, done, **how)

        def settle() -> None:
            self.waited()
            if self._posted is posted:
                self._settle()

        return settle

    def _settle(self) -> None:
        posted, self._posted = self._posted, None
        if posted is not None:
            posted()

    def begin_step(self, entry: Any = STEP, **about: Any) -> None:
        self._settle()
        self.open += 1

    def record_step(self, step: str, value: str, *, entry: Any = STEP, replayed: Any, **about: Any) -> None:
        self._settle()
        self.open -= 1
        self.recorded[step] = value

    def drop_step(self, entry: Any = STEP, **about: Any) -> None:
        self.open -= 1


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture(params=["threads", "threads, acknowledged later", "coroutines"])
def mapped(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Maps as `ctx.map` does, or as `ctx.amap`."""
    if "later" in request.param:
        store.post_steps = store.post
        monkeypatch.setattr(step_map, "FEW", 1)

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
    with pytest.raises(ExceptionGroup, match="3 of 9 items raised") as told:
        mapped(bad, range(9), on_error="all")
    assert [str(one) for one in told.value.exceptions] == ["2 is bad", "5 is bad", "8 is bad"]
    named = "item 2: ValueError: 2 is bad; item 5: ValueError: 5 is bad; item 8: ValueError: 8 is bad"
    assert told.value.message.endswith(f": {named}")
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


def test_the_results_of_a_long_map_are_in_memory_once(mapped: Any, store: Store) -> None:
    many, size = 64, 2**16

    class Forgets(dict[str, str]):
        def update(self, *records: Any, **more: Any) -> None:
            """Records are with the store, and not in this process."""

    store.recorded = Forgets()
    tracemalloc.start()
    try:
        results = mapped(lambda i: "x" * size, range(many))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(results) == many
    assert most < 1.5 * many * size


def test_steps_inside_of_one_are_its_own(mapped: Any, store: Store) -> None:
    scope = CancelScope()

    def run() -> list[int]:
        journal = Journal(store.recorded, store, scope)

        def do(i: int) -> int:
            return int(journal.step("inner", lambda n: n + 1, (i,), {}))

        return StepMap(journal, "do", do, range(6), at_once=3).run()

    assert run() == run() == [1, 2, 3, 4, 5, 6]
    assert (len(store.recorded), store.open) == (12, 0)


class Quick:
    """Maps 320 items, 32 at once, at a store that need not be waited for at once. What is begun is over before the map
    looks, and before the store acknowledges anything.

    ``meanwhile``: how many were over when each acknowledgement came.
    """

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store, self._begun, self._taken = store, 0, 0
        self.meanwhile = list[int]()
        self.scope = CancelScope()
        store.post_steps, store.waited = store.post, self._waited
        begin, take = step_map.MapThreads.begin, StepMap._take_done

        def counted(threads: Any, begun: Any) -> None:
            self._begun += len(begun)
            begin(threads, begun)

        def all_taken(one: StepMap) -> Any:
            self._all_are_over()
            found = take(one)
            self._taken += len(found)
            return found

        monkeypatch.setattr(step_map, "SOON", 30)
        monkeypatch.setattr(step_map.MapThreads, "begin", counted)
        monkeypatch.setattr(StepMap, "_take_done", all_taken)

    def do(self, fn: Callable[[int], Any], at_once: int = 32) -> Any:
        journal = Journal(self._store.recorded, self._store, self.scope)
        self._map = StepMap(journal, "fn", fn, range(320), at_once=at_once)
        return self._map.run()

    def _all_are_over(self) -> None:
        eventually(lambda: len(self._map._done) == self._begun - self._taken, why="all that began are over")

    def _waited(self) -> None:
        self._all_are_over()
        self.meanwhile.append(len(self._map._done))


@pytest.fixture
def quick(store: Store, monkeypatch: pytest.MonkeyPatch) -> Quick:
    return Quick(store, monkeypatch)


def test_half_of_quick_steps_are_made_while_the_store_has_the_others(quick: Quick, store: Store) -> None:
    assert quick.do(lambda i: i) == list(range(320))
    # None while the first are noted, none while all of these are recorded; then 16 each time, until none are left
    assert quick.meanwhile == [0, 0, *[16] * 17, 0]
    assert (store.open, store.most, store.groups) == (0, 32, [0, 32, *[16] * 18])


def test_those_that_are_held_back_begin_where_the_others_take_their_time(store: Store) -> None:
    store.post_steps = store.post
    all_at_once = threading.Barrier(32)

    def do(i: int) -> None:
        if i >= 32:
            all_at_once.wait(30)

    StepMap(Journal(store.recorded, store, CancelScope()), "do", do, range(320), at_once=32).run()
    assert store.open == 0


@pytest.mark.parametrize("stop", ["an error", "a drain"])
def test_none_that_is_held_back_begins_after(stop: str, quick: Quick, store: Store) -> None:
    def do(i: int) -> None:
        if i == 70 and stop == "an error":
            raise ValueError("the 70th")
        if i == 70:
            quick.scope.ask(Interrupted("the worker is draining"))

    with pytest.raises(ValueError if stop == "an error" else Interrupted):
        quick.do(do)
    # Of 0 to 31 all are recorded at once, then 32 to 47, 48 to 63 and 64 to 79; 80 to 95 are held back by then
    assert (store.open, len(store.recorded)) == (0, 79 if stop == "an error" else 80)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_where_no_more_threads_can_be_started_those_that_are_there_do_all(
    threads: int, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left, start = iter(range(threads)), threading.Thread.start

    def start_some(thread: threading.Thread) -> None:
        if thread.name.startswith("runner-map-") and next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    scope, at_once = CancelScope(), threading.Barrier(threads or 1)

    def do(i: int) -> int:
        if i < threads:  # the others come only if one of these begins
            at_once.wait(30)
        return i

    mapped = StepMap(Journal(store.recorded, store, scope), "do", do, range(40), at_once=8)
    if threads == 0:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            mapped.run()
        return
    assert mapped.run() == list(range(40))
    assert caplog.messages == [f"{threads} steps of this map are made at once, not more: can't start new thread"]
