"""A kickoff in a thread of its own, as an iterator of what it emits."""

import contextlib
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from runner.core.errors import Interrupted
from runner.events.base import BaseEvent
from runner.events.sinks import receiving
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.cancellation.cancel_scope import Wakeup
from runner.journal.current_journal import current_journal
from runner.streaming.nested_kickoffs import begun

Item = TypeVar("Item")
T = TypeVar("T")

AGAIN = 0.005  #: seconds until a thread is looked at again that could not be broken into
TRIES = 200


class InThread(Generic[Item, T]):
    """Begins with the first `next`, ends with what the kickoff raises.

    If the caller stops iterating, the kickoff continues to its end, because what was begun is paid for. `close` waits
    for the end, and so does a task on the fleet before it commits; a process that exits waits for the tasks in flight.
    An interruption of the wait (Ctrl-C, a stop of the task) is passed on.
    """

    def __init__(self, do: Callable[[], T], item_of: Callable[[BaseEvent], Item | None]) -> None:
        self._do, self._item_of = do, item_of
        self._items: deque[Item] = deque()
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._section: InterruptibleSection | None = None
        self._over = False
        self._more: Wakeup | None = None

    @property
    def results(self) -> list[T]:
        """The result, once the kickoff has ended."""
        return list(self._results)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        self._wait(lambda: bool(self._items))
        if self._items:
            return self._items.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        raise StopIteration

    def close(self) -> None:
        """Wait for the end of the kickoff, if it was begun."""
        if self._thread is not None:
            self._wait(lambda: False)

    def __del__(self) -> None:
        if self._thread is not None and self._thread.daemon and not self._over:
            self.close()

    def _begin(self) -> None:
        # On the fleet a process is not kept by a task of which nothing is wanted any more.
        context, of_task = contextvars.copy_context(), current_journal() is not None
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="kickoff", daemon=of_task)
        self._thread.start()

    def _wait(self, enough: Callable[[], bool]) -> None:
        try:  # what comes as the thread begins, too, which may be at work before its start returns here
            if self._thread is None:
                self._begin()
            with Wakeup() as more:
                self._more = more
                while not self._over and not enough():
                    more.wait()
        except BaseException:
            self._break_in()
            raise

    def _break_in(self) -> None:
        for _ in range(TRIES):
            if self._over or (self._section is not None and self._section.break_in(Interrupted)):
                return
            time.sleep(AGAIN)  # it is in a part that may not be broken into, or about to begin: nothing reports its end

    def _put(self, event: BaseEvent) -> None:
        item = self._item_of(event)
        if item is not None:
            self._items.append(item)
            self._wake()

    def _wake(self) -> None:
        if (more := self._more) is not None:
            more.wake()

    def _run(self) -> None:
        with contextlib.suppress(Interrupted):  # it may come late
            section = self._section = InterruptibleSection()
            try:
                with receiving(self._put), begun():
                    self._results.append(self._do())
            except BaseException as error:
                self._error = error
            finally:
                section.over()
        section.over()  # what came may have come in the midst of that
        self._over = True
        self._wake()
