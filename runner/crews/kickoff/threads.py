"""Kickoffs that are awaited, in threads."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from runner.snapshots.scope import settings_of
from runner.snapshots.signals import watching

T = TypeVar("T")


async def in_thread(entity: Any, function: Callable[..., T], *args: Any, config: Any = None) -> T:
    """``function(*args)`` in a thread; signals that trigger checkpoints are watched from here, for only the main
    thread can. ``config`` is a checkpoint's that is given beside that of the entity."""
    with watching([*settings_of(entity), *([config] if config is not None else [])], quiet=True):
        return await asyncio.to_thread(function, *args)
