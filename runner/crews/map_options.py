"""Refuses wrong options of ``ctx.map``: when it is called and, if they are written there, when the task is made."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from runner.bundles.syntax import parse

ON_ERROR = ("first", "all", "collect")


def refuse_on_error(given: object) -> None:
    """Raise `ValueError` for an ``on_error`` that there is not."""
    if given not in ON_ERROR:
        allowed = ", ".join(map(repr, ON_ERROR[:-1])) + f" or {ON_ERROR[-1]!r}"
        raise ValueError(f"ctx.map(on_error={repr(given)[:40]}): on_error is {allowed}")


def refuse_written_options(run: Callable[..., Any]) -> None:
    """Raise `ValueError` if a task's function calls its context's ``map`` or ``amap`` with a wrong ``on_error``.

    Its source is looked at. Without it, and for other functions, this raises nothing: the call itself is refused then.
    """
    code = getattr(run, "__code__", None)
    if code is None or not any(isinstance(one, tuple) and "on_error" in one for one in code.co_consts):
        return  # as nearly all
    try:
        tree = parse(textwrap.dedent(inspect.getsource(run)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return
    names = code.co_varnames[: code.co_argcount][-1:]  # the context is the only argument, or comes after self
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        if call.func.attr in ("map", "amap") and isinstance(of := call.func.value, ast.Name) and of.id in names:
            for option in call.keywords:
                if option.arg == "on_error" and isinstance(option.value, ast.Constant):
                    refuse_on_error(option.value.value)
