"""Environment variables that are one task's, in a process that does several: its context has its own.

Whoever looks into `os.environ` in that context, or in a thread to which that was handed on, finds them; all others find
the process's. A process that is begun there has the process's, so this is for code that begins none.
"""

import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast

_own: ContextVar[Mapping[Any, Any] | None] = ContextVar("runner_own_environ", default=None)


class _Layered(dict[Any, Any]):
    """The process's variables; those of the context that asks come first."""

    def __getitem__(self, name: Any) -> Any:
        own = _own.get()
        return own[name] if own is not None and name in own else super().__getitem__(name)

    def __iter__(self) -> Iterator[Any]:
        own = _own.get() or {}
        yield from (name for name in list(super().keys()) if name not in own)
        yield from own

    def __len__(self) -> int:
        return sum(1 for _ in self)


def install() -> None:
    """From here on contexts may have variables of their own."""
    environ: Any = os.environ
    if not isinstance(environ._data, _Layered):
        environ._data = cast(Any, os.environb)._data = _Layered(environ._data)


def put(**variables: str) -> None:
    """From here on this context has these."""
    environ: Any = os.environ
    _own.set({environ.encodekey(name): environ.encodevalue(value) for name, value in variables.items()})


def of_process() -> dict[Any, Any]:
    """The process's own, whoever asks."""
    environ: Any = os.environ
    return dict(dict.items(environ._data))
