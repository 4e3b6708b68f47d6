"""The threads on which a map makes its steps."""

import contextlib
import contextvars
import logging
import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, Self

from runner.core import waiting
from runner.core.errors import ClaimLost
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.cancellation.cancel_scope import CancelScope

log = logging.getLogger(__name__)

Kept = defaultdict[int, Any]
"""What a thread's step gave, under 0, until that is reported: see `CancelScope.answers`."""

AGAIN = 0.005  #: seconds until a thread is looked at again that could not be broken into


class MapThreads:
    """At most one thread for each concurrent step. Those that are in a step when this context ends are interrupted.

    Each thread that takes a step wakes the next one, or starts it, if there are more steps. So steps that wait all
    begin at once, and short ones are made by few threads in turn.
    """

    def __init__(self, do: Callable[[Any, Kept], None], most: int, scope: CancelScope) -> None:
        self._do, self._most, self._scope = do, most, scope
        self._begun: deque[Any] = deque()
        self._called = queue.SimpleQueue[bool]()
        self._is_called = False
        self._idle: list[None] = []  # one for each thread that is: to add to it needs no lock
        self._context = contextvars.copy_context()
        self._sections: list[InterruptibleSection] = []
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        if kind is not None:
            self.begin_no_more()
        self._called.put(False)  # each passes it on
        if kind is not None and self._sections:
            threading.Thread(target=self._break_in, name="runner-map-stop", daemon=True).start()

    @property
    def busy(self) -> int:
        """The number of threads that are in a step."""
        return self._started - len(self._idle)

    def begin_no_more(self) -> int:
        """Begin none of the steps that no thread has taken. Returns how many these were."""
        never_begun = 0
        with contextlib.suppress(IndexError):
            while True:  # one by one: a thread may take some meanwhile
                self._begun.popleft()
                never_begun += 1
        return never_begun

    def begin(self, steps: Sequence[Any]) -> None:
        """Begin these steps now."""
        self._begun.extend(steps)
        self._call()

    def _call(self) -> None:
        if not self._begun or self._is_called:
            return
        self._is_called = True
        if self._idle or self._started >= self._most or not self._start():
            self._called.put(True)

    def _start(self) -> bool:
        """Start one more thread. Returns whether the machine has one, for which at least the first is needed."""
        self._started += 1
        try:
            threading.Thread(target=self._work, name=f"runner-map-{self._started}", daemon=True).start()
        except RuntimeError as error:
            self._started -= 1
            if not self._started:
                raise
            self._most = self._started
            log.warning("%d steps of this map are made at once, not more: %s", self._most, error)
            return False
        return True

    def _work(self) -> None:
        section, answers = InterruptibleSection(lambda: not self._scope.has_answer), self._scope.keep_answers()
        answers[section] = kept = Kept()
        try:
            self._sections.append(section)
            go_on = True
            while go_on:
                self._is_called = False
                while self._begun:
                    if not self._is_called and len(self._begun) > 1:
                        self._call()
                    try:
                        one = self._begun.popleft()
                    except IndexError:  # others were quicker
                        break
                    self._context.copy().run(self._do, one, kept)
                self._idle.append(None)
                go_on = self._called.get()
                self._idle.pop()
            self._called.put(False)
        except ClaimLost:  # broken into between two steps
            pass
        finally:
            with contextlib.suppress(ClaimLost):
                section.over()
            section.over()
            del answers[section]

    def _break_in(self) -> None:
        """The task has stopped: no further result is recorded."""
        for section in self._sections:
            while not section.break_in(ClaimLost):
                waiting.sleep(AGAIN)
