"""Whatever the code of one task does, the thread that it shares goes on."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from runner.core import waiting

task_loop = pytest.importorskip("runner.tasks.task_loop")


def waiter() -> waiting.Waiter:
    found = waiting.here()
    assert found is not None
    return found


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, BaseException])
def test_code_that_asks_to_end_the_process_ends_its_own_task_alone(
    error: type[BaseException], tasks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a task that waits, and code that exits: in a coroutine that has waited, in one that has not, in a callback
    free = threading.Event()
    alarms: list[waiting.Alarm] = []

    async def exits() -> None:
        await asyncio.sleep(0)
        raise error("enough")

    def raises() -> None:
        raise error("enough")

    async def exits_at_once() -> None:
        raises()

    def waits() -> str:
        alarms.append(waiter().alarm())
        free.set()
        alarms[0].wait(None)
        return "waited"

    tasks.begin(waits)
    assert free.wait(10)
    tasks.begin(lambda: waiter().awaited(exits()))
    tasks.begin(lambda: waiter().awaited(exits_at_once()))
    tasks.loop.call(raises)
    tasks.turned()
    alarms[0].set()
    # Then these tasks have ended so, and the other goes on
    results = tasks.results()
    assert [type(one) for one in results if isinstance(one, BaseException)] == [error, error]
    assert "waited" in results
    caplog.clear()  # asyncio tells of the callback


def test_code_that_stops_the_loop_stops_no_task(tasks: Any) -> None:
    async def stops() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "continued"

    tasks.begin(lambda: waiter().awaited(stops()))
    tasks.turned()
    assert tasks.results() == ["continued"]


def test_code_changes_nothing_of_the_loop_that_others_need(tasks: Any) -> None:
    async def changes() -> str:
        loop = asyncio.get_running_loop()
        with pytest.raises(RuntimeError, match="shared by many tasks"):
            loop.set_task_factory(None)
        with pytest.raises(RuntimeError, match="shared by many tasks"):
            loop.set_default_executor(ThreadPoolExecutor(1))
        await loop.shutdown_default_executor()
        return await asyncio.to_thread(lambda: "in a thread")

    tasks.begin(lambda: waiter().awaited(changes()))
    assert tasks.results() == ["in a thread"]


def test_a_loop_that_breaks_ends_its_process(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[int] = []
    monkeypatch.setattr(task_loop.os, "_exit", left.append)
    tasks.loop.loop._selector.select = lambda _: 1 / 0
    tasks.loop.call(bool)
    tasks.loop._thread.join(60)
    assert left == [task_loop.BROKEN]
    assert "starting another" in caplog.text
