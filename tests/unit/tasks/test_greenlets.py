"""Many tasks in one thread: each waits as in a thread of its own, and only where it waits others run."""

import asyncio
import contextlib
import contextvars
import threading
import time
from typing import Any

import pytest

from runner.agents.concurrently import run_concurrently
from runner.core import waiting
from runner.core.clock import SYSTEM
from runner.core.errors import Interrupted, TimedOut
from runner.journal.cancellation.cancel_scope import CancelScope, Wakeup

greenlets = pytest.importorskip("runner.tasks.greenlets")
task_loop = pytest.importorskip("runner.tasks.task_loop")

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")


def waiter() -> waiting.Waiter:
    found = waiting.here()
    assert found is not None
    return found


def test_tasks_that_wait_share_a_thread_and_no_context(tasks: Any) -> None:
    together = 20
    came: list[str] = []

    async def answer() -> str:
        came.append(NAME.get())
        if len(came) == together:
            everyone.set()
        await everyone.wait()
        return NAME.get()

    def task(name: str) -> tuple[str, str, int]:
        NAME.set(name)
        found = waiter().awaited(answer())
        return found, NAME.get(), threading.get_ident()

    everyone = asyncio.Event()
    for n in range(together):
        tasks.begin(lambda n=n: task(f"t{n}"))
    results = tasks.results()
    assert sorted(found for found, _, _ in results) == sorted(f"t{n}" for n in range(together))
    assert all(found == own for found, own, _ in results)
    assert {ident for _, _, ident in results} == {tasks.loop._thread.ident}


def test_a_clock_stops_no_other_task(tasks: Any) -> None:
    slept, came = threading.Event(), []

    def sleeper() -> None:
        while not slept.is_set():
            SYSTEM.sleep(0.01)
        came.append("slept")

    def other() -> None:
        came.append("other")
        slept.set()

    tasks.begin(sleeper)
    tasks.begin(other)
    tasks.results()
    assert came == ["other", "slept"]


@pytest.mark.parametrize("at", ["before it is begun", "when it is over"])
def test_a_stop_beside_the_thread_of_a_task_is_not_lost_and_leaves_nothing_behind(
    at: str, tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a task whose thread is started and has not begun, or whose work there is done, and not yet heard of
    held, broken, done = threading.Event(), threading.Event(), []
    sections: list[waiting.Section] = []
    blocking = greenlets.SwitchingTask._blocking

    def late(self: Any, *about: Any) -> None:
        if at == "when it is over":
            blocking(self, *about[:3], Later(about[3]))
            return
        held.set()
        assert broken.wait(10)
        blocking(self, *about)

    class Later:
        def __init__(self, alarm: Any) -> None:
            self.alarm = alarm

        def set(self) -> None:
            held.set()
            assert broken.wait(10)
            self.alarm.set()

    def work() -> None:
        done.append("begun")
        end = time.monotonic() + (10 if at == "before it is begun" else 0)
        while time.monotonic() < end:
            time.sleep(0.001)
        done.append("ended")

    def task() -> None:
        sections.append(waiter().section(lambda: True))
        waiter().in_thread(work)
        waiter().alarm().wait(10)
        done.append("went on")

    monkeypatch.setattr(greenlets.SwitchingTask, "_blocking", late)
    tasks.begin(task)
    assert held.wait(10)
    # When it is stopped then
    assert sections[0].break_in(TimedOut)
    tasks.turned()
    assert not tasks.ended, "it waits for its thread"
    broken.set()
    # Then it stops, and nothing of it goes on
    (error,) = tasks.results()
    assert isinstance(error, TimedOut)
    assert done == (["begun"] if at == "before it is begun" else ["begun", "ended"])


def test_outside_of_a_task_nothing_is_different(tasks: Any) -> None:
    assert waiting.here() is None
    assert waiting.in_thread(threading.get_ident) == threading.get_ident()
    assert not waiting.is_shared_loop()


def test_a_stop_ends_a_wait_and_what_was_awaited_has_ended(tasks: Any) -> None:
    begun, told = threading.Event(), []
    sections: list[waiting.Section] = []

    async def call() -> None:
        try:
            begun.set()
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            told.append("closed")
            raise

    def task() -> None:
        sections.append(waiter().section(lambda: True))
        try:
            waiter().awaited(call())
        finally:
            told.append("stopped")

    tasks.begin(task)
    assert begun.wait(10)
    assert sections[0].break_in(TimedOut)
    (error,) = tasks.results()
    assert isinstance(error, TimedOut)
    assert told == ["closed", "stopped"]


def test_a_stop_comes_only_where_it_may(tasks: Any) -> None:
    begun, may = threading.Event(), threading.Event()
    sections: list[waiting.Section] = []
    alarms: list[waiting.Alarm] = []

    def task() -> str:
        sections.append(waiter().section(may.is_set))
        alarms.append(waiter().alarm())
        begun.set()
        alarms[0].wait(None)
        sections[0].over()
        may.set()
        sections[0].break_in(Interrupted)
        waiting.sleep(0.001)
        return "over"

    tasks.begin(task)
    assert begun.wait(10)
    sections[0].break_in(Interrupted)
    alarms[0].set()
    assert tasks.results() == ["over"]


def test_a_task_sleeps_until_a_stop_wakes_it(tasks: Any) -> None:
    scope, begun = CancelScope(), threading.Event()

    def task() -> None:
        begun.set()
        scope.sleep(600)

    tasks.begin(task)
    assert begun.wait(10)
    scope.ask(Interrupted("enough"))
    (error,) = tasks.results()
    assert isinstance(error, Interrupted)


def test_an_alarm_counts_once_for_each_wait(tasks: Any) -> None:
    def task() -> list[bool]:
        found = []
        with Wakeup() as alarm:
            alarm.wake()
            found.append(alarm.wait(600))
            threading.Timer(0.01, alarm.wake).start()
            found.append(alarm.wait(600))
            found.append(alarm.wait(0.001))
        return found

    tasks.begin(task)
    assert tasks.results() == [[True, True, False]]


def test_what_may_block_has_a_thread_and_the_task_its_context(tasks: Any) -> None:
    free = threading.Event()

    def blocks() -> int:
        assert free.wait(30)
        assert NAME.get() == "mine"
        NAME.set("set there")
        return threading.get_ident()

    def task() -> tuple[int, str]:
        NAME.set("mine")
        return waiter().in_thread(blocks), NAME.get()

    tasks.begin(task)
    tasks.begin(lambda: free.set() or ("not", "held up"))
    first, (ident, name) = tasks.results()
    assert first == ("not", "held up")
    assert (name, ident != tasks.loop._thread.ident) == ("set there", True)


def test_a_stop_breaks_into_the_thread_that_a_task_waits_for(tasks: Any) -> None:
    begun, sections = threading.Event(), []

    def runs() -> None:
        begun.set()
        end = time.monotonic() + 30
        while time.monotonic() < end:
            time.sleep(0.001)

    def task() -> None:
        sections.append(waiter().section(lambda: True))
        waiter().in_thread(runs)

    tasks.begin(task)
    assert begun.wait(10)
    while not sections[0].break_in(Interrupted):
        time.sleep(0.001)
    (error,) = tasks.results()
    assert isinstance(error, Interrupted)


def test_only_so_many_tasks_have_threads(tasks: Any) -> None:
    free, now, most = threading.Event(), [], []

    def blocks() -> None:
        now.append(1)
        most.append(len(now))
        assert free.wait(30)
        now.pop()

    def task() -> None:
        waiter().take_thread()
        try:
            waiter().in_thread(blocks)
        finally:
            waiter().give_thread()

    sections: list[waiting.Section] = []

    def stopped() -> None:
        sections.append(waiter().section(lambda: True))
        waiter().take_thread()

    tasks.begin(task)
    tasks.begin(task)
    tasks.begin(stopped)
    tasks.begin(task)
    tasks.begin(lambda: sections[0].break_in(Interrupted) and free.set())
    results = tasks.results()
    assert max(most) == 2
    assert sum(isinstance(one, Interrupted) for one in results) == 1
    assert len(most) == 3
    assert tasks.loop.for_tasks._free == 2


def test_only_so_many_uses_of_tools_have_threads_and_each_task_has_its_turn(tasks: Any) -> None:
    free, everyone, now, most, began = threading.Event(), threading.Event(), [], [], []

    def use(of: str) -> str:
        began.append(of)
        now.append(1)
        most.append(len(now))
        if len(began) == 2:
            everyone.set()
        assert free.wait(30)
        now.pop()
        return of

    def uses(of: str, many: int) -> list[str]:
        return run_concurrently([lambda: use(of)] * many)

    def stopped() -> None:
        sections.append(waiter().section(lambda: True))
        uses("stopped", 1)

    sections: list[waiting.Section] = []
    tasks.begin(lambda: uses("many", 6))
    tasks.begin(lambda: uses("one", 1))
    tasks.begin(stopped)
    assert everyone.wait(10)
    tasks.begin(lambda: sections[0].break_in(Interrupted) and free.set())
    results = tasks.results()
    assert max(most) == 2
    assert began[:2] == ["many"] * 2
    assert "one" in began[2:5]  # it does not wait for all that another task wants
    assert sum(isinstance(one, Interrupted) for one in results) == 1
    assert ["many"] * 6 in results
    tasks.turned()
    assert tasks.loop.for_tools._free == 2


def test_a_tool_that_hangs_when_its_task_is_stopped_keeps_no_other_from_its_thread(tasks: Any) -> None:
    sections: list[waiting.Section] = []
    hangs, both = threading.Event(), threading.Barrier(3)

    def stopped() -> None:
        def use() -> None:
            both.wait(10)
            hangs.wait(30)  # and hears of no stop meanwhile

        sections.append(waiter().section(lambda: True))
        with contextlib.suppress(Interrupted):
            run_concurrently([use] * 2)

    tasks.begin(stopped)
    both.wait(10)
    tasks.begin(lambda: sections[0].break_in(Interrupted))
    tasks.begin(lambda: run_concurrently([lambda: "used"]))
    try:
        assert ["used"] in tasks.results()
    finally:
        hangs.set()


def test_no_more_tasks_are_taken_than_threads_are_there_for(tasks: Any) -> None:
    free, ahead = threading.Event(), task_loop.AHEAD

    def task() -> None:
        waiter().take_thread()
        try:
            waiter().in_thread(lambda: free.wait(30))
        finally:
            waiter().give_thread()

    def begin(many: int) -> None:
        for _ in range(many):
            tasks.begin(task)
        all_begun = threading.Event()
        tasks.begin(all_begun.set)  # each has its turn
        assert all_begun.wait(10)

    begin(2 + ahead - 1)
    assert tasks.loop.takes_more
    begin(1)
    assert not tasks.loop.takes_more
    free.set()
    tasks.results()
    assert tasks.loop.takes_more


def test_who_begins_tasks_waits_for_those_that_have_not_begun(tasks: Any) -> None:
    busy, held, begun = threading.Event(), threading.Event(), []

    def holds() -> None:
        held.set()
        assert busy.wait(30)  # a task that keeps the thread

    tasks.begin(holds)
    assert held.wait(10)
    more = threading.Thread(
        target=lambda: [tasks.begin(lambda: begun.append(1)) for _ in range(task_loop.AHEAD + 5)], daemon=True
    )
    more.start()
    more.join(0.2)
    assert more.is_alive()
    busy.set()
    more.join(10)
    tasks.results()
    assert len(begun) == task_loop.AHEAD + 5


def test_what_several_need_is_done_once(tasks: Any) -> None:
    done: list[int] = []
    everyone = threading.Event()

    def make() -> str:
        assert everyone.wait(10)
        done.append(1)
        return "made"

    for _ in range(5):
        tasks.begin(lambda: waiter().once("key", make))
    tasks.begin(everyone.set)
    assert tasks.results().count("made") == len(done) == 1


def test_who_keeps_the_thread_for_long_is_told_of(
    tasks: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_loop, "LONG", -1.0)
    tasks.begin(lambda: None)
    tasks.results()
    assert "blocked all others on its thread" in caplog.text


def test_connections_do_not_wait_for_all_tasks_that_can_go_on(tasks: Any) -> None:
    # Given many tasks that can go on at the same time
    turns: list[str] = []

    def begin() -> None:
        for _ in range(10):
            tasks.loop.in_turn(lambda: turns.append("task"))
        tasks.loop.loop.call_soon(lambda: tasks.loop.loop.call_soon(lambda: turns.append("connection")))

    # Then what comes in on the loop is looked at between one and the next
    done = threading.Event()
    tasks.loop.call(begin)
    tasks.loop.call(lambda: tasks.loop.in_turn(done.set))
    assert done.wait(10)
    assert turns.index("connection") <= 3
    assert turns.count("task") == 10
