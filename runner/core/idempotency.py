"""The idempotency key of a tool use, the same for each attempt."""

import uuid
from contextvars import ContextVar

from runner.core.context_value import ContextValue

_key: ContextVar[str | None] = ContextVar("runner_idempotency_key", default=None)
task_origin: ContextVar[str] = ContextVar("runner_idempotency_origin", default="")
"""What the keys of the task at hand begin with; "" where none is."""


def idempotency_key() -> str:
    """The key of the tool call that this is called in: ``run:task:n``; in a fork's branch, with its name.

    A tool whose process dies between its effect and the record is used again, with the same key: give it to the service
    that has the effect, and it has it once. Outside of any tool call it is another one each time.
    """
    return _key.get() or str(uuid.uuid4())


def key_of_use() -> str | None:
    """The key of the tool call that this is called in; None outside of any."""
    return _key.get()


def keyed(key: str) -> ContextValue[str | None]:
    """In this context, `idempotency_key` gives this one."""
    return ContextValue(_key, key)


def origin() -> str:
    """What the keys of the task at hand begin with; "" where none is."""
    return task_origin.get()


def originating(name: str) -> ContextValue[str]:
    """In this context, keys begin with this."""
    return ContextValue(task_origin, name)
