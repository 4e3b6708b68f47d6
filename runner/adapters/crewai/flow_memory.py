"""Imports LanceDB, which each flow uses for its memory, once before processes are forked: it takes half a second.

Its import begins a thread with an event loop, which a fork would lack. Here that thread begins in whichever process
first uses LanceDB.
"""

import importlib
import os
import threading
import warnings
from typing import Any
from unittest import mock

from runner.adapters.crewai.fork_warmup import leaves_nothing

_MODULE = "lancedb.background_loop"

#: Arrow, which comes with it, has an allocator that would begin a thread, too.
ARROW = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


def share() -> None:
    """Import LanceDB here, if that leaves no more threads or open files than before."""
    if leaves_nothing(_import):
        _import()


def _import() -> None:
    begin, held = threading.Thread.start, list[threading.Thread]()

    def begin_others(thread: threading.Thread) -> None:
        if "lancedb" in thread.name.lower():
            held.append(thread)
        else:
            begin(thread)

    with (
        mock.patch.object(threading.Thread, "start", begin_others),
        mock.patch.dict(os.environ, {**ARROW, **os.environ}),
    ):
        importlib.import_module("crewai.memory.storage.lancedb_storage")
    if held:
        _begin_when_asked(importlib.import_module(_MODULE).LOOP)


def _begin_when_asked(loop: Any) -> None:
    """Have LanceDB's own object begin its thread and its event loop when they are first used, in each process."""

    class WhenAsked(type(loop)):  # type: ignore[misc]  # LanceDB may not be installed: its class is known here
        def _start(self) -> None:
            """Nothing yet. LanceDB calls this in each fork: what was begun before that is not there."""
            for name in ("loop", "thread"):
                self.__dict__.pop(name, None)
            self.__dict__["_beginning"] = threading.Lock()

        def __getattr__(self, name: str) -> Any:
            if name not in ("loop", "thread"):
                raise AttributeError(name)
            with self._beginning:
                if name not in self.__dict__:
                    super()._start()
            return self.__dict__[name]

    loop.loop.close()
    loop.__class__ = WhenAsked
    loop._start()
    # It warns in each fork that something may have been under way: nothing was.
    warnings.filterwarnings("ignore", "lancedb fork support is experimental", RuntimeWarning)
