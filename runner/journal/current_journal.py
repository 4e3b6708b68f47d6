"""The current journal: which task the running code belongs to, also in threads that the task started."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, Token
from functools import partial, wraps
from typing import Any

from runner.core.idempotency import task_origin
from runner.core.made_once import made_once
from runner.journal.journal import Journal
from runner.journal.nested import ChildJournal
from runner.journal.steps import Frame, current_step, supposed_step

_enclosing: ContextVar[Journal | None] = ContextVar("runner_enclosing_journal", default=None)
_inherited: ContextVar[Journal | None] = ContextVar("runner_brought_journal", default=None)  # of who began the thread
_default_journals: list[Journal] = []  # those that take in what has no context
_importing: ContextVar[Journal | None] = ContextVar("runner_importing", default=None)

_innermost: ContextVar["inside_of | None"] = ContextVar("runner_inside_of", default=None)


def at_end() -> contextlib.ExitStack | None:
    """Return the exit stack of the enclosing task, which is closed at its end."""
    around = _innermost.get()
    return None if around is None else around.closing


class inside_of:
    """Context in which kickoffs and model calls belong to the task with this journal.

    With ``unattributed``, calls in threads that are started here belong to it as well; and, while it is the only such
    journal, calls without a context.
    """

    def __init__(self, journal: Journal, *, unattributed: bool = False) -> None:
        self._journal, self._unattributed, self._is_open = journal, unattributed, False

    @made_once
    def closing(self) -> contextlib.ExitStack:
        """The exit stack; created lazily, since few tasks need it and it takes nearly a kilobyte."""
        self._is_open = True
        return contextlib.ExitStack()

    def __enter__(self) -> None:
        if self._unattributed:
            _follow_threads()
        self._tokens: tuple[Token[Any], ...] = _enclosing.set(self._journal), _innermost.set(self)
        if self._unattributed:
            _default_journals.append(self._journal)

    def __exit__(self, *raised: Any) -> bool | None:
        try:
            return self.closing.__exit__(*raised) if self._is_open else None
        finally:
            if self._unattributed:
                _default_journals.remove(self._journal)
            for token in self._tokens:
                token.var.reset(token)


class importing:
    """Context in which code is imported: its calls of models and tools belong to this journal until that is closed.

    Calls in threads that are started here do so, too. Nothing else of what it does is a task's.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __enter__(self) -> None:
        _follow_threads()
        self._token = _importing.set(self._journal)

    def __exit__(self, *raised: Any) -> None:
        _importing.reset(self._token)


def _in_child() -> None:
    """A process that was forked in a task, or where its code is imported, belongs to no task: reset its contexts.

    The journal's connection and locks are the parent's, as with `multiprocessing`. Nor is it a worker, which hands
    tasks back when it is asked to end: the process that forked it waits for its end.
    """
    global _enclosing, _inherited, _importing
    if active_journal() is not None or _importing.get() is not None:
        for number, theirs in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
            if callable(signal.getsignal(number)):
                signal.signal(number, theirs)
    _enclosing = ContextVar("runner_enclosing_journal", default=None)
    _inherited = ContextVar("runner_brought_journal", default=None)
    _importing = ContextVar("runner_importing", default=None)
    _default_journals.clear()


os.register_at_fork(after_in_child=_in_child)


def current_journal(*, imports: bool = False) -> tuple[Journal, bool] | None:
    """Return the journal of the task around this, or with ``imports`` of an import, and whether it is a guess."""
    if imports and (journal := _importing.get()) is not None and not journal.is_over:
        return journal, False
    journal = _enclosing.get()
    if journal is not None:
        return journal, False
    journal = _inherited.get() or sole_journal()
    if journal is None:
        return None
    _suppose_step(journal)
    return journal, True


def _suppose_step(journal: Journal) -> None:
    """Make a step current in this thread: the one in progress that began it, else the only one in progress."""
    here = current_step.get()
    if here is None or here is supposed_step.get() or here not in here.journal.doing.frames:
        here = journal.doing.sole()
        current_step.set(here)
        supposed_step.set(here)


def sole_journal() -> Journal | None:
    """Return the journal of the only task that runs in this process; None if there are several, or none."""
    default_journals = list(_default_journals)
    return default_journals[0] if len(default_journals) == 1 else None


def code_here() -> str:
    """Return the identity of the enclosing task's code, from its journal; "" if unknown."""
    found = current_journal()
    return found[0].code if found is not None and not found[1] else ""


def nest(name: str, *about: Any) -> ChildJournal | None:
    """Return the journal of a kickoff that begins here inside a task, the same after a restart; None outside."""
    journal = _enclosing.get()
    return ChildJournal(journal, journal.name_nested(name, *about)) if journal is not None else None


_following = threading.Lock()


def _follow_threads() -> None:
    """From now on, threads and work submitted to thread pools inherit the journal and the step of their starter.

    They also inherit what the keys of its tool uses begin with.
    """
    if not _following.acquire(blocking=False):
        return  # done before, and never undone
    start = threading.Thread.start
    submit: Callable[..., Future[Any]] = ThreadPoolExecutor.submit

    @wraps(start)
    def started(thread: threading.Thread) -> None:
        here = _here()
        if here != _NOWHERE:
            thread.run = partial(_inheriting, here, thread.run)  # type: ignore[method-assign]  # this one thread's
        start(thread)

    @wraps(submit)
    def submitted(pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        # Also without a journal: the pool's thread may have been begun by another task.
        return submit(pool, _inheriting, _here(), fn, *args, **kwargs)

    for owner, name, method in ((threading.Thread, "start", started), (ThreadPoolExecutor, "submit", submitted)):
        setattr(owner, name, method)


def active_journal() -> Journal | None:
    """Return the journal of the enclosing task, or of the code that started this thread; never a guess."""
    return _enclosing.get() or _inherited.get()


_Here = tuple[Journal | None, Journal | None, Frame | None, str]
_NOWHERE: _Here = (None, None, None, "")


def _here() -> _Here:
    return active_journal(), _importing.get(), current_step.get(), task_origin.get()


def _inheriting(here: _Here, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    journal, importing, step = _inherited.set(here[0]), _importing.set(here[1]), current_step.set(here[2])
    origin = task_origin.set(here[3])
    try:
        return fn(*args, **kwargs)
    finally:
        task_origin.reset(origin)
        current_step.reset(step)
        _importing.reset(importing)
        _inherited.reset(journal)
