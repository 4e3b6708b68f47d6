"""Calls of models, journaled where they leave the process: whoever's client makes them, each is paid for once."""

import contextlib
from collections.abc import Callable, Iterator

from runner.core.context_value import ContextValue
from runner.core.ledger import CallContext, CallResult, Usage, caller
from runner.journal.current_journal import inside_of
from runner.journal.journal import Journal
from runner.llm.recording.loading import watch_imports

__all__ = ["CallContext", "CallResult", "Usage", "caller", "calling", "journaled"]


@contextlib.contextmanager
def journaled(journal: Journal, *, unattributed: bool = False) -> Iterator[None]:
    """Calls of models in this context are steps of this journal.

    With ``unattributed`` also those from threads that do not know what they are part of, if it is the only such one.
    """
    watch_imports()
    with inside_of(journal, unattributed=unattributed):
        yield


def calling(
    agent: str = "",
    *,
    per_minute: int | None = None,
    announced: bool = False,
    on_result: Callable[[CallResult], None] | None = None,
    leaving: Callable[[], None] | None = None,
) -> ContextValue[CallContext]:
    """Calls of models in this context are this agent's, in the ledger; see `CallContext`."""
    found = CallContext(agent, announced, on_result, leaving, per_minute)
    return ContextValue(caller, found)
