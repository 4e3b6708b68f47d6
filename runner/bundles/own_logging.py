"""What the code of a task says of logging, as where Python runs its file: the handler of the worker is not in its way.

It is the root logger's, so `logging.basicConfig` would do nothing, and a line would be written once more by each that a
task adds.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from runner.core.redaction import RedactingFormatter, redact

WORKERS = ("celery", "kombu", "runner")  #: the loggers whose lines are the worker's, whoever sets up logging


class _LastResort(logging.Handler):
    """Where what is logged goes where logging is not set up: as from Python alone, but in the log of the worker."""

    def __init__(self, handlers: Sequence[logging.Handler], level: int) -> None:
        super().__init__(level)
        self._handlers = handlers

    def emit(self, record: logging.LogRecord) -> None:
        """Have the worker's handlers do it."""
        for one in self._handlers:
            one.handle(record)


def begin() -> Callable[[], None]:
    """From here on a process that does one task at a time has the root logger that Python begins with.

    What is logged to the standard error goes to the log of the worker, without secrets. Returns what undoes it.
    """
    root, last = logging.getLogger(), logging.lastResort
    level, handlers = root.level, list(root.handlers)
    before = [(one, one.level, one.propagate, list(one.handlers)) for one in map(logging.getLogger, WORKERS)]
    for one, _, _, own in before:
        one.setLevel(one.getEffectiveLevel())
        one.handlers, one.propagate = own + handlers, False
    root.handlers = []
    logging.lastResort = _LastResort(handlers, level)
    stream: Any = logging.StreamHandler
    stream.format = _format

    def undo() -> None:
        del stream.format
        logging.lastResort = last
        theirs, root.handlers = [handler for handler in root.handlers if handler not in handlers], handlers
        root.setLevel(level)
        for handler in theirs:
            handler.close()
        for one, its_level, propagates, own in before:
            one.setLevel(its_level)
            one.handlers, one.propagate = own, propagates
        for name, logger in root.manager.loggerDict.items():  # `logging.config` disables those that it does not name
            if isinstance(logger, logging.Logger) and name.partition(".")[0] in WORKERS:
                logger.disabled = False

    return undo


def _format(handler: "logging.StreamHandler[Any]", record: logging.LogRecord) -> str:
    text = logging.Handler.format(handler, record)
    is_log = handler.stream in (sys.stderr, sys.__stderr__) and not isinstance(handler.formatter, RedactingFormatter)
    return redact(text) if is_log else text
