"""Wherever a stop strikes, what a call gave is recorded; what it breaks into, or comes before, is not."""

import asyncio
import operator
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from runner.core import fault_points
from runner.core.errors import ClaimLost, Interrupted, Stop, TaskTimeout, TimedOut
from runner.core.ledger import STEP
from runner.engine.local import StateCancelScope
from runner.journal import blocking_calls, step_map
from runner.journal.cancellation import async_raise, calls_in_flight, timing
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.map_threads import MapThreads
from runner.journal.recorder import OneByOne
from runner.journal.step_map import StepMap
from runner.testing import eventually


class Store(OneByOne):
    """What of a task's steps is recorded, and under way. ``at_record`` is called in each record."""

    can_wait = True

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}
        self.open = 0
        self.at_record: Callable[[], object] = bool

    def begin_step(self, *_: Any, **__: Any) -> None:
        self.open += 1

    def mark_sent(self, _: Any) -> None: ...

    def record_step(self, step: str, value: str, *, entry: Any = STEP, **_: Any) -> None:
        self.at_record()
        self.recorded[step] = value
        self.open -= entry is not None

    def drop_step(self, *_: Any, **__: Any) -> None:
        self.open -= 1

    def place(self, step: str) -> str:
        return step


class Struck:
    """A task in a thread, and what strikes it."""

    def __init__(self) -> None:
        self.store, self.scope = Store(), CancelScope()
        self.journal = Journal({}, self.store, self.scope)
        self.stop: Stop = TimedOut("too long")
        self.began = threading.Event()
        self.raised: BaseException | None = None
        self.section: InterruptibleSection | None = None
        self.thread: threading.Thread | None = None

    def perform(self, do: Callable[[], object]) -> None:
        """Have it done in a thread of its own, in which it can be struck."""

        def run() -> None:
            scope = self.scope
            section = InterruptibleSection(lambda: scope.interruptible(force=True), scope)
            self.section = section
            try:
                do()
            except BaseException as error:
                self.raised = error
            finally:
                try:
                    section.over()
                except TimedOut:
                    section.over()

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def strike(self, tries: int = 1) -> bool:
        """Ask it to stop, and try so often to break in. Returns whether that was done."""
        self.scope.ask(self.stop)
        for _ in range(tries):
            if self.section is not None and self.section.break_in(type(self.stop)):
                return True
            time.sleep(0.002)
        return False

    def strike_in_its_call(self) -> None:
        """Strike it in a step, as soon as it can be broken into, and wait for its end."""
        eventually(lambda: self.journal.doing.frames, why="it is in a step")
        assert self.strike(tries=1000)
        self.end()

    def wait_until_blocked(self) -> None:
        """Wait until its thread uses no time any more, in a step."""
        used = list[float]()

        def is_blocked() -> bool:
            assert self.thread is not None
            used.append(calls_in_flight._time_used(self.thread.ident or 0))
            return bool(self.journal.doing.frames) and used[-5:] == used[-1:] * 5

        eventually(is_blocked, why="its thread uses no time any more")

    def end(self) -> None:
        assert self.thread is not None
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def struck(monkeypatch: pytest.MonkeyPatch) -> Struck:
    monkeypatch.setattr(calls_in_flight, "RETURNING", 0.0)  # so that only what is ruled out is left
    return Struck()


def strike_at(struck: Struck, monkeypatch: pytest.MonkeyPatch, point: str) -> list[bool]:
    """At this point another thread tries for long enough, while this one goes on in Python."""
    hits = list[bool]()

    def reached(here: str) -> None:
        if here == point and not hits:
            other = threading.Thread(target=lambda: hits.append(struck.strike(tries=40)))
            other.start()
            while not hits:
                pass
            other.join()

    monkeypatch.setattr(fault_points, "reached", reached)
    return hits


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("point", ["step done, not recorded", "step recorded, task not ended", "in the record"])
def test_none_strikes_between_a_call_and_its_record(
    point: str, asynchronous: bool, struck: Struck, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = strike_at(struck, monkeypatch, point)
    if point == "in the record":
        struck.store.at_record = lambda: fault_points.reached(point)

    async def call() -> str:
        await asyncio.sleep(0)
        return "paid"

    def do() -> None:
        if asynchronous:
            asyncio.run(struck.journal.step("call", call, (), {}))
        else:
            struck.journal.step("call", lambda: "paid", (), {})

    struck.perform(do)
    struck.end()
    assert hits == [False]
    assert isinstance(struck.raised, TimedOut)
    assert (list(struck.store.recorded.values()), struck.store.open) == (['"paid"'], 0)


def test_what_strikes_before_the_call_is_made_leaves_it_in_doubt(
    struck: Struck, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = strike_at(struck, monkeypatch, "step begun, not done")
    made: list[None] = []
    struck.perform(lambda: struck.journal.step("call", lambda: made.append(None), (), {}))
    struck.end()
    assert (hits, made, struck.store.recorded, struck.store.open) == ([True], [], {}, 1)
    assert isinstance(struck.raised, TimedOut)


def test_what_was_raised_in_a_call_that_blocks_comes_after_its_result(struck: Struck) -> None:
    """However that came to be: nothing is between the return of a call and that it is kept."""
    answers, begun = queue.SimpleQueue[str](), threading.Lock()
    begun.acquire()
    call = partial(list, map(operator.call, [begun.release, answers.get]))  # without an instruction of Python's
    struck.perform(lambda: struck.journal.step("call", call, (), {}))
    assert begun.acquire(timeout=60)
    struck.scope.ask(struck.stop)
    assert struck.thread is not None
    async_raise._raise_in(struck.thread.ident or 0, TimedOut)
    async_raise._spend_elsewhere()
    answers.put("paid")
    struck.end()
    assert (list(struck.store.recorded.values()), struck.store.open) == (['[null, "paid"]'], 0)
    assert isinstance(struck.raised, TimedOut)


@pytest.mark.parametrize("stop", [TimedOut("too long"), Interrupted("the worker is draining")])
def test_a_call_that_blocks_is_left_alone_until_it_returns(stop: Stop, struck: Struck) -> None:
    struck.stop = stop
    answers = queue.SimpleQueue[str]()

    def call() -> str:
        return answers.get()

    struck.perform(lambda: struck.journal.step("call", call, (), {}))
    struck.wait_until_blocked()
    assert not struck.strike(tries=50)
    answers.put("paid")
    struck.end()
    assert list(struck.store.recorded.values()) == ['"paid"']
    assert struck.raised is stop


def test_a_call_whose_claim_is_lost_is_broken_into(struck: Struck) -> None:
    """Nothing of it may be recorded."""
    struck.stop = ClaimLost("gone")
    go_on = threading.Event()

    def call() -> None:
        while not go_on.wait(0.01):
            pass

    struck.perform(lambda: struck.journal.step("call", call, (), {}))
    struck.strike_in_its_call()
    assert (struck.store.recorded, struck.store.open) == ({}, 1)
    assert isinstance(struck.raised, ClaimLost)


def test_a_call_that_goes_on_and_on_is_broken_into(struck: Struck) -> None:
    def call() -> None:
        while True:
            time.sleep(0.001)

    struck.perform(lambda: struck.journal.step("call", call, (), {}))
    struck.strike_in_its_call()
    assert (struck.store.recorded, struck.store.open) == ({}, 1)


def test_a_call_that_computes_is_broken_into_soon(struck: Struck, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has taken what was given to it, if anything was: nobody needs so much of the processor for that."""
    monkeypatch.setattr(calls_in_flight, "RETURNING", 3600.0)

    def call() -> None:
        ends = time.monotonic() + 20
        while time.monotonic() < ends:
            pass

    struck.perform(lambda: struck.journal.step("call", call, (), {}))
    struck.strike_in_its_call()
    assert (struck.store.recorded, struck.store.open) == ({}, 1)


@pytest.mark.parametrize("stop", [TimedOut("too long"), Interrupted("its time is up")])
def test_what_the_threads_of_a_map_get_after_its_stop_is_recorded(
    stop: Stop, struck: Struck, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck.stop = stop
    monkeypatch.setattr(step_map, "RETURNING", 60.0)
    asked, answers = list[int](), queue.SimpleQueue[str]()

    def item(n: int) -> str:
        asked.append(n)
        return answers.get()

    struck.perform(StepMap(struck.journal, "item", item, range(3), at_once=2).run)
    eventually(lambda: len(asked) == 2, why="two are out")
    struck.strike(tries=20)  # which is done, or it finds by itself that it is to stop
    for _ in range(2):
        answers.put("paid")
    struck.end()
    assert (list(struck.store.recorded.values()), struck.store.open, len(asked)) == (['"paid"'] * 2, 0, 2)
    assert isinstance(struck.raised, type(stop))


def test_a_map_that_is_stopped_leaves_its_items_the_lock_of_the_state(
    struck: Struck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a kickoff in this process: they record what they are answered while the map waits for them."""
    monkeypatch.setattr(step_map, "RETURNING", 3600.0)
    struck.scope = StateCancelScope(threading.RLock())
    struck.journal = Journal({}, struck.store, struck.scope)
    asked, answers = list[int](), queue.SimpleQueue[str]()

    def item(n: int) -> Any:
        asked.append(n)
        return struck.journal.step("inner", answers.get, (), {})

    struck.perform(StepMap(struck.journal, "item", item, range(2), at_once=2).run)
    eventually(lambda: len(asked) == len(struck.journal.doing.frames) / 2 == 2, why="two are out")
    struck.scope.ask(struck.stop)  # which it finds by itself
    eventually(lambda: struck.scope.is_recording, why="the map waits for them")
    for _ in range(2):
        answers.put("paid")
    struck.end()
    assert list(struck.store.recorded.values()) == ['"paid"'] * 2
    assert isinstance(struck.raised, TimedOut)


def test_a_step_that_a_thread_takes_as_its_map_is_stopped_is_not_one_that_never_began(struck: Struck) -> None:
    threads = MapThreads(lambda *_: None, 1, struck.scope)

    class Taken(deque[Any]):
        def __len__(self) -> int:  # a thread is as quick
            found = super().__len__()
            self.popleft()
            return found

        def popleft(self) -> Any:
            if super().__len__() > 2:
                super().popleft()
            return super().popleft()

    threads._begun = Taken("abc")
    assert threads.begin_no_more() == 2


def test_a_map_that_is_stopped_with_calls_that_do_not_return_says_so(
    struck: Struck, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(step_map, "RETURNING", 0.0)
    gone, stuck = threading.Event(), threading.Event()

    def item(_: int) -> None:
        gone.set()
        stuck.wait(60)

    struck.perform(StepMap(struck.journal, "item", item, [0], at_once=1).run)
    assert gone.wait(60)
    assert struck.strike(tries=1000)
    struck.end()
    stuck.set()
    assert (struck.store.recorded, struck.store.open) == ({}, 1)
    assert [one.getMessage() for one in caplog.records] == ["item is stopped with 1 calls out, which are in doubt"]


@pytest.mark.parametrize("stop", [TimedOut("too long"), Interrupted("its time is up")])
def test_a_map_that_is_stopped_records_what_its_items_gave(stop: Stop, struck: Struck) -> None:
    struck.stop = stop
    stuck, gone = threading.Event(), threading.Event()

    def item(n: int) -> int:
        if n == 3:
            gone.set()
            stuck.wait(60)
        return n

    struck.perform(StepMap(struck.journal, "item", item, range(4), at_once=4).run)
    assert gone.wait(60)
    assert struck.strike(tries=1000)
    struck.end()
    stuck.set()
    assert sorted(struck.store.recorded.values()) == ["0", "1", "2"]
    assert (struck.store.open, struck.raised.__class__) == (1, type(stop))


def test_an_answer_that_comes_as_the_wait_for_it_is_stopped_is_returned(
    struck: Struck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_calls, "in_threads", True)
    out, found, threads = threading.Event(), list[str](), list[threading.Thread]()

    class Asking(CancelScope):
        def check_in_call(self) -> None:  # it is stopped here, and the answer comes meanwhile
            assert out.wait(60)
            threads[0].join(60)
            super().check_in_call()

    struck.scope = scope = Asking()

    def call() -> str:
        threads.append(threading.current_thread())
        out.set()
        return "paid"

    def do() -> None:
        with scope.call:
            scope.ask(struck.stop)
            found.append(blocking_calls.run(call, scope))
        scope.check()

    struck.perform(do)
    struck.end()
    assert found == ["paid"]
    assert isinstance(struck.raised, TimedOut)


def test_the_end_of_a_task_waits_for_what_its_threads_record(struck: Struck, monkeypatch: pytest.MonkeyPatch) -> None:
    held, may = threading.Event(), threading.Event()

    def reached(point: str) -> None:
        if point == "step done, not recorded":
            held.set()
            assert may.wait(60)

    monkeypatch.setattr(fault_points, "reached", reached)
    left = threading.Thread(target=lambda: struck.journal.step("call", lambda: "paid", (), {}))
    left.start()
    assert held.wait(60)
    threading.Timer(0.05, may.set).start()
    struck.journal.close()
    left.join(60)
    assert list(struck.store.recorded.values()) == ['"paid"']


def test_a_coroutine_that_blocks_its_loop_until_after_its_timeout_has_failed() -> None:
    async def task() -> None:
        scope = CancelScope()
        scope.of_coroutine = True
        with timing.timed(scope, 0.01):
            time.sleep(0.05)  # beyond its timeout

    with pytest.raises(TaskTimeout, match=r"longer than its timeout of 0\.01 s"):
        asyncio.run(task())
