"""Work in threads beside the task's own, so that a stop reaches the task while that work hangs."""

import concurrent.futures
import contextlib
import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from runner.errors import Interrupted, Stop
from runner.stopping.breakin import is_delicate, raise_in

T = TypeVar("T")

LOOK = 0.02  #: seconds between looks whether the task is to stop
SIDE_BY_SIDE = 16  #: at work at one time


def side_by_side(functions: Sequence[Callable[[], T]]) -> list[T]:
    """What these functions give, in their order. A thread that hangs when the task is stopped is left behind.

    One alone is called here, if this is the main thread: signals break into it wherever it is.
    """
    if len(functions) == 1 and threading.current_thread() is threading.main_thread():
        return [functions[0]()]
    results: list[concurrent.futures.Future[T]] = [concurrent.futures.Future() for _ in functions]
    free = threading.Semaphore(SIDE_BY_SIDE)
    threads = []
    for function, result in zip(functions, results, strict=True):
        # Each in a context of its own: what one opens is not open in another.
        context = contextvars.copy_context()
        thread = threading.Thread(target=_into, args=(result, free, context, function), daemon=True)
        threads.append(thread)
        thread.start()
    try:
        left = set(results)
        while left:  # a polite stop waits for all of them, and each is recorded
            done, left = concurrent.futures.wait(left, LOOK)
            for result in done:
                if isinstance(stop := result.exception(), Stop) and not stop.polite:
                    raise stop
        return [result.result() for result in results]
    except BaseException:
        for thread, result in zip(threads, results, strict=False):
            if not result.done() and thread.ident is not None and not is_delicate(thread.ident):
                raise_in(thread.ident, Interrupted)
        raise


def _into(
    result: "concurrent.futures.Future[T]",
    free: threading.Semaphore,
    context: contextvars.Context,
    function: Callable[[], T],
) -> None:
    with contextlib.suppress(Interrupted):  # it may come late
        try:
            with free:
                result.set_result(context.run(function))
        except BaseException as error:
            if not result.done():
                result.set_exception(error)
