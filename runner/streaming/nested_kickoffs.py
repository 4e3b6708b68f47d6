"""Distinguishes the kickoff whose stream was asked for from kickoffs nested in it."""

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

from runner.core.context_value import ContextValue

_whole: ContextVar[bool] = ContextVar("runner_streamed_kickoff", default=False)


def is_begun() -> bool:
    """Whether the stream of this kickoff exists already, so that it returns its result."""
    return _whole.get()


def begun() -> ContextValue[bool]:
    """The next kickoff in this context returns its result, although it streams."""
    return ContextValue(_whole, True)


def inside() -> AbstractContextManager[bool | None]:
    """Inside that kickoff, nested ones have streams of their own."""
    if _whole.get():
        return ContextValue(_whole, False)
    return nullcontext()
