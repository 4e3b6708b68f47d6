"""A fast test leaves its process as it found it: else a later one, in some order or other, fails for what it did."""

import asyncio
import builtins
import contextvars
import gc
import inspect
import io
import logging
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from _signal import getsignal  # without the enumeration, which takes ten times as long
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

PLACES = (builtins, io, os, random, signal, socket, sqlite3, subprocess, tempfile, threading, time, asyncio)
"""Modules whose functions product and tests put others in the place of."""

CLASSES = (logging.Logger, logging.StreamHandler)
ON_DEMAND = ("tempdir", "_name_sequence")  #: what `tempfile` finds when it is first asked
SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGALRM}  #: the last is pytest-timeout's
GONE_WITHIN = 10.0  #: seconds for a thread that has nothing more to do

State = dict[str, Any]


def state() -> State:
    """What tests have in common: what is compared in one step has one name."""
    root = logging.root
    found: State = {module.__name__: vars(module).copy() for module in PLACES}
    for name in ON_DEMAND:
        del found["tempfile"][name]
    for one in CLASSES:
        found[one.__qualname__] = dict(vars(one))
    found["os.environ"] = os.environ._data.copy()
    found["signals"] = {number: getsignal(number) for number in SIGNALS}
    found["context"] = contextvars.copy_context()
    found["process"] = {
        "working directory": Path.cwd(), "sys.path": sys.path.copy(),
        "root logger": (root.level, root.handlers.copy(), root.filters.copy(), root.disabled, root.manager.disable),
        "logging.lastResort": logging.lastResort, "default timeout of sockets": socket.getdefaulttimeout(),
        "sys.excepthook": sys.excepthook, "threading.excepthook": threading.excepthook, "sys.stdin": sys.stdin,
        "sys.gettrace()": sys.gettrace(), "sys.getprofile()": sys.getprofile(), "gc.isenabled()": gc.isenabled(),
        "sys.getswitchinterval()": sys.getswitchinterval(), "sys.getrecursionlimit()": sys.getrecursionlimit(),
    }  # fmt: skip
    return found


def changes(before: State, after: State) -> list[str]:
    """What is not as it was."""
    found = []
    for name in before:
        if before[name] != after[name]:
            was, now = dict(before[name]), dict(after[name])
            for key in {**was, **now}:
                if key not in was or key not in now or was[key] != now[key]:
                    one = signal.Signals(key).name if name == "signals" else getattr(key, "name", key)
                    found.append(f"{name}: {os.fsdecode(one) if isinstance(one, (str, bytes)) else one}")
    return found


class LeftBehind:
    """Fails the fast test after which something is not as it was before; each is in a context of its own, as a task is.

    Not the first one of a session that is not skipped, nor the last: its own fixtures come and go with those.
    ``threads``: those that a test leaves count, too, unless others of the session may have left some.
    """

    def __init__(self, threads: bool) -> None:
        self._before: State | None = None
        self._after: State | None = None
        self._is_first = self._is_skipped = True
        self._with_threads = threads
        self._threads_before: set[int] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """From before its fixtures."""
        is_checked = not self._is_first and item.get_closest_marker("fast")
        self._before = (self._after or state()) if is_checked else None
        self._after = None
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        """With its fixtures, and those of the session, which a test that is skipped does not make."""
        self._is_skipped = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """What it sets in its context ends with it."""
        if not pyfuncitem.get_closest_marker("fast") or inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        contextvars.copy_context().run(pyfuncitem.obj, **given)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Generator[None, None, None]:
        """Until they are gone."""
        yield
        if self._is_first:
            self._is_first, self._threads_before = self._is_skipped, set(threading._active)
        elif self._before is not None and nextitem is not None:
            self._after = state()
            found = changes(self._before, self._after)
            if self._with_threads:
                found += self._threads()
            if found:
                pytest.fail("this is not as it was before the test:\n" + "\n".join(found), pytrace=False)

    def _threads(self) -> list[str]:
        """Those that came with this test, and that are there after it."""
        if threading._active.keys() <= self._threads_before:
            return []
        until = time.monotonic() + GONE_WITHIN
        left = [one for ident, one in [*threading._active.items()] if ident not in self._threads_before]
        for one in left:
            one.join(max(0.0, until - time.monotonic()))
        self._threads_before = set(threading._active)
        return [f"thread: {one.name}" for one in left if one.is_alive()]
