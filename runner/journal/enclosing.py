"""Where code is: the task around it, by its journal; the steps that are being done there; how far the task is.

How far it is, is counted here alone: the store learns it with the next record, and a task that skips what it did begins
from it.
"""

import contextlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from runner.core.ledger import AccountKey, Counters, Usage, usage_in

if TYPE_CHECKING:
    from runner.journal.journal import Journal
    from runner.journal.nested import ChildJournal

_enclosing: "ContextVar[Journal | None]" = ContextVar("runner_enclosing_journal", default=None)
_inherited: "ContextVar[Journal | None]" = ContextVar("runner_brought_journal", default=None)  # of who began the thread
_default_journals: "list[Journal]" = []  # those that take in what has no context

at_end: ContextVar[contextlib.ExitStack | None] = ContextVar("runner_at_end", default=None)
"""What is closed when the task around this is over."""


@contextlib.contextmanager
def inside_of(journal: "Journal", *, unattributed: bool = False) -> Iterator[None]:
    """Kickoffs and calls of models in this context are part of the task whose journal this is.

    With ``unattributed`` calls in threads that are begun here are, too; and, while it is the only journal of which that
    was said, all without a context.
    """
    if unattributed:
        _follow_threads()
    closing = contextlib.ExitStack()
    token, last = _enclosing.set(journal), at_end.set(closing)
    if unattributed:
        _default_journals.append(journal)
    try:
        with closing:
            yield
    finally:
        if unattributed:
            _default_journals.remove(journal)
        _enclosing.reset(token)
        at_end.reset(last)


def current_journal() -> "tuple[Journal, bool] | None":
    """The journal that a call made here belongs to, and whether that is only a guess."""
    journal = _enclosing.get()
    if journal is not None:
        return journal, False
    journal = _inherited.get()
    if journal is not None:
        return journal, True
    default_journals = list(_default_journals)
    return (default_journals[0], True) if len(default_journals) == 1 else None


def code_here() -> str:
    """Which code does the task around this, as its journal says; "" where that is not known."""
    found = current_journal()
    return found[0].code if found is not None and not found[1] else ""


def nest(name: str, *about: Any) -> "ChildJournal | None":
    """Where a kickoff that begins here records what it does, if it is inside of a task. The same kickoff finds the same
    records when the task restarts."""
    journal = _enclosing.get()
    return journal.nest(name, *about) if journal is not None else None


_following = threading.Lock()


def _follow_threads() -> None:
    """From now on threads, and what is given to pools of them, know which journal those who began them were inside of.

    A new thread has an empty context (Python 3.14 may copy it), and with several tasks in one process nothing else can
    tell whose the calls in it are.
    """
    if not _following.acquire(blocking=False):
        return  # done before, and never undone
    start = threading.Thread.start
    submit: Callable[..., Future[Any]] = ThreadPoolExecutor.submit

    @wraps(start)
    def started(thread: threading.Thread) -> None:
        journal = _here()
        if journal is not None:
            thread.run = partial(_inheriting, journal, thread.run)  # type: ignore[method-assign]
        start(thread)

    @wraps(submit)
    def submitted(pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        # Also without a journal: the pool's thread may have been begun by another task.
        return submit(pool, _inheriting, _here(), fn, *args, **kwargs)

    for owner, name, method in ((threading.Thread, "start", started), (ThreadPoolExecutor, "submit", submitted)):
        setattr(owner, name, method)


def _here() -> "Journal | None":
    return _enclosing.get() or _inherited.get()


def _inheriting(journal: "Journal | None", fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    token = _inherited.set(journal)
    try:
        return fn(*args, **kwargs)
    finally:
        _inherited.reset(token)


# -- the steps that are being done, and how far the task is


class Frame:
    """A step that is being done. ``entry`` is what it is in the account; None once others stand for it. It is recorded
    as its key says, unless what is recorded there cannot be replayed."""

    __slots__ = ("entry", "journal", "key", "outer", "recorded_as")

    def __init__(self, journal: object, key: str, entry: AccountKey | None, outer: "Frame | None") -> None:
        self.journal, self.key, self.entry, self.outer = journal, key, entry, outer
        self.recorded_as = key

    def find(self, records: Mapping[str, str], usable: Callable[[str, str], bool]) -> str | None:
        """Its record, if that can be replayed: ``usable`` says so of the name of one and of what it says."""
        recorded = records.get(self.key)
        again = 1
        while recorded is not None and not usable(self.recorded_as, recorded):
            again += 1
            self.recorded_as = f"{self.key}~{again}"
            recorded = records.get(self.recorded_as)
        return recorded


class Made:
    """What a step gave, and how that is recorded."""

    value: Any = None
    text: str = ""


current_step: ContextVar[Frame | None] = ContextVar("runner_step", default=None)
_superseding = threading.Lock()  # the frames of nested journals are changed under one, of all tasks


def supersede(frame: Frame | None) -> list[AccountKey]:
    """What the steps from here outward are in the account: from now on others stand for them. A tool is a tool."""
    found = []
    with _superseding:
        while frame is not None:
            if frame.entry is not None and frame.entry.kind != "tool":
                found.append(frame.entry)
                frame.entry = None
            frame = frame.outer
    return found


class Doing:
    """The steps of a task that are being done, in whatever threads."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []

    @contextlib.contextmanager
    def inside(self, frame: Frame) -> Iterator[None]:
        """While it is done."""
        token = current_step.set(frame)
        self._frames.append(frame)
        try:
            yield
        finally:
            self._frames.remove(frame)
            with contextlib.suppress(ValueError):  # a coroutine that is thrown away ends elsewhere
                current_step.reset(token)

    def sole(self) -> Frame | None:
        """The innermost one, if there is no doubt which."""
        doing = list(self._frames)
        inner = [one for one in doing if not any(other.outer is one for other in doing)]
        return inner[0] if len(inner) == 1 else None


_AROUND = re.compile(r"#\d+(?=/)")
"""What ends the name of a step in those of the steps inside of it."""


class JournalProgress:
    """The counts of one task in flight, of which this is ``recorded``. The journal's lock guards them."""

    def __init__(self, recorded: Mapping[str, str]) -> None:
        self._recorded = recorded
        self._replayed, self._given = Counters(), Counters()
        self._passed: set[str] = set()
        self._inside_of: Counter[str] | None = None

    def account(self) -> Counters:
        """All that it was given so far."""
        found = Counters()
        found.add(self._given)
        found.add(self._replayed)
        return found

    def take_replayed(self) -> Counters:
        """What was replayed since this was last asked."""
        count = self._replayed
        if count or count.passed:
            self._replayed = Counters()
            self._given.add(count)
        return count

    def replay(self, count: Counters) -> None:
        """So much more was replayed."""
        self._replayed.add(count)

    def replay_step(self, entry: AccountKey | None, inside: Iterable[str]) -> None:
        """A step was replayed. Where calls of models were recorded ``inside`` of it, they stand for it."""
        calls = Counters()
        for name in inside:
            one = json.loads(self._recorded[name])
            calls.served(AccountKey("model", one["agent"], one["model"]), usage_in(one))
        self._replayed.add(calls or Counters([entry] if entry is not None else []))

    def serve(self, key: str, entry: AccountKey, usage: Usage) -> None:
        """A call was replayed: its record is behind the task."""
        self._replayed.served(entry, usage)
        self.mark_passed(key)

    def give(self, entry: AccountKey | None, usage: Usage) -> None:
        """A step was done, and counts if it has an entry."""
        if entry is not None:
            self._given.served(entry, usage)

    def skip(self, steps: Iterable[int], account: str) -> None:
        """So many of each step are behind it, and what came to the ``account`` with them."""
        self._replayed.add(Counters.read(account).beyond(self.account()))
        self._replayed.passed += sum(steps)

    def mark_passed(self, key: str) -> None:
        """A record is behind it, and with it those inside of that. How many there are so far is how far it is."""
        if self._inside_of is None:
            self._inside_of = Counter(one[: part.end()] for one in self._recorded for part in _AROUND.finditer(one))
        if key not in self._passed:
            self._passed.add(key)
            self._replayed.passed += 1 + self._inside_of[key]
