"""Kickoffs that are awaited."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from runner.snapshots.scope import settings_of
from runner.snapshots.signals import watching

T = TypeVar("T")


async def in_thread(entity: Any, function: Callable[..., T], *args: Any) -> T:
    """``function(*args)`` in a thread; signals that trigger checkpoints are watched from here, for only the main
    thread can."""
    config = args[-1] if args and args[-1] is not None else None
    with watching([*settings_of(entity), *([config] if config is not None else [])], quiet=True):
        return await asyncio.to_thread(function, *args)
