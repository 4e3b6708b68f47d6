"""What a coroutine of the shared loop does waits as a task does, also where it does not await: for the store, say."""

import asyncio
import contextvars
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from runner.core import waiting
from runner.core.errors import Interrupted

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")


def waiter() -> waiting.Waiter:
    found = waiting.here()
    assert found is not None
    return found


class Gate:
    """What code waits for without awaiting it."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.alarm: waiting.Alarm | None = None

    def wait(self) -> str:
        self.alarm = waiter().alarm()
        self.came.set()
        self.alarm.wait(None)
        return "waited"

    def open(self) -> None:
        assert self.alarm is not None
        self.alarm.set()


def gather(*calls: Callable[[], Any]) -> Callable[[], Any]:
    async def one(call: Callable[[], Any]) -> Any:
        return call()

    async def together() -> list[Any]:
        return await asyncio.gather(*map(one, calls))

    return together


def test_while_it_waits_others_run_and_what_it_sets_stays(tasks: Any) -> None:
    gate = Gate()

    async def call() -> tuple[Any, ...]:
        before = asyncio.current_task()
        NAME.set("set in it")
        found = gate.wait()
        same = asyncio.current_task() is before
        await asyncio.sleep(0)
        return found, NAME.get(), same, asyncio.current_task() is before

    tasks.begin(lambda: waiter().awaited(call()))
    assert gate.came.wait(10)
    tasks.begin(gate.open)
    assert ("waited", "set in it", True, True) in tasks.results()


def test_those_that_it_begins_do_too(tasks: Any) -> None:
    first, second = Gate(), Gate()
    tasks.begin(lambda: waiter().awaited(gather(first.wait, second.wait)()))
    assert first.came.wait(10)
    assert second.came.wait(10)
    second.open()
    first.open()
    assert tasks.results() == [["waited", "waited"]]


def test_an_error_comes_out_as_it_was_raised(tasks: Any) -> None:
    async def fails(error: BaseException) -> None:
        raise error

    for error in (ZeroDivisionError("no"), asyncio.CancelledError("no"), Interrupted("no")):
        tasks.begin(lambda error=error: waiter().awaited(fails(error)))
    assert {type(one) for one in tasks.results()} == {ZeroDivisionError, asyncio.CancelledError, Interrupted}

    async def empty() -> None:
        next(iter(()))

    tasks.begin(lambda: waiter().awaited(empty()))
    assert isinstance(tasks.results()[-1].__cause__, StopIteration)


@pytest.mark.parametrize("then", ["it ends", "it awaits"])
def test_a_cancellation_while_it_waits_comes_when_that_is_over(then: str, tasks: Any) -> None:
    gate, done = Gate(), []

    async def call() -> None:
        async with asyncio.timeout(0.01):
            done.append(gate.wait())
            if then == "it awaits":
                await asyncio.sleep(600)
        await asyncio.sleep(0)

    async def timed_out() -> str:
        try:
            await call()
        except TimeoutError:
            return f"timed out, {asyncio.current_task().cancelling()} left"
        return "ended in time"

    tasks.begin(lambda: waiter().awaited(timed_out()))
    assert gate.came.wait(10)
    tasks.begin(lambda: waiting.sleep(0.05))
    while len(tasks.ended) < 1:
        tasks.turned()
    gate.open()
    assert tasks.results()[-1] == ("ended in time" if then == "it ends" else "timed out, 0 left")
    assert done == ["waited"], "it was not broken off"


def test_a_stop_cancels_it_when_what_it_waits_for_has_come(tasks: Any) -> None:
    gate, told = Gate(), []
    sections: list[waiting.Section] = []

    async def call() -> None:
        gate.wait()
        told.append("waited")
        try:
            await asyncio.sleep(600)
        finally:
            told.append("cancelled")

    def task() -> None:
        sections.append(waiter().section(lambda: True))
        waiter().awaited(call())

    tasks.begin(task)
    assert gate.came.wait(10)
    assert sections[0].break_in(Interrupted)
    tasks.turned()
    gate.open()
    (error,) = tasks.results()
    assert isinstance(error, Interrupted)
    assert told == ["waited", "cancelled"]


def test_who_wants_what_a_thread_holds_lets_others_run(tasks: Any) -> None:
    # Given a thread that holds a lock for long, as in an outage, and a task and a coroutine that want it
    lock, held, free, got = waiting.TaskLock(), threading.Event(), threading.Event(), []

    def hold() -> None:
        with lock, lock:
            held.set()
            assert free.wait(30)

    def want() -> None:
        with lock:
            got.append(free.is_set())

    async def wants() -> None:
        want()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    tasks.begin(want)
    tasks.begin(lambda: waiter().awaited(wants()))
    # Then another task runs meanwhile
    tasks.begin(free.set)
    tasks.results()
    thread.join(10)
    assert got == [True, True]


def greenlets(tasks: Any) -> int:
    from runner.tasks.coroutines import Step

    return sum(isinstance(one, Step) and one._loop is tasks.loop and not one.dead for one in gc.get_objects())


def test_coroutines_that_await_share_the_greenlets_of_their_steps(tasks: Any) -> None:
    """What waits for a model holds no stack: a thousand of them would hold a thousand."""
    began, ended = threading.Barrier(2), threading.Event()

    async def call(number: int) -> str:
        NAME.set(f"of {number}")
        await asyncio.sleep(0)
        return NAME.get()

    async def all_of_them() -> list[str]:
        over = asyncio.get_running_loop().create_future()

        async def one(number: int) -> str:
            found = await call(number)
            await over
            assert NAME.get() == found
            return found

        at_work = [asyncio.create_task(one(number)) for number in range(200)]
        for _ in range(5):
            await asyncio.sleep(0)
        await asyncio.to_thread(lambda: (began.wait(10), ended.wait(10)))
        over.set_result(None)
        return await asyncio.gather(*at_work)

    tasks.begin(lambda: waiter().awaited(all_of_them()))
    began.wait(10)
    many = greenlets(tasks)
    ended.set()
    assert [f"of {number}" for number in range(200)] in tasks.results()
    assert many <= 3, "one for each step that is being done, and some are kept"


def test_steps_that_wait_have_a_greenlet_each_and_few_are_kept(tasks: Any) -> None:
    gates = [Gate() for _ in range(40)]
    tasks.begin(lambda: waiter().awaited(gather(*(gate.wait for gate in gates))()))
    assert all(gate.came.wait(10) for gate in gates)
    for gate in gates:
        tasks.begin(gate.open)
    assert ["waited"] * 40 in tasks.results()
    gc.collect()
    assert greenlets(tasks) <= 16


def test_an_alarm_of_an_earlier_step_wakes_the_step_that_waits(tasks: Any) -> None:
    came, alarms = threading.Event(), list[waiting.Alarm]()

    async def call() -> str:
        alarms.append(waiter().alarm())
        await asyncio.sleep(0)
        came.set()
        return "woken" if alarms[0].wait(None) else "not"

    async def beside() -> list[str]:  # whose steps take the greenlet of that earlier step
        other = asyncio.create_task(asyncio.sleep(0, "other"))
        return [await call(), await other]

    tasks.begin(lambda: waiter().awaited(beside()))
    assert came.wait(10)
    tasks.begin(lambda: alarms[0].set())
    assert ["woken", "other"] in tasks.results()
