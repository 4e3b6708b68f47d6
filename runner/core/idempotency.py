"""The idempotency key of a tool use, the same for each attempt."""

import uuid
from contextvars import ContextVar

from runner.core.context_value import ContextValue

_key: ContextVar[str | None] = ContextVar("runner_idempotency_key", default=None)
task_origin: ContextVar[str] = ContextVar("runner_idempotency_origin", default="")
"""What the keys of the task at hand begin with; "" where none is."""


def idempotency_key() -> str:
    """Return the key of the current tool call: ``run:task:n``; on a fork's branch, with the branch's name.

    A tool call whose process dies before its record is made again with the same key: pass it to the service, so that
    the effect happens once. Outside a tool call, each key is new.
    """
    return _key.get() or str(uuid.uuid4())


def key_of_use() -> str | None:
    """Return the key of the current tool call; None outside one."""
    return _key.get()


def keyed(key: str) -> ContextValue[str | None]:
    """In this context, `idempotency_key` returns this key."""
    return ContextValue(_key, key)


def origin() -> str:
    """Return the prefix of the current task's keys; "" outside a task."""
    return task_origin.get()


def originating(name: str) -> ContextValue[str]:
    """In this context, keys begin with this prefix."""
    return ContextValue(task_origin, name)
