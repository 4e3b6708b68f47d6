"""Of many tasks that are handed over at a time, the first has gone as far as it can before the next one begins; and of
many that are stopped, the first has ended before the next one is told."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from runner.core import waiting
from runner.core.errors import Interrupted

task_loop = pytest.importorskip("runner.tasks.task_loop")


def waiter() -> waiting.Waiter:
    found = waiting.here()
    assert found is not None
    return found


def begin_at_a_time(tasks: Any, several: Iterable[Callable[[], Any]]) -> None:
    """Have all of them there before the first begins, as after a hand-over."""
    there = threading.Event()
    tasks.loop.call(there.wait, 10)
    for one in several:
        tasks.begin(one)
    there.set()


async def step() -> None:
    """Do something, and let others do something."""
    end = time.thread_time() + 10 * task_loop.BRIEF
    while time.thread_time() < end:
        pass
    await asyncio.sleep(0)


def test_a_task_that_goes_on_is_not_held_up_by_those_after_it(tasks: Any) -> None:
    said: list[tuple[int, int]] = []

    async def works(number: int) -> None:
        for at in range(6):
            said.append((number, at))
            await step()

    begin_at_a_time(tasks, [lambda number=number: waiter().awaited(works(number)) for number in range(8)])
    tasks.results()
    assert len(said) == 48
    assert said == sorted(said)


def test_one_that_waits_for_an_answer_holds_up_nobody(tasks: Any) -> None:
    begun: list[int] = []

    async def waits(number: int) -> None:
        begun.append(number)
        while len(begun) < 8:  # an answer that comes when all have asked
            await asyncio.sleep(0.001)

    begin_at_a_time(tasks, [lambda number=number: waiter().awaited(waits(number)) for number in range(8)])
    assert tasks.results() == [None] * 8


def test_one_that_never_stops_holds_up_others_for_so_many_looks_alone(tasks: Any) -> None:
    steps, others = 0, list[int]()

    async def works_on() -> None:
        nonlocal steps
        while not others:
            steps += 1
            await step()

    begin_at_a_time(tasks, [lambda: waiter().awaited(works_on()), lambda: others.append(1)])
    tasks.results()
    assert 1 <= steps <= task_loop.LOOKS + 1


def test_the_first_has_made_its_call_before_the_second_begins_though_it_loads_for_all_of_them(tasks: Any) -> None:
    said: list[tuple[int, str]] = []

    def task(number: int) -> None:
        said.append((number, "begun"))
        for what in ("crew file", "client"):
            if what not in loaded:
                waiter().once(what, partial(load, what))
        waiter().awaited(calls(number))

    def load(what: str) -> None:
        tasks.turned()  # the thread has looked whether another task may begin
        loaded.append(what)

    async def calls(number: int) -> None:
        said.append((number, "called"))

    loaded = list[str]()
    begin_at_a_time(tasks, [lambda number=number: task(number) for number in range(8)])
    tasks.results()
    assert loaded == ["crew file", "client"]
    assert said == [(number, what) for number in range(8) for what in ("begun", "called")]


def test_others_begin_while_one_loads_for_long(tasks: Any) -> None:
    others = threading.Semaphore(0)

    def loads(number: int) -> bool | None:
        return waiter().once(number, lambda: others.acquire(timeout=10) and others.acquire(timeout=10))

    begin_at_a_time(tasks, [lambda: loads(1), others.release, lambda: loads(2), others.release, others.release,
                            others.release])  # fmt: skip
    assert sorted(map(str, tasks.results())) == ["None"] * 4 + ["True"] * 2


def test_others_begin_when_the_one_that_loaded_is_stopped(tasks: Any) -> None:
    def fails() -> None:
        raise Interrupted("stopped")

    begin_at_a_time(tasks, [lambda: waiter().once("crew file", fails), lambda: 2])
    assert list(map(type, tasks.results())) == [Interrupted, int]


def test_of_many_that_are_stopped_the_first_has_ended_before_the_others_are_told(tasks: Any) -> None:
    sections: list[Any] = []
    said: list[tuple[str, int]] = []
    there = threading.Semaphore(0)

    async def waits(number: int) -> None:
        there.release()
        try:
            await asyncio.sleep(60)
        finally:
            said.append(("told", number))
            for _ in range(4):  # as a client that closes its connection
                await step()
            said.append(("ended", number))

    def task(number: int) -> None:
        sections.append(waiter().section(lambda: True))
        waiter().awaited(waits(number))

    begin_at_a_time(tasks, [lambda number=number: task(number) for number in range(8)])
    for _ in range(8):
        assert there.acquire(timeout=10)
    all_told = threading.Event()
    tasks.loop.call(all_told.wait, 10)
    for section in sections:
        assert section.break_in(Interrupted)
    all_told.set()
    assert [type(error) for error in tasks.results()] == [Interrupted] * 8
    assert said == [(what, number) for number in range(8) for what in ("told", "ended")]
