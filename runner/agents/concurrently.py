"""Runs work in threads next to the task's thread, so a stop reaches the task even while that work hangs."""

import concurrent.futures
import contextlib
import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from runner.core import waiting
from runner.core.errors import Interrupted, Stop
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.cancellation.cancel_scope import Wakeup
from runner.journal.current_journal import active_journal

T = TypeVar("T")

SIDE_BY_SIDE = 16  #: at work at one time


def run_concurrently(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Call these functions in threads and return their results in order.

    A thread that hangs when the task is stopped is abandoned. A single function is called directly in the main thread,
    where signals can interrupt it.
    """
    if len(functions) == 1 and threading.current_thread() is threading.main_thread():
        return [functions[0]()]
    results: list[concurrent.futures.Future[T]] = [concurrent.futures.Future() for _ in functions]
    free = threading.Semaphore(SIDE_BY_SIDE)
    sections: list[InterruptibleSection] = []
    waiter, overs, journal = waiting.here(), list[Callable[[], object]](), active_journal()

    def may() -> bool:
        """Whether none of them is about to record what it got: it does so, and goes no further."""
        return journal is None or not journal.cancel_scope.is_recording

    try:
        for function, result in zip(functions, results, strict=True):
            overs.append(waiter.tool_thread() if waiter is not None else bool)
            # Each in a context of its own: what one opens is not open in another.
            about = result, free, contextvars.copy_context(), function, sections, overs[-1], may
            threading.Thread(target=_into, args=about, daemon=True).start()
        with Wakeup() as one_more:
            left = set(results)
            for result in results:
                result.add_done_callback(one_more.wake)
            while left:  # a deferrable stop waits for all of them, and each is recorded
                one_more.wait()
                for result in [one for one in left if one.done()]:
                    left.remove(result)
                    if isinstance(stop := result.exception(), Stop) and not stop.deferrable:
                        raise stop
        return [result.result() for result in results]
    except BaseException:
        for section in sections:
            section.break_in(Interrupted)
        for over in overs:  # one that hangs keeps no other task's from its thread
            over()
        raise


def _into(
    result: "concurrent.futures.Future[T]",
    free: threading.Semaphore,
    context: contextvars.Context,
    function: Callable[[], T],
    sections: list[InterruptibleSection],
    over: Callable[[], object],
    may: Callable[[], bool],
) -> None:
    with contextlib.suppress(Interrupted):  # it may come late
        section = InterruptibleSection(may)
        try:
            sections.append(section)
            try:
                with free:
                    result.set_result(context.run(function))
            except BaseException as error:
                if not result.done():
                    result.set_exception(error)
        finally:
            section.over()
    section.over()  # what came may have come in the midst of that
    over()
