"""Interrupts a task of this process that exceeds its timeout, at its next step or bytecode.

A coroutine is cancelled.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import partial

from runner.core.clock import SYSTEM
from runner.core.errors import TaskTimeout, TimedOut
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.cancellation.cancel_scope import CancelScope

LOOK_AGAIN = 0.005  #: seconds until a task is looked at again that is in a write
SAY_AGAIN = 2.0  #: seconds until a task is told again: what is raised inside of a destructor is lost


class CancellableSection:
    """A section of a coroutine, from its creation until `over`: interrupting it cancels its asyncio task, once."""

    again = LOOK_AGAIN

    def __init__(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0
        self._over = threading.Event()
        self.told = False

    def break_in(self, exception: type[BaseException]) -> bool:  # noqa: ARG002 - it is a CancelledError
        """Cancel the asyncio task, from another thread."""
        self._loop.call_soon_threadsafe(self._cancel)
        return True

    def _cancel(self) -> None:
        if self._task is not None and not self.told and not self._over.is_set():
            self.told = True
            self._task.cancel()

    def wait(self, seconds: float) -> bool:
        """Wait until the section is over, for at most ``seconds``. Returns whether it is over."""
        return self._over.wait(seconds)

    def over(self) -> bool:
        """End the section: nothing is cancelled after this. Returns whether it was cancelled by this alone."""
        was_over = self._over.is_set()
        self._over.set()
        if self._task is None or was_over or not self.told:
            return False
        return self._task.uncancel() <= self._cancelling


@contextlib.contextmanager
def timed(cancel_scope: CancelScope, timeout: float | None) -> Iterator[None]:
    """The task timeout: interrupt the task in this thread after ``timeout`` seconds, at its next step or bytecode.

    A coroutine is cancelled instead. Time spent waiting for a person does not count. Raises `TaskTimeout`, also if the
    task ended late and was not interrupted, as where it blocked its loop.
    """
    if timeout is None:
        yield
        return
    stop = TimedOut.after(timeout)
    may = partial(cancel_scope.interruptible, force=True)
    section = CancellableSection() if cancel_scope.of_coroutine else InterruptibleSection(may, cancel_scope)
    began = SYSTEM.monotonic()

    def break_in() -> None:
        over, counted = section.wait(timeout), 0.0
        while not over and (asked := cancel_scope.with_person()) > counted:
            over, counted = section.wait(asked - counted), asked
        if over:
            return
        cancel_scope.ask(stop)
        pause = 0.0
        while not section.wait(pause):
            pause = LOOK_AGAIN if not may() else SAY_AGAIN if section.break_in(TimedOut) else section.again

    cancelled: bool | None = False
    try:
        try:
            threading.Thread(target=break_in, name="timeout", daemon=True).start()
            yield
        finally:
            cancelled = section.over()
        if not section.told and SYSTEM.monotonic() - began - cancel_scope.with_person() > timeout:
            cancel_scope.ask(stop)
            raise stop
    except TimedOut:
        section.over()  # it may have come while that was said
        if cancel_scope.stopping is not stop:
            raise  # that of the task around this
        raise TaskTimeout(str(stop)) from None
    except asyncio.CancelledError:
        if not cancelled:
            raise
        raise TaskTimeout(str(stop)) from None
