"""Of many tasks that are handed over at a time, the first has gone as far as it can before the next one begins."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from runner.core import waiting

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
