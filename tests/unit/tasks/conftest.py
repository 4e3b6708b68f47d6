"""A thread that many tasks share."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runner.core import waiting


class Tasks:
    """A loop whose tasks are waited for."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.ended: list[Any] = []

    def begin(self, do: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                self.ended.append(do())
            except BaseException as error:
                self.ended.append(error)

        self.loop.begin(run)

    def results(self) -> list[Any]:
        assert self.loop._idle.wait(30)
        self.turned()
        return self.ended

    def turned(self) -> None:
        """Wait until the loop has done what was there for it to do."""
        looked = threading.Event()
        self.loop.call(looked.set)
        assert looked.wait(10)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasks]:
    task_loop = pytest.importorskip("runner.tasks.task_loop")
    monkeypatch.setattr(waiting, "_find", waiting._find)
    monkeypatch.setattr(waiting, "_loop", None)
    monkeypatch.setattr(waiting, "shared", False)
    for module in (asyncio, asyncio.tasks):
        monkeypatch.setattr(module, "all_tasks", asyncio.all_tasks)
    loop = task_loop.TaskLoop(64, 2, 2)
    loop.start()
    yield Tasks(loop)
    loop.restarts = False
    loop.call(loop.loop.stop)
    loop._thread.join(60)
    loop.loop.close()
