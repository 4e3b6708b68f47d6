"""The calls that a file makes while it is imported, of models, durable functions and tools: each is made once.

A reading records them (`ReadCalls`) for the code's runs; new ones are recorded for the importing task.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.current_journal import importing
from runner.journal.journal import Journal
from runner.journal.nested import ChildJournal
from runner.journal.recorder import Uncounted

_STEP = "import"  #: what the records of a task are under that were made while its code was imported


_LOOKING = ("place_call", "serve_call", "find_step")  #: the methods by which a journal looks for a record


def _go_on() -> None:
    """A new call is made."""


class UnpaidCall(BaseException):
    """A file that is read without paying came to a call of a model."""


class ReadCalls(Uncounted):
    """The calls of a file that is read in this process: open it as a context around all that runs its code.

    ``root`` is the folder of its code. ``records`` are those of an earlier reading, to which new ones are added.
    ``known`` gets more of them, and is called before the first call. If it is not ``paying``, a new call is not made:
    it raises `UnpaidCall`.
    """

    def __init__(
        self,
        root: Path,
        records: Mapping[str, str] | None = None,
        *,
        paying: bool = True,
        known: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.records = dict(records or {})
        self.refused = False  #: it came to a new call, and was not paying
        self.unrecorded = 0  #: how many went past the journal
        self._journal = Journal(dict(self.records), self, CancelScope())
        self._journal.root, self._journal.on_unrecorded = root, self._past
        self._stop: Callable[[], BaseException | None] = _go_on if paying else self._refuse
        self._place = self._journal.place_call
        self._journal.place_call = self._place_or_stop  # type: ignore[method-assign]  # this one's
        self._known, self._asking = known, threading.RLock()
        if known is not None:
            self._looking = {name: getattr(self._journal, name) for name in _LOOKING}
            for name in _LOOKING:
                setattr(self._journal, name, partial(self._after_known, name))
        self._open = contextlib.ExitStack()

    def stop_at_call(self, stop: Callable[[], BaseException | None]) -> None:
        """From here on a new call is not made if ``stop`` returns an error: that is raised where it would be."""
        self._stop = stop

    def __enter__(self) -> None:
        self._open.enter_context(importing(self._journal))

    def __exit__(self, *raised: Any) -> None:
        self._open.close()

    def record_step(self, step: str, value: str, **_: Any) -> None:
        """Keep the answer."""
        self.records[step] = value

    def _after_known(self, name: str, *about: Any, **how: Any) -> Any:
        """The first use of the journal: add what is known, and look in it from then on."""
        with self._asking:
            known, self._known = self._known, None
            if known is not None:
                found = known()
                self.records.update(found)
                self._journal.add_recorded(found)
                for one, method in self._looking.items():
                    setattr(self._journal, one, method)
        return getattr(self._journal, name)(*about, **how)

    def _past(self, _: str) -> None:
        if (stop := self._stop()) is not None:
            raise stop
        self.unrecorded += 1

    def _place_or_stop(self, *about: Any, **how: Any) -> Any:
        frame, place, recorded = self._place(*about, **how)
        if recorded is None and frame.gave_up is None and (stop := self._stop()) is not None:
            raise stop
        return frame, place, recorded

    def _refuse(self) -> BaseException:
        self.refused = True
        return UnpaidCall()


@contextlib.contextmanager
def answered(journal: Journal, root: Path, read: Mapping[str, str]) -> Iterator[None]:
    """In this context code in ``root`` is imported for the task with this journal.

    Its calls are answered from what was ``read``, then from what the task has recorded; others are made and recorded
    there.
    """
    child = ChildJournal(journal, _STEP)
    imports = Journal({**read, **child.recorded()}, child, journal.cancel_scope, clock=journal.clock)
    imports.root, imports.on_unrecorded = root, child.note_unrecorded
    try:
        with importing(imports):
            yield
    finally:
        imports.close()  # the calls of a thread that continues are the task's
        child.replayed(imports.take_replayed())


def answer_task(journal: Journal, root: Path, read: Mapping[str, str]) -> None:
    """The same before a task that imports code in ``root`` itself: what that asks is the task's own."""
    if read:
        journal.add_recorded(read)
        journal.root = root
