"""What blocks, in a process in which several tasks have a thread each: it is done in a thread of its own.

A signal breaks into what blocks the main thread, but nothing breaks into what blocks another one. So the task waits for
a thread that does it, in a way that a stop ends; of what is left behind there nothing is used.
"""

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from runner.journal.cancellation.cancel_scope import CancelScope

T = TypeVar("T")

needed = False  #: whether tasks of this process have threads beside each other


def begin() -> None:
    """From here on."""
    global needed
    needed = True


def do(blocking: Callable[[], T], scope: CancelScope) -> T:
    """What it gives, unless the task is stopped meanwhile, which raises the stop."""
    if not needed:
        return blocking()
    outcome: list[tuple[Any, BaseException | None]] = []
    with scope.waking() as over:

        def run() -> None:
            try:
                outcome.append((blocking(), None))
            except BaseException as error:
                outcome.append((None, error))
            finally:
                over.wake()

        context = contextvars.copy_context()
        try:
            threading.Thread(target=context.run, args=(run,), name="of a task: call", daemon=True).start()
        except RuntimeError:  # the system has no more of them: then a stop waits for this
            return blocking()
        while not outcome:
            scope.check_in_call()
            over.wait()
    found, error = outcome.pop()
    if error is None:
        result: T = found
        return result
    try:
        raise error
    finally:
        del error  # it refers to this frame
