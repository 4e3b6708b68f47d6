"""Coroutines of an event loop that many tasks share: blocking code in one does not block the others.

Each step runs in a greenlet: if code beneath a client waits (for the store, a lock), only its asyncio task does.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

from greenlet import GreenletExit, getcurrent

from runner.tasks.greenlets import Loop, SwitchingTask, begun_by_run

T = TypeVar("T")

Awaited = Coroutine[Any, Any, T] | Generator[Any, None, T]  #: what asyncio makes a task of

STEPS_KEPT = 16  #: greenlets that are kept for steps to come: as many as often wait at a time


class Coroutines:
    """The coroutines of one loop. ``steps`` are idle greenlets."""

    def __init__(self, loop: Loop) -> None:
        self._loop, self.steps = loop, list[Step]()

    def new_task(self, loop: asyncio.AbstractEventLoop, wanted: Awaited[T], **options: Any) -> "asyncio.Task[T]":
        """Return the asyncio task of a coroutine, as `asyncio.loop.set_task_factory` needs it."""
        task = asyncio.Task(self._stepwise(wanted), loop=loop, **options)
        context = options.get("context")
        if (begun := begun_by_run.get() if context is None else context.get(begun_by_run)) is not None:
            begun.add(task)
            task.add_done_callback(begun.discard)
        return task

    async def _stepwise(self, wanted: Awaited[T]) -> T:
        around = asyncio.current_task()
        assert around is not None
        found: T = await self._steps(wanted, around)
        return found

    @coroutine
    def _steps(self, wanted: Awaited[Any], around: "asyncio.Task[Any]") -> Generator[Any, Any, Any]:
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
