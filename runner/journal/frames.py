"""The steps that are being done, one inside of another."""

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from runner.core.ledger import AccountKey


class Frame:
    """A step that is being done. ``entry`` is what it is in the account; None once others stand for it."""

    __slots__ = ("entry", "journal", "key", "outer")

    def __init__(self, journal: object, key: str, entry: AccountKey | None, outer: "Frame | None") -> None:
        self.journal, self.key, self.entry, self.outer = journal, key, entry, outer


class Made:
    """What a step gave, and how that is recorded."""

    value: Any = None
    text: str = ""


current: ContextVar[Frame | None] = ContextVar("runner_step", default=None)
account = threading.Lock()  # the frames of nested journals are changed under one


def supersede(frame: Frame | None) -> Iterator[AccountKey]:
    """What the steps from here outward are in the account: from now on others stand for them. A tool is a tool."""
    while frame is not None:
        if frame.entry is not None and frame.entry.kind != "tool":
            yield frame.entry
            frame.entry = None
        frame = frame.outer


class Doing:
    """The steps of a task that are being done, in whatever threads."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []

    @contextlib.contextmanager
    def inside(self, frame: Frame) -> Iterator[None]:
        """While it is done."""
        token = current.set(frame)
        self._frames.append(frame)
        try:
            yield
        finally:
            self._frames.remove(frame)
            with contextlib.suppress(ValueError):  # a coroutine that is thrown away ends elsewhere
                current.reset(token)

    def sole(self) -> Frame | None:
        """The innermost one, if there is no doubt which."""
        doing = list(self._frames)
        inner = [one for one in doing if not any(other.outer is one for other in doing)]
        return inner[0] if len(inner) == 1 else None
