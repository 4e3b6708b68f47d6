"""Many tasks in one thread: each waits as in a thread of its own, and only where it waits others run."""

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

from runner.core import waiting
from runner.core.clock import SYSTEM
from runner.core.errors import Interrupted, TimedOut
from runner.journal.cancellation.cancel_scope import CancelScope, Wakeup

switching = pytest.importorskip("runner.tasks.switching")
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
    blocking = switching.SwitchingTask._blocking

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

    monkeypatch.setattr(switching.SwitchingTask, "_blocking", late)
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
    assert tasks.loop._threads == 2


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
    assert "kept all others of this thread waiting" in caplog.text


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
