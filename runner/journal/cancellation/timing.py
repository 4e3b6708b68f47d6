"""A task that takes longer than it may, in this process: it is broken into, at its next step or bytecode."""

import contextlib
import threading
from collections.abc import Iterator

from runner.core.errors import TaskTimeout, TimedOut
from runner.journal.cancellation.async_raise import CancelScope
from runner.journal.cancellation.gate import Gate

LOOK_AGAIN = 0.005  #: seconds until a task is looked at again that could not be broken into
SAY_AGAIN = 2.0  #: seconds until a task is told again: what is raised inside of a destructor is lost


@contextlib.contextmanager
def timed(gate: Gate, timeout: float | None) -> Iterator[None]:
    """The task timeout: break into the task in this thread after ``timeout`` seconds, at its next step or bytecode."""
    if timeout is None:
        yield
        return
    stop = TimedOut.after(timeout)
    span = CancelScope()

    def break_in() -> None:
        over, counted = span.wait(timeout), 0.0
        while not over and (asked := gate.with_person()) > counted:
            over, counted = span.wait(asked - counted), asked
        if over:
            return
        gate.ask(stop)
        pause = 0.0
        while not span.wait(pause):
            pause = SAY_AGAIN if gate.may_break_in(force=True) and span.break_in(TimedOut) else LOOK_AGAIN

    try:
        try:
            threading.Thread(target=break_in, name="timeout", daemon=True).start()
            yield
        finally:
            span.over()
    except TimedOut:
        span.over()  # it may have come while that was said
        raise TaskTimeout(str(stop)) from None
