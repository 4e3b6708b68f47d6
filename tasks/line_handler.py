"""A handler that writes a worker's log in fewer Python calls than `logging.StreamHandler`."""

import contextlib
import logging
from typing import Any


class LineHandler(logging.StreamHandler[Any]):
    """Writes each record to a stream as `logging.StreamHandler` does: in one Python call instead of nine.

    ``former`` is the handler that it replaces.
    """

    def __init__(self, former: "logging.StreamHandler[Any]") -> None:
        super().__init__(former.stream)
        self.formatter, self.level, self.filters = former.formatter, former.level, former.filters
        self.terminator = former.terminator

    def handle(self, record: logging.LogRecord) -> bool:
        """Write the record, unless a filter rejects it."""
        if self.filters:
            passed: bool | logging.LogRecord = self.filter(record)
            if not passed:
                return False
            if isinstance(passed, logging.LogRecord):  # from Python 3.12 on, a filter may put another in its place
                record = passed
        with self.lock or contextlib.nullcontext():
            try:
                line = self.formatter.format(record) if self.formatter else self.format(record)
                self.stream.write(line + self.terminator)  # at once, as other processes write there, too
                self.stream.flush()
            except RecursionError:
                raise
            except Exception:  # as logging does: who logs carries on
                self.handleError(record)
        return True
