"""What one attempt at a task is, wherever it is performed: its guardrail loop, and whether and when another follows."""

from collections.abc import Callable
from typing import TypeVar

from runner.core import backoff
from runner.core.errors import GuardrailFailed, MissingDependency

R = TypeVar("R")

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


def until_passed(
    make: Callable[[], R],
    check: Callable[[R, int], tuple[R, str | None]],
    retries: int,
    object_to: Callable[[str], None],
    whose: str,
) -> R:
    """The guardrail loop: the first output that passes, as its guardrails leave it. Raises `GuardrailFailed`.

    Args:
        make: makes an output, taking into account what was said of the one before.
        check: given an output and how many did not pass before it, gives it as it is to be, and why it does not pass.
        retries: how many outputs may follow one that did not pass.
        object_to: hears why an output did not pass, before another one is made.
        whose: what the output is called in the error, as in "the output of task 'a'".
    """
    for failed in range(retries + 1):
        output, why = check(make(), failed)
        if why is None:
            return output
        if failed < retries:
            object_to(why)
    times = "once" if retries == 0 else f"{retries + 1} times"
    raise GuardrailFailed(f"{whose} did not pass its guardrail, {times}; last: {why}")
