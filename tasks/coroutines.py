"""Coroutines of an event loop that many tasks share: blocking code in one does not block the others.

Each step runs in a greenlet: if code beneath a client waits (for the store, a lock), only its asyncio task does.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial, wraps
from types import coroutine
from typing import Any, NoReturn, TypeVar

from greenlet import GreenletExit, getcurrent

from runner.core import processes
from runner.tasks.greenlets import BegunTasks, Loop, SwitchingTask, begun_by_run

T = TypeVar("T")

Awaited = Coroutine[Any, Any, T] | Generator[Any, None, T]  #: what asyncio makes a task of

STEPS_KEPT = 16  #: greenlets that are kept for steps to come: as many as often wait at a time


class Coroutines:
    """The coroutines of one loop. ``steps`` are idle greenlets."""

    def __init__(self, loop: Loop) -> None:
        self._loop, self.steps = loop, list[Step]()

    def new_task(self, loop: asyncio.AbstractEventLoop, wanted: Awaited[T], **options: Any) -> "OwnTask[T]":
        """Return the asyncio task of a coroutine, as `asyncio.loop.set_task_factory` needs it."""
        task = OwnTask(self._stepwise(wanted), loop=loop, **options)
        asyncio.tasks._unregister_task(task)  # documented, for such as this
        context = options.get("context")
        task.begun = begun = begun_by_run.get() if context is None else context.get(begun_by_run)
        if begun is not None:
            begun.add(task)
            task.add_done_callback(begun.discard)
        return task

    async def _stepwise(self, wanted: Awaited[T]) -> T:
        around = asyncio.current_task()
        assert isinstance(around, OwnTask)
        found: T = await self._steps(wanted, around)
        return found

    @coroutine
    def _steps(self, wanted: Awaited[Any], around: "OwnTask[Any]") -> Generator[Any, Any, Any]:
        """Run its steps. A cancellation that arrives while a step waits is raised where the coroutine awaits."""
        do: Callable[[], Any] = partial(wanted.send, None)
        while True:
            cancelled: asyncio.CancelledError | None = None
            step = self.steps.pop() if self.steps else Step(self._loop, self.steps)
            over = step.begin(do, around)
            while over is not None and not step.is_over:
                try:
                    yield from over
                except asyncio.CancelledError as error:
                    cancelled = error
                    over = step.renew()
            if cancelled is not None and around.cancelling():  # the step did not make it undone
                around.uncancel()
                around.cancel(*cancelled.args)
            try:
                awaits = step.end()
            except StopIteration as end:
                return end.value
            del step, over
            try:
                do = partial(wanted.send, (yield awaits))
            except BaseException as error:
                do = partial(wanted.throw, error)
                if around.begun is not None and isinstance(error, asyncio.CancelledError):
                    around.begun.is_astray = not around.begun.cancels


class OwnTask(asyncio.Task[T]):
    """An asyncio task of the loop: no code of another run than its own, ``begun``, cancels it or sees it.

    `asyncio.all_tasks` does not know it by itself, also where a library has imported that by name: `show_own_tasks`.
    """

    __slots__ = ("begun",)
    begun: BegunTasks | None

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel it, and return True; False if that is not for the calling code to do, or it is done."""
        asks = begun_by_run.get()
        if asks is not None and asks is not self.begun:
            return False
        if self.begun is not None:
            self.begun.cancels = True
        return super().cancel(msg)


def show_own_tasks() -> None:
    """From now on `asyncio.all_tasks` shows, of the shared loop, those of the run that asks, as `asyncio.run` does."""
    others = asyncio.tasks.all_tasks

    @wraps(others)
    def all_tasks(loop: asyncio.AbstractEventLoop | None = None) -> "set[asyncio.Task[Any]]":
        found, begun = others(loop), begun_by_run.get()
        if begun:
            asked = loop or asyncio.get_running_loop()
            found |= {task for task in list(begun) if task.get_loop() is asked and not task.done()}
        return found

    asyncio.all_tasks = asyncio.tasks.all_tasks = all_tasks


class Step(SwitchingTask):
    """The greenlet in which one step runs.

    It is reused for steps of any coroutine: one that waits for a model needs none, and a greenlet's stack takes as much
    memory as everything else of a waiting task.
    """

    def __init__(self, loop: Loop, kept: "list[Step]") -> None:
        super().__init__(loop, self._run, None)
        self._kept = kept
        self.is_over = False
        self._around: Any = None
        self._do: Callable[[], Any] = bool
        self._found: Any = None
        self._error: BaseException | None = None
        self._over: asyncio.Future[None] | None = None

    def begin(self, do: Callable[[], Any], around: "asyncio.Task[Any]") -> "asyncio.Future[None] | None":
        """Run a step of an asyncio task's coroutine. Returns what to await, if it waits."""
        self.gr_context = getcurrent().gr_context  # the coroutine's own, not a copy: what it sets stays set
        self._do, self._around, self.is_over, self._over = do, around, False, None
        self._loop.switch(self)
        return None if self.is_over else self.renew()

    def renew(self) -> "asyncio.Future[None]":
        """Return what to await until the step is over."""
        self._over = self._loop.loop.create_future()
        return self._over

    def end(self) -> Any:
        """Return what the coroutine awaits after the step, and free the greenlet. Raises what the step raised."""
        found, error = self._found, self._error
        self._do, self._around, self._found, self._error, self._over = bool, None, None, None, None
        self.gr_context = None
        if len(self._kept) < STEPS_KEPT:
            self._kept.append(self)
        else:
            self.throw()  # it ends: left to itself, it would stay for ever where it is
        if error is None:
            return found
        try:
            raise error
        finally:
            del error  # it refers to this frame

    def leave(self, *_: object) -> NoReturn:
        """End a process that the step has forked."""
        processes.leave(None if isinstance(self._error, StopIteration) else self._error)

    def _run(self) -> None:
        while True:
            try:
                self._found = self._do()
            except GreenletExit:  # nothing will come for it any more
                return
            except BaseException as error:
                self._error = error
            self.is_over = True
            if self._over is not None and not self._over.done():
                self._over.set_result(None)
            self._loop.hub.switch()

    def _resume(self, number: int) -> None:
        asyncio.tasks._enter_task(self._loop.loop, self._around)
        try:
            super()._resume(number)
        finally:
            asyncio.tasks._leave_task(self._loop.loop, self._around)
