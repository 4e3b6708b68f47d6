"""``@start``, ``@listen``, ``@router``, ``@human_feedback``. They mark the function and return it unchanged."""

import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Literal, TypeVar

from runner.core.errors import BadFlow
from runner.flows.definition import MARK, Feedback, Learning, Method
from runner.flows.definition import condition as as_condition

F = TypeVar("F", bound=Callable[..., Any])


def start(
    condition: Any = None, *, max_retries: int = 0, retry_delay: float = 1.0, timeout: float | None = None
) -> Callable[[F], F]:
    """Mark an entry point: it runs at kickoff or, with a condition, each time the condition is met.

    Args:
        max_retries: how many attempts may follow one that raised.
        retry_delay: seconds before the first of them; it grows with each.
        timeout: seconds for one attempt.
    """
    when = {} if condition is None else {"when": as_condition(condition)}
    return _marking(start=True, **when, **_care(max_retries, retry_delay, timeout))


def listen(
    condition: Any, *, max_retries: int = 0, retry_delay: float = 1.0, timeout: float | None = None
) -> Callable[[F], F]:
    """Run the method when its condition is met: a method is done, or a router returned that label.

    A method with a parameter gets the output of what triggered it. See `start` for the other options.
    """
    return _marking(when=as_condition(condition), **_care(max_retries, retry_delay, timeout))


def router(
    condition: Any = None,
    *,
    emit: Sequence[str] | str | None = None,
    max_retries: int = 0,
    retry_delay: float = 1.0,
    timeout: float | None = None,
) -> Callable[[F], F]:
    """Mark a method whose result is a label that others listen to. Without a condition, stack it under ``@start()``.

    ``emit`` declares the labels. Default: those of a ``Literal`` or ``Enum`` return annotation.
    """
    care = _care(max_retries, retry_delay, timeout)

    def decorate(function: F) -> F:
        labels = (emit,) if isinstance(emit, str) else tuple(map(str, emit)) if emit else _labels(function)
        when = {} if condition is None else {"when": as_condition(condition)}
        return _marking(router=True, emit=labels, **when, **care)(function)

    return decorate


def human_feedback(
    message: str,
    emit: Sequence[str] | None = None,
    llm: Any = None,
    default_outcome: str | None = None,
    metadata: dict[str, Any] | None = None,
    provider: Any = None,
    learn: bool = False,
    learn_source: str = "hitl",
    learn_strict: bool = False,
    learn_limit: int | None = None,
) -> Callable[[F], F]:
    """Ask a person about the method's output before the flow continues.

    Args:
        emit: labels; the answer becomes one of them: the one that it names, else the one that ``llm`` chooses. An empty
            answer is ``default_outcome``, else the first label.
        llm: a model or its name.
        provider: asks the person instead of the terminal, by ``provider.request_feedback(context, flow)``. If that
            raises `HumanFeedbackPending`, the flow waits, and ``resume`` continues it.
        learn: whether the lessons of an answer, as ``llm`` (default: the environment's model) words them, are
            remembered in ``flow.memory``, and applied to later outputs before they are shown.
        learn_source: keeps the lessons of one kind apart.
        learn_limit: how many lessons are applied at most.
        learn_strict: whether a failure of the learning fails the method; by default the flow continues without.
    """
    if default_outcome is not None and not emit:
        raise ValueError("default_outcome requires emit to be specified.")
    if emit and default_outcome is not None and default_outcome not in emit:
        raise ValueError(f"default_outcome {default_outcome!r} must be one of the emit options: {list(emit)}")
    if llm is not None and not (llm.strip() if isinstance(llm, str) else callable(getattr(llm, "call", None))):
        raise BadFlow(f"llm is a model's name or an object with call(), not {llm!r}")
    if learn_limit is not None and learn_limit < 1:
        raise ValueError(f"learn_limit must be at least 1, got {learn_limit}")
    labels = tuple(map(str, emit or ()))
    learning = Learning(learn_source, learn_limit, learn_strict) if learn else None
    asked = Feedback(message, labels, llm, default_outcome, dict(metadata or {}), provider, learning)
    return _marking(feedback=asked, **({"router": True, "emit": labels} if labels else {}))


def _care(max_retries: int, retry_delay: float, timeout: float | None) -> dict[str, Any]:
    """The options for failures that were given; others do not override those of another decorator."""
    if max_retries < 0 or retry_delay < 0 or (timeout is not None and timeout <= 0):
        raise BadFlow("max_retries and retry_delay must not be negative, and timeout must be more than 0 seconds")
    given = {"max_retries": (max_retries, 0), "retry_delay": (retry_delay, 1.0), "timeout": (timeout, None)}
    return {name: value for name, (value, default) in given.items() if value != default}


def _marking(**changes: Any) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        drafted = getattr(function, MARK, None) or Method(name=getattr(function, "__name__", ""))
        setattr(function, MARK, replace(drafted, **changes))
        return function

    return decorate


def _labels(function: Callable[..., Any]) -> tuple[str, ...]:
    """The labels in a return annotation."""
    try:
        returned = typing.get_type_hints(inspect.unwrap(function)).get("return")
    except Exception:  # an annotation that does not resolve here names no labels
        return ()
    if isinstance(returned, type) and issubclass(returned, Enum):
        return tuple(str(member.value) for member in returned)
    found: list[str] = []
    parts = typing.get_args(returned) if typing.get_origin(returned) is not Literal else (returned,)
    for part in parts:
        if typing.get_origin(part) is Literal:
            found += [str(value) for value in typing.get_args(part)]
    return tuple(dict.fromkeys(found))
