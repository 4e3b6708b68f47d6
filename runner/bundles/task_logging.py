"""Gives a task's code the logging setup that a fresh Python process has, without the worker's handlers.

With those, `logging.basicConfig` would do nothing, and each added handler would write a line once more.
"""

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from runner.core.redaction import RedactingFormatter, redact

WORKERS = ("celery", "kombu", "runner")  #: the loggers whose lines are the worker's, whoever sets up logging

IMPORTS = "_call_with_frames_removed"  #: what of `importlib` runs a module's code


class _LastResort(logging.Handler):
    """Where what is logged goes where logging is not set up: as from Python alone, but in the log of the worker."""

    def __init__(self, handlers: Sequence[logging.Handler], level: int) -> None:
        super().__init__(level)
        self._handlers = handlers

    def emit(self, record: logging.LogRecord) -> None:
        """Have the worker's handlers do it."""
        for one in self._handlers:
            one.handle(record)


def begin(*, last: bool = False) -> Callable[[], None]:
    """Give a process that does one task at a time the root logger that Python begins with.

    Lines for standard error go to the worker's log, without secrets. Returns the function that undoes it, and whatever
    the task changes of the process's logging meanwhile; it raises nothing. If the task is the process's ``last``,
    loggers of libraries stay as it leaves them; its handlers are closed all the same.
    """
    root, restore = logging.getLogger(), _restoring(of_worker if last else _loggers)
    level, handlers = root.level, root.handlers
    for one in map(logging.getLogger, WORKERS):
        one.level = one.getEffectiveLevel()  # what loggers remember of their levels holds: `setLevel` looks at them all
        one.handlers, one.propagate = one.handlers + handlers, False
    root.handlers = []
    logging.lastResort = _LastResort(handlers, level)
    _tells[:] = [_watch()]
    stream: Any = logging.StreamHandler
    stream.format = _format

    def undo() -> None:
        try:
            for handler in restore():  # what it kept it may write only now, without secrets
                with contextlib.suppress(Exception):  # it is the task's code, and what came of the task is stored
                    handler.close()
        finally:
            with contextlib.suppress(AttributeError):
                del stream.format

    return undo


_tells: list[Callable[[], bool]] = []  #: what tells whether libraries' loggers have other handlers than at `begin`


def outlives() -> bool:
    """Whether the task added handlers that stay when it ends as its process's last: those of libraries' loggers."""
    return any(added() for added in _tells)


def _watch() -> Callable[[], bool]:
    before = {id(one) for one in all_handlers()}

    def added() -> bool:
        known = before.union(id(handler) for one in of_worker() for handler in one.handlers)
        return any(id(one) not in known and not isinstance(one, logging.NullHandler) for one in all_handlers())

    return added


def _restoring(find: Callable[[], Sequence[logging.Logger]]) -> Callable[[], Iterable[logging.Handler]]:
    """What puts the process's logging back as it is now, and returns the handlers that were added meanwhile.

    Of loggers that ``find`` does not give it restores nothing.
    What an installed library says of its own loggers as it is imported stays: it is imported once for all tasks.
    """
    before = {one: (list(one.handlers), list(one.filters), one.level, one.propagate, one.disabled) for one in find()}
    there = None if find is _loggers else {id(one): one for one in all_handlers()}
    last, disabled, raises = logging.lastResort, logging.root.manager.disable, logging.raiseExceptions
    factory, kind, own_kind = logging.getLogRecordFactory(), logging.getLoggerClass(), logging.root.manager.loggerClass
    warns = getattr(logging, "_warnings_showwarning", None) is not None
    imported, end = _watch_imports()

    def restore() -> Iterable[logging.Handler]:
        end()
        made = [one for one in find() if one not in before]
        added = {id(handler): handler for one in [*before, *made] for handler in one.handlers}
        levels = [] if find is _loggers else _levels([*before, *made])
        for one in made:  # they stay, as modules hold them
            handlers, level = imported.get(one, ([], logging.NOTSET))
            one.handlers, one.filters, one.level = list(handlers), [], level
            one.propagate, one.disabled = one.propagate or one not in imported, False
        for one, (handlers, filters, level, propagate, off) in before.items():
            one.handlers, one.filters = list(handlers), list(filters)
            one.level, one.propagate, one.disabled = level, propagate, off
        logging.lastResort, logging.raiseExceptions = last, raises
        logging.root.manager.loggerClass = own_kind
        logging.setLogRecordFactory(factory)
        logging.setLoggerClass(kind)
        logging.captureWarnings(warns)
        logging.root.manager.disable = disabled
        if find is _loggers or levels != _levels([*before, *made]):
            logging.disable(disabled)  # after the levels: what loggers remember of them is forgotten
        if there is not None:
            return [one for one in reversed(all_handlers()) if id(one) not in there]
        kept = {id(handler) for one in [*before, *made] for handler in one.handlers}
        return [handler for key, handler in added.items() if key not in kept]

    return restore


def _watch_imports() -> tuple[dict[logging.Logger, tuple[list[logging.Handler], int]], Callable[[], None]]:
    """The handlers and the level that libraries give loggers as they are imported from here on, and what ends that."""
    found: dict[logging.Logger, tuple[list[logging.Handler], int]] = {}
    kind: Any = logging.Logger
    add, set_level, folder = kind.addHandler, kind.setLevel, f"{Path.cwd()}{os.sep}"

    def adding(logger: logging.Logger, handler: logging.Handler) -> None:
        add(logger, handler)
        if _is_import(sys._getframe(1), folder):
            handlers, level = found.get(logger, ([], logging.NOTSET))
            found[logger] = [*handlers, handler], level

    def setting(logger: logging.Logger, level: int | str) -> None:
        set_level(logger, level)
        if _is_import(sys._getframe(1), folder):
            found[logger] = found.get(logger, ([], 0))[0], logger.level

    def end() -> None:
        kind.addHandler, kind.setLevel = add, set_level

    kind.addHandler, kind.setLevel = adding, setting
    return found, end


def _is_import(frame: FrameType | None, folder: str) -> bool:
    """Whether this is called as a module is imported, and that is none of the task's, which are in this folder."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_back and frame.f_back.f_code.co_name == IMPORTS:
            return not os.path.realpath(frame.f_code.co_filename).startswith(folder)
        frame = frame.f_back
    return False


@functools.cache
def of_worker() -> Sequence[logging.Logger]:
    """Return the loggers whose lines are the worker's; they are looked for once, best where processes are forked from.

    Libraries have hundreds of loggers, and a forked process copies a page of memory for each that it looks at.
    """
    own = dict.fromkeys((logging.root, *map(logging.getLogger, WORKERS)))  # there, whoever used them
    return list(own | dict.fromkeys(one for one in _loggers() if one.name.partition(".")[0] in WORKERS))


def _loggers() -> list[logging.Logger]:
    known = list(logging.root.manager.loggerDict.values())  # at once: other threads may add to it
    return [logging.root] + [one for one in known if isinstance(one, logging.Logger)]


def _levels(loggers: Iterable[logging.Logger]) -> list[int]:
    return [logging.root.manager.disable, *(one.getEffectiveLevel() for one in loggers)]


def all_handlers() -> list[logging.Handler]:
    """All of the process, as Python closes them at its end."""
    return [one for made in list(logging._handlerList) if (one := made()) is not None]  # type: ignore[attr-defined]  # typeshed has none


def _format(handler: "logging.StreamHandler[Any]", record: logging.LogRecord) -> str:
    text = logging.Handler.format(handler, record)
    is_log = handler.stream in (sys.stderr, sys.__stderr__) and not isinstance(handler.formatter, RedactingFormatter)
    return redact(text) if is_log else text
