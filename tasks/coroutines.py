"""The coroutines of a loop that tasks share: each waits as a task does where its code does not await.

What is beneath a vendor's asynchronous client may wait for the store: the journal, an event, a lock. So each step of a
coroutine is done in a greenlet. If that waits, the coroutine's asyncio task does, and the loop continues others.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from greenlet import getcurrent

from runner.tasks.switching import SwitchingTask, begun_by_run

if TYPE_CHECKING:
    from runner.tasks.task_loop import TaskLoop

T = TypeVar("T")


def new_task(
    tasks: "TaskLoop", loop: asyncio.AbstractEventLoop, wanted: Coroutine[Any, Any, T], **options: Any
) -> "asyncio.Task[T]":
    """The asyncio task of a coroutine: what `asyncio.loop.set_task_factory` asks for."""
    task = asyncio.Task(_stepwise(tasks, wanted), loop=loop, **options)
    context = options.get("context")
    if (begun := begun_by_run.get() if context is None else context.get(begun_by_run)) is not None:
        begun.add(task)
        task.add_done_callback(begun.discard)
    return task


async def _stepwise(tasks: "TaskLoop", wanted: Coroutine[Any, Any, T]) -> T:
    around = asyncio.current_task()
    assert around is not None
    found: T = await _steps(_Steps(tasks, wanted, around), around)
    return found


@coroutine
def _steps(steps: "_Steps", around: "asyncio.Task[Any]") -> Generator[Any, Any, Any]:
    """Do one step after the other. A cancellation that comes while one waits is raised where the coroutine awaits."""
    step: Callable[[], Any] = partial(steps.wanted.send, None)
    while True:
        cancelled: asyncio.CancelledError | None = None
        over = steps.begin(step)
        while over is not None and not steps.is_over:
            try:
                yield from over
            except asyncio.CancelledError as error:
                cancelled = error
                over = steps.renew()
        if cancelled is not None and around.cancelling():  # the step did not make it undone
            around.uncancel()
            around.cancel(*cancelled.args)
        try:
            awaits = steps.result()
        except StopIteration as end:
            return end.value
        try:
            step = partial(steps.wanted.send, (yield awaits))
        except BaseException as error:
            step = partial(steps.wanted.throw, error)


class _Steps(SwitchingTask):
    """The greenlet of one coroutine."""

    def __init__(self, tasks: "TaskLoop", wanted: Coroutine[Any, Any, Any], around: "asyncio.Task[Any]") -> None:
        super().__init__(tasks, self._run, None)
        self.gr_context = getcurrent().gr_context  # its own, not a copy: what it sets stays set
        self.wanted, self._around = wanted, around
        self.is_over = False
        self._step: Callable[[], Any] = bool
        self._found: Any = None
        self._error: BaseException | None = None
        self._over: asyncio.Future[None] | None = None

    def begin(self, step: Callable[[], Any]) -> "asyncio.Future[None] | None":
        """Do a step. Returns what to await, if it waits."""
        self._step, self.is_over, self._over = step, False, None
        self._loop.switch(self)
        return None if self.is_over else self.renew()

    def renew(self) -> "asyncio.Future[None]":
        """What to await until the step is over."""
        self._over = self._loop.loop.create_future()
        return self._over

    def result(self) -> Any:
        """What the coroutine awaits after the step. Raises what that raised."""
        if self._error is None:
            return self._found
        try:
            raise self._error
        finally:
            self._error = None  # it refers to this frame

    def _run(self) -> None:
        while self._error is None:
            try:
                self._found = self._step()
            except BaseException as error:
                self._error = error
            self.is_over = True
            if self._over is not None and not self._over.done():
                self._over.set_result(None)
            if self._error is None:
                self._loop.hub.switch()

    def _resume(self, number: int) -> None:
        asyncio.tasks._enter_task(self._loop.loop, self._around)
        try:
            super()._resume(number)
        finally:
            asyncio.tasks._leave_task(self._loop.loop, self._around)
