"""Whether a function is the one that a framework's tool calls: by what the tool holds, not by its name."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

_PASS_ON = frozenset({"runner", "pydantic", "agno", "smolagents"})
"""The packages whose functions that wrap another one call it once, with the arguments that they are given."""


def is_call_of(fn: Callable[..., Any], called: Any) -> bool:
    """Whether a call of ``called`` is one of ``fn``, or of a method or partial of it, and nothing else.

    A decorator is not looked through, even where it says what it wraps.
    """
    while called is not None and called is not fn:
        called = _passed_on_to(called)
    return called is fn


def _passed_on_to(called: Any) -> Any:
    if isinstance(called, functools.partial):
        return called.func
    if inspect.ismethod(called):
        return called.__func__
    if inspect.isfunction(called) and str(called.__globals__.get("__name__")).partition(".")[0] in _PASS_ON:
        return getattr(called, "__wrapped__", None)
    return None
