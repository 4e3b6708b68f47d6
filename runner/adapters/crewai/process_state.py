"""Whether a process is as it was before the code of a crew was loaded in it: then that of the next task may be, too.

The code of each task is loaded again, and its crew made again. What a load adds to a process would be there twice after
the next one, and what is left running would run beside the next task: then that gets a new process.
"""

import atexit
import logging
import os
import signal
import sys
import threading
from typing import Any

from crewai import LLM, Agent, BaseLLM, Crew, Task
from crewai.events import crewai_event_bus
from crewai.flow import Flow
from crewai.hooks import InterceptionPoint, get_hooks

from runner.adapters.crewai.event_routing import is_bookkeeper

log = logging.getLogger(__name__)

_OWN_THREADS = ("CrewAISyncHandler", "CrewAIEventsLoop")  # of CrewAI's bus, for good
_WRAPPED = (Agent, BaseLLM, Crew, Flow, LLM, Task)  # what code that watches CrewAI wraps methods of

_begun: list["ProcessState"] = []


def begin() -> None:
    """The code of a run is about to be loaded here for the first time, or again."""
    if not _begun:
        _begun.append(ProcessState())


def is_as_before() -> bool:
    """Set the environment and the import paths as they were then; return whether nothing else is different."""
    if not _begun:
        return False
    changed = _begun[0].restore()
    if changed:
        log.debug("the next task of the run gets a new process, because this one has other %s", ", ".join(changed))
    return not changed


class ProcessState:
    """What a process is like when this is made."""

    def __init__(self) -> None:
        self._environment, self._paths = dict(os.environ), list(sys.path)
        self._modules, self._seen = dict(sys.modules), _seen()

    def restore(self) -> list[str]:
        """Set the environment and the import paths again. Returns what else is different."""
        os.environ.clear()
        os.environ.update(self._environment)
        sys.path[:] = self._paths
        seen = _seen()
        changed = [name for name, before in self._seen.items() if seen[name] != before]
        return changed + [name for name, module in self._modules.items() if sys.modules.get(name) is not module]


def _seen() -> dict[str, Any]:
    return {
        "threads": {one for one in threading.enumerate() if not one.name.startswith(_OWN_THREADS)},
        "handlers of signals": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "functions at its end": atexit._ncallbacks(),
        "handlers of loggers": _log_handlers(),
        "handlers of events": [_of_code("_sync_handlers"), _of_code("_async_handlers")],
        "hooks": [get_hooks(point) for point in InterceptionPoint],
        "finders of modules": [one for one in sys.meta_path if not is_bookkeeper(one)],
        "streams": [sys.stdin, sys.stdout, sys.stderr, sys.excepthook, threading.excepthook],
        "methods": [{name: one for name, one in vars(owner).items() if _is_code(one)} for owner in _WRAPPED],
    }


def _log_handlers() -> dict[str, list[logging.Handler]]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    return {one.name: list(one.handlers) for one in loggers if isinstance(one, logging.Logger) and one.handlers}


def _of_code(name: str) -> object:
    """The crew's own handlers on CrewAI's bus, by event. CrewAI adds its own when it needs them, each once."""
    all_of_them = getattr(crewai_event_bus, name, None)
    if all_of_them is None:  # another CrewAI: never the same
        return object()
    found = {event: {one for one in handlers if not is_bookkeeper(one)} for event, handlers in all_of_them.items()}
    return {event: handlers for event, handlers in found.items() if handlers}


def _is_code(one: object) -> bool:
    return callable(one) or isinstance(one, classmethod | staticmethod | property)
