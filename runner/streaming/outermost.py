"""Whether the kickoff at hand is the one whose stream was asked for, or begins one of its own."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_whole: ContextVar[bool] = ContextVar("runner_streamed_kickoff", default=False)


def is_begun() -> bool:
    """Whether its stream is there: it gives its result."""
    return _whole.get()


@contextlib.contextmanager
def begun() -> Iterator[None]:
    """The next kickoff in this context gives its result, though it streams."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Inside of that kickoff others have streams of their own."""
    if not _whole.get():
        yield
        return
    token = _whole.set(False)
    try:
        yield
    finally:
        _whole.reset(token)
