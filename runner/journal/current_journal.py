"""The current journal: which task the running code belongs to, also in threads that the task started."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, Token
from functools import cached_property, partial, wraps
from typing import Any

from runner.journal.journal import Journal
from runner.journal.nested import ChildJournal

_enclosing: ContextVar[Journal | None] = ContextVar("runner_enclosing_journal", default=None)
_inherited: ContextVar[Journal | None] = ContextVar("runner_brought_journal", default=None)  # of who began the thread
_default_journals: list[Journal] = []  # those that take in what has no context

_innermost: ContextVar["inside_of | None"] = ContextVar("runner_inside_of", default=None)


def at_end() -> contextlib.ExitStack | None:
    """What is closed when the task around this is over."""
    around = _innermost.get()
    return None if around is None else around.closing


class inside_of:
    """Kickoffs and calls of models in this context are part of the task whose journal this is.

    With ``unattributed`` calls in threads that are begun here are, too; and, while it is the only journal of which that
    was said, all without a context.
    """

    def __init__(self, journal: Journal, *, unattributed: bool = False) -> None:
        self._journal, self._unattributed = journal, unattributed

    @cached_property
    def closing(self) -> contextlib.ExitStack:
        """What is closed at the end: few tasks have anything, and it takes nearly a kilobyte."""
        return contextlib.ExitStack()

    def __enter__(self) -> None:
        if self._unattributed:
            _follow_threads()
        self._tokens: tuple[Token[Any], ...] = _enclosing.set(self._journal), _innermost.set(self)
        if self._unattributed:
            _default_journals.append(self._journal)

    def __exit__(self, *raised: Any) -> bool | None:
        try:
            return self.closing.__exit__(*raised) if "closing" in vars(self) else None
        finally:
            if self._unattributed:
                _default_journals.remove(self._journal)
            for token in self._tokens:
                token.var.reset(token)


def _in_child() -> None:
    """A process that was forked in a task, as by `multiprocessing`, is in none: what the journal writes through, and
    what it waits for, is its parent's. What was set is out of reach in whichever context it was. Nor is it a worker,
    which ends its tasks when it is asked to end: whoever forked it waits for that."""
    global _enclosing, _inherited
    if journal_here() is not None:
        for number, theirs in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
            if callable(signal.getsignal(number)):
                signal.signal(number, theirs)
    _enclosing = ContextVar("runner_enclosing_journal", default=None)
    _inherited = ContextVar("runner_brought_journal", default=None)
    _default_journals.clear()


os.register_at_fork(after_in_child=_in_child)


def current_journal() -> tuple[Journal, bool] | None:
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


def nest(name: str, *about: Any) -> ChildJournal | None:
    """Where a kickoff that begins here records what it does, if it is inside of a task. The same kickoff finds the same
    records when the task restarts."""
    journal = _enclosing.get()
    return ChildJournal(journal, journal.name_nested(name, *about)) if journal is not None else None


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
        journal = journal_here()
        if journal is not None:
            thread.run = partial(_inheriting, journal, thread.run)  # type: ignore[method-assign]  # this one thread's
        start(thread)

    @wraps(submit)
    def submitted(pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        # Also without a journal: the pool's thread may have been begun by another task.
        return submit(pool, _inheriting, journal_here(), fn, *args, **kwargs)

    for owner, name, method in ((threading.Thread, "start", started), (ThreadPoolExecutor, "submit", submitted)):
        setattr(owner, name, method)


def journal_here() -> Journal | None:
    """The journal of the task around this, or around who began this thread; no guess."""
    return _enclosing.get() or _inherited.get()


def _inheriting(journal: Journal | None, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    token = _inherited.set(journal)
    try:
        return fn(*args, **kwargs)
    finally:
        _inherited.reset(token)
