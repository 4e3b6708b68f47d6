"""Blocking calls in a process in which each task has a thread: a stop ends the wait for such a call.

A signal interrupts a call that blocks the main thread, but nothing interrupts one that blocks another thread. So the
task's thread starts a thread for the call and waits for it in a way that a stop can end. If the task is stopped, the
call's thread is left to finish, and its result is discarded; one that is there by then is returned, to be recorded, and
the stop is raised after that.
"""

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from runner.core.errors import Stop
from runner.journal.cancellation.cancel_scope import CancelScope

T = TypeVar("T")

in_threads = False  #: whether blocking calls are made in threads of their own


def use_threads() -> None:
    """Make all further blocking calls of this process in separate threads."""
    global in_threads
    in_threads = True


def run(call: Callable[[], T], scope: CancelScope) -> T:
    """Return the result of the call. Raises what the call raises, or the stop if the task is stopped first."""
    if not in_threads:
        return call()
    outcome: list[tuple[Any, BaseException | None]] = []
    with scope.waking() as wakeup:

        def in_thread() -> None:
            try:
                outcome.append((call(), None))
            except BaseException as error:
                outcome.append((None, error))
            finally:
                wakeup.wake()

        context = contextvars.copy_context()
        try:
            threading.Thread(target=context.run, args=(in_thread,), name="blocking call", daemon=True).start()
        except RuntimeError:  # the system has no thread left: then a stop waits for the call
            return call()
        try:
            while not outcome:
                scope.check_in_call()
                wakeup.wait()
        except Stop:
            if not outcome or not scope.awaits_answer or scope.stopping is None:
                raise
    found, error = outcome.pop()
    if error is None:
        result: T = found
        return result
    try:
        raise error
    finally:
        del error  # it refers to this frame
