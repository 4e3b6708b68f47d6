"""Calls of models by gRPC, which no journal keeps: each is counted, by host and method."""

import functools
from typing import Any

from runner.llm.recording import unrecorded

_WAYS = ("__call__", "with_call", "future")
"""How one is made, by what a stub holds of each method."""


def install(module: Any) -> None:
    """Watch the calls that are made through the channels of ``grpc``, or ``grpc.aio``, once in a process."""
    for name, owner in list(vars(module).items()):
        if name.endswith("MultiCallable") and getattr(owner, "__module__", "") == module.__name__:
            for way in _WAYS:
                theirs = vars(owner).get(way)
                if theirs is not None and not hasattr(theirs, "counts_calls"):
                    setattr(owner, way, _counted(theirs))


def _counted(theirs: Any) -> Any:
    @functools.wraps(theirs)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        unrecorded.look_at_rpc(_text(getattr(self, "_target", "") or _target_of(self)), _text(self._method))
        return theirs(self, *args, **kwargs)

    call.counts_calls = True  # type: ignore[attr-defined]  # a mark on a function
    return call


def _target_of(multi_callable: Any) -> Any:
    target = getattr(getattr(multi_callable, "_channel", None), "target", "")
    return target() if callable(target) else target


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
