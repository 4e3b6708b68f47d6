"""Whatever the code of one task does, the thread that it shares goes on."""

import asyncio
import os
import threading
from asyncio import all_tasks as known_before
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runner.core import waiting
from runner.core.errors import StrayCancellation

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


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "code"), [("it exits", 3), ("it fails", 1), ("it returns", 0), ("it awaits", 0)])
def test_a_process_that_a_coroutine_forks_goes_on_with_no_other_task(
    ends: str, code: int, tasks: Any, tmp_path: Path
) -> None:
    # Given a run that waits, and leaves a trace
    other, trace = Other(tasks), tmp_path / "trace"

    async def forks() -> int:
        if child := os.fork():
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        tasks.loop.loop.call_soon(trace.touch)
        other.free.set()
        if ends == "it awaits":
            await asyncio.sleep(0)
            trace.touch()
        if ends == "it exits":
            raise SystemExit(3)
        return 1 // 0 if ends == "it fails" else 0

    # When the code of another forks a process: that ends where it would go on with tasks that are not its own
    tasks.begin(lambda: waiter().run_coroutine(forks()))
    tasks.turned()
    other.ends()
    results = tasks.results()
    assert code in results
    assert ["first", "second"] in results
    assert not trace.exists()


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
        with pytest.raises(RuntimeError, match="shared by many tasks"):
            loop.run_until_complete(loop.create_future())
        await loop.shutdown_default_executor()
        return await asyncio.to_thread(lambda: "in a thread")

    tasks.begin(lambda: waiter().awaited(changes()))
    assert tasks.results() == ["in a thread"]


class Other:
    """The coroutine of a run that waits, within an iteration, while another run does something."""

    def __init__(self, tasks: Any) -> None:
        self.waits, self.free = threading.Event(), asyncio.Event()
        self.shared: dict[str, Any] = {}
        self._loop = tasks.loop
        tasks.begin(lambda: waiter().run_coroutine(self._iterates()))
        assert self.waits.wait(10)

    async def _pieces(self) -> AsyncIterator[str]:
        yield "first"
        await asyncio.sleep(0)
        yield "second"

    async def _iterates(self) -> list[str]:
        found = []
        async for one in self._pieces():
            found.append(one)
            if one == "first":
                self.shared["task"], self.shared["future"] = asyncio.current_task(), self._loop.loop.create_future()
                self.waits.set()
                await self.free.wait()
        return found

    def ends(self) -> None:
        self._loop.call(self.free.set)


@pytest.mark.parametrize("all_tasks", [lambda: asyncio.all_tasks(), known_before])
def test_code_that_cancels_all_coroutines_cancels_those_of_its_run(all_tasks: Any, tasks: Any) -> None:
    # Given a run that waits
    other, ended = Other(tasks), []

    async def forever() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append("cancelled")

    async def cancels() -> int:
        begun = [asyncio.create_task(forever()) for _ in range(3)]
        await asyncio.sleep(0)
        found = all_tasks() - {asyncio.current_task()}
        for task in found:
            task.cancel()
        await asyncio.get_running_loop().shutdown_asyncgens()
        await asyncio.gather(*found, return_exceptions=True)
        return len(found & {*begun})

    # When another cancels all that it finds
    tasks.begin(lambda: waiter().run_coroutine(cancels()))
    tasks.turned()
    other.ends()
    # Then it has found its own, or none where its library has Python's function, and the first goes on
    own = 0 if all_tasks is known_before else 3
    results = tasks.results()
    assert own in results
    assert ["first", "second"] in results
    assert ended == ["cancelled"] * 3


def test_code_cannot_cancel_what_it_knows_of_another_run(tasks: Any) -> None:
    other = Other(tasks)

    async def cancels() -> bool:
        return bool(other.shared["task"].cancel())

    tasks.begin(lambda: waiter().run_coroutine(cancels()))
    tasks.turned()
    other.ends()
    results = tasks.results()
    assert False in results
    assert ["first", "second"] in results


@pytest.mark.parametrize("whose", ["another's", "its own", "none"])
def test_a_cancellation_is_told_apart_by_whose_it_was(whose: str, tasks: Any) -> None:
    """Another run's takes another attempt; the task's own fails it, as everywhere."""
    other = Other(tasks)

    async def is_cancelled() -> None:
        if whose == "none":
            raise asyncio.CancelledError
        if whose == "its own":
            me = asyncio.current_task()
            assert me is not None
            me.cancel()
        else:
            asyncio.get_running_loop().call_soon(other.shared["future"].cancel)
        await other.shared["future"]

    tasks.begin(lambda: waiter().run_coroutine(is_cancelled()))
    tasks.turned()
    other.ends()
    kinds = {type(one) for one in tasks.results()} - {list}
    assert kinds == {StrayCancellation if whose == "another's" else asyncio.CancelledError}


@pytest.mark.parametrize("asks", [lambda: asyncio.all_tasks(), known_before])
def test_elsewhere_all_coroutines_are_seen(asks: Any, tasks: Any) -> None:
    del tasks

    async def two() -> int:
        other = asyncio.create_task(asyncio.sleep(0))
        found = asks()
        await other
        return len(found)

    assert asyncio.run(two()) == 2


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
