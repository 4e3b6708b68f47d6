"""Decides whether a process that has run a task may run the run's next one: only if no state is left behind.

A task's own crew, modules and folder end with it. If anything else differs (handlers, hooks, the environment, signals,
logging, threads, methods of CrewAI's), the next task has a process of its own.
"""

import asyncio
import builtins
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from crewai import LLM, Agent, Crew, Task
from crewai.events import crewai_event_bus
from crewai.hooks import InterceptionPoint
from crewai.tools import BaseTool
from crewai.tools.tool_usage import ToolUsage

from runner.adapters.crewai import crew_plan
from runner.adapters.crewai.event_routing import is_bookkeeper
from runner.bundles import context_environ, task_logging

STANDING = ("CrewAIEventsLoop", "CrewAISyncHandler", "runner-delayed-calls")
"""The names of threads that may stay: CrewAI's, which handle its events, and ours, which sends the events of tasks
(`runner.providers.redis.run_events`)."""

PATCHED = (
    (Agent, "__init__"), (Agent, "execute_task"), (Crew, "__init__"), (Crew, "kickoff"), (LLM, "__init__"),
    (LLM, "call"), (LLM, "acall"), (Task, "__init__"), (Task, "_execute_core"), (BaseTool, "run"), (ToolUsage, "_use"),
    (builtins, "print"), (builtins, "input"), (builtins, "open"),
)  # fmt: skip
"""What instruments wrap, and files: each task would do so once more. Not all there is: each is a page of memory."""

_HANDLERS = ("_sync_handlers", "_async_handlers")


def watch(*, shared: bool = False) -> Callable[[], bool]:
    """Note the state of this process before a task.

    Returns a function that tells whether the process is still the same. In a ``shared`` process other tasks run
    meanwhile, so threads and CrewAI's own handlers are not compared.
    """
    before = _seen(shared=shared)
    return lambda: (
        before is not None
        and not task_logging.outlives()
        and (shared or not _threads())
        and _seen(shared=shared) == before
    )


def _seen(*, shared: bool) -> list[object] | None:
    """What files change for their whole process; None where this CrewAI does not tell."""
    bus: Any = crewai_event_bus
    if not all(hasattr(bus, name) for name in _HANDLERS):
        return None
    return [
        *(_handlers(getattr(bus, name), of_crewai=not shared) for name in _HANDLERS),
        {point: crew_plan.own_hooks(point) for point in InterceptionPoint},
        context_environ.process_variables(),
        {number: signal.getsignal(number) for number in signal.valid_signals()},
        [sys.stdin, sys.stdout, sys.stderr, sys.excepthook, threading.excepthook, sys.gettrace(), sys.getprofile()],
        [getattr(owner, name, None) for owner, name in PATCHED],
        type(asyncio.get_event_loop_policy()),
    ]


def _handlers(found: dict[Any, Any], *, of_crewai: bool) -> dict[Any, Any]:
    """Return the handlers on the bus by kind of event, with or without CrewAI's own."""
    by_kind = {
        kind: [one for one in of_it if of_crewai or not is_bookkeeper(one)] for kind, of_it in list(found.items())
    }
    return {kind: set(of_it) for kind, of_it in by_kind.items() if of_it}


def _threads() -> list[threading.Thread]:
    """Return the threads that the task left running."""
    here = threading.current_thread()
    return [
        one
        for one in threading.enumerate()
        if one is not here and not isinstance(one, threading.Timer) and not one.name.startswith(STANDING)
    ]
