"""Puts functions of ours in the place of a library's methods, each once in a process."""

import functools
from collections.abc import Callable
from typing import Any


def wrap(kind: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
    """Replace a method by ``wrapped`` of it. Does nothing the second time.

    Raises `AttributeError` if a version of the library has no such method: its calls would not be recorded unnoticed.
    """
    theirs = getattr(kind, name)
    if not hasattr(theirs, "journaled"):
        ours: Any = functools.wraps(theirs)(wrapped(theirs))
        ours.journaled = True
        setattr(kind, name, ours)


def precede(kind: Any, name: str, look: Callable[..., object]) -> None:
    """Have ``look`` called before a method, with the same arguments. Raises `AttributeError` as `wrap` does."""

    def wrapped(theirs: Any) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            look(*args, **kwargs)
            return theirs(*args, **kwargs)

        return method

    wrap(kind, name, wrapped)
