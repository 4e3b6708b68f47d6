"""Runs synchronous code on an event loop: in a greenlet, which switches away while it waits."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")


async def on_loop(do: Callable[[], T]) -> T:
    """Call ``do`` in this context and asyncio task; what it has to await, it passes to `awaited`."""
    here = getcurrent()
    inner = greenlet(do, here)
    inner.gr_context = here.gr_context  # its own, not a copy: what it sets stays set
    found: Any = inner.switch()
    while not inner.dead:
        try:
            value = await found
        except BaseException as error:
            found = inner.throw(error)
        else:
            found = inner.switch(value)
    return found  # type: ignore[no-any-return]  # greenlet is untyped


def awaited(wanted: Awaitable[T]) -> T:
    """Inside `on_loop`: await this while the loop runs other work."""
    return getcurrent().parent.switch(wanted)  # type: ignore[no-any-return]  # greenlet is untyped
