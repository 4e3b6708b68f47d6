"""What one attempt at a task is, wherever it is performed: whether another follows one that failed, and when."""

from runner.core import backoff
from runner.core.errors import MissingDependency

Retries = tuple[int, float]
"""How many attempts may follow a failed one, and the seconds before the first of them: see `Adapter.retry`."""

NOT_INSTALLED = (ImportError, MissingDependency)  #: what no other attempt in the same place does better


def next_delay(error: BaseException, failures: int, retries: Retries) -> float | None:
    """How long to wait before the next attempt at a task, in seconds; None if there is to be none.

    Args:
        error: what the last attempt failed of.
        failures: how many attempts failed, the last one included.
        retries: how the task is retried.
    """
    allowed, first = retries
    if failures > allowed or isinstance(error, NOT_INSTALLED):
        return None
    return backoff.delay(failures, first)
