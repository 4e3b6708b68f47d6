"""The steps that are being done, one inside of another."""

import threading
from collections.abc import Iterator
from contextvars import ContextVar

from runner.ledger import Entry


class Frame:
    """A step that is being done. ``entry`` is what it is in the account; None once others stand for it."""

    __slots__ = ("entry", "journal", "key", "outer")

    def __init__(self, journal: object, key: str, entry: Entry | None, outer: "Frame | None") -> None:
        self.journal, self.key, self.entry, self.outer = journal, key, entry, outer


current: ContextVar[Frame | None] = ContextVar("runner_step", default=None)
account = threading.Lock()  # the frames of nested journals are changed under one


def hand_over(frame: Frame | None) -> Iterator[Entry]:
    """What the steps from here outward are in the account: from now on others stand for them. A tool is a tool."""
    while frame is not None:
        if frame.entry is not None and frame.entry.kind != "tool":
            yield frame.entry
            frame.entry = None
        frame = frame.outer
