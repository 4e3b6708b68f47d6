"""A task that takes longer than it may, in this process: it is broken into, at its next step or bytecode."""

import contextlib
import threading
from collections.abc import Iterator

from runner.breakin import is_delicate, raise_in
from runner.errors import TaskTimeout, TimedOut
from runner.gate import Gate

LOOK_AGAIN = 0.005  #: seconds until a task is looked at again that could not be broken into
SAY_AGAIN = 2.0  #: seconds until a task is told again: what is raised inside of a destructor is lost


@contextlib.contextmanager
def timed(gate: Gate, timeout: float | None) -> Iterator[None]:
    """Break into the task in this thread after ``timeout`` seconds, at its next step or bytecode."""
    if timeout is None:
        yield
        return
    thread, stop = threading.get_ident(), TimedOut(f"it ran longer than its timeout of {timeout:g} s")
    over = threading.Event()

    def break_in() -> None:
        counted = 0.0
        while (asked := gate.with_person()) > counted and not over.wait(asked - counted):
            counted = asked
        gate.ask(stop)
        pause = 0.0
        while not over.wait(pause):
            pause = LOOK_AGAIN
            if gate.may_break_in(force=True) and not is_delicate(thread):
                raise_in(thread, TimedOut)
                pause = SAY_AGAIN

    timer = threading.Timer(timeout, break_in)
    timer.daemon = True
    timer.start()
    try:
        yield
    except TimedOut:
        raise TaskTimeout(str(stop)) from None
    finally:
        over.set()
        timer.cancel()
        raise_in(thread, None)
