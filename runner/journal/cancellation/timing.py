"""A task that takes longer than it may, in this process: it is broken into, at its next step or bytecode."""

import contextlib
import threading
from collections.abc import Iterator

from runner.core.errors import TaskTimeout, TimedOut
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.cancellation.cancel_scope import CancelScope

LOOK_AGAIN = 0.005  #: seconds until a task is looked at again that could not be broken into
SAY_AGAIN = 2.0  #: seconds until a task is told again: what is raised inside of a destructor is lost


@contextlib.contextmanager
def timed(cancel_scope: CancelScope, timeout: float | None) -> Iterator[None]:
    """The task timeout: break into the task in this thread after ``timeout`` seconds, at its next step or bytecode."""
    if timeout is None:
        yield
        return
    stop = TimedOut.after(timeout)
    section = InterruptibleSection()

    def break_in() -> None:
        over, counted = section.wait(timeout), 0.0
        while not over and (asked := cancel_scope.with_person()) > counted:
            over, counted = section.wait(asked - counted), asked
        if over:
            return
        cancel_scope.ask(stop)
        pause = 0.0
        while not section.wait(pause):
            pause = SAY_AGAIN if cancel_scope.interruptible(force=True) and section.break_in(TimedOut) else LOOK_AGAIN

    try:
        try:
            threading.Thread(target=break_in, name="timeout", daemon=True).start()
            yield
        finally:
            section.over()
    except TimedOut:
        section.over()  # it may have come while that was said
        raise TaskTimeout(str(stop)) from None
