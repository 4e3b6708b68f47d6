"""Runs coroutines for callers that do not await."""

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def wait_for(coroutine: Any) -> Any:
    """The result of a coroutine, also where this thread's event loop is already running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="flow") as pool:
        return pool.submit(context.run, asyncio.run, coroutine).result()
