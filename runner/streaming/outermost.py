"""Whether the kickoff at hand is the one whose stream was asked for, or begins one of its own."""

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

from runner.core.context_value import ContextValue

_whole: ContextVar[bool] = ContextVar("runner_streamed_kickoff", default=False)


def is_begun() -> bool:
    """Whether its stream is there: it gives its result."""
    return _whole.get()


def begun() -> ContextValue[bool]:
    """The next kickoff in this context gives its result, though it streams."""
    return ContextValue(_whole, True)


def inside() -> AbstractContextManager[bool | None]:
    """Inside of that kickoff others have streams of their own."""
    if _whole.get():
        return ContextValue(_whole, False)
    return nullcontext()
