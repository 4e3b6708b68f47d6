"""Environment variables for each context: a process that runs several tasks at a time gives each its own.

`os.environ` shows the variables of the current context first, then those of the process. A child process does not
inherit the context's variables, so this is only for code that starts none.
"""

import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast

_own: ContextVar[Mapping[Any, Any] | None] = ContextVar("runner_context_environ", default=None)


class _Layered(dict[Any, Any]):
    """The variables of the current context, then those of the process."""

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
    """Let each context of this process have environment variables of its own."""
    environ: Any = os.environ
    if not isinstance(environ._data, _Layered):
        environ._data = cast(Any, os.environb)._data = _Layered(environ._data)


def set_variables(**variables: str) -> None:
    """Set these variables in the current context, instead of all that were set there before."""
    environ: Any = os.environ
    _own.set({environ.encodekey(name): environ.encodevalue(value) for name, value in variables.items()})


def process_variables() -> dict[Any, Any]:
    """The variables of the process, without those of the current context."""
    environ: Any = os.environ
    return dict(dict.items(environ._data))
