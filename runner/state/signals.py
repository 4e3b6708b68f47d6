"""Signals that trigger a checkpoint: it is on disk before the process does what the signal asks of it.

The handler itself writes nothing: it may have interrupted whoever holds a lock that a write needs. It wakes a thread,
which writes, and then sends the process the same signal again; that one goes to whoever had it before us. So exit codes
are the process's own, and an impatient second signal acts at once.
"""

import contextlib
import contextvars
import logging
import os
import queue
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from runner.config import CheckpointConfig
from runner.events.bus import event_bus
from runner.events.system_events import signal_event
from runner.state.runtime import RuntimeState
from runner.state.writer import write_now

logger = logging.getLogger("runner.state")

PATIENCE = 30.0  #: seconds that the end of a kickoff waits for a checkpoint that a signal asked for


@dataclass(frozen=True, eq=False)
class _Live:
    """A kickoff under way, and the settings in it that name signals."""

    settings: tuple[CheckpointConfig, ...]
    state: RuntimeState | None
    context: contextvars.Context

    def wanting(self, name: str) -> list[CheckpointConfig]:
        """The settings that this signal triggers, one for each place."""
        found = {(c.location, type(c.provider)): c for c in self.settings if name in c.on_events}
        return list(found.values())


class _Watcher:
    """The handlers of this process, and the thread that writes for them."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._live: list[_Live] = []
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()  # its put() may interrupt its own get()
        self._pending: set[int] = set()
        self._written: set[int] = set()
        self._idle = threading.Event()
        self._idle.set()
        self._process = 0
        self._warned = False

    def watch(self, live: _Live, *, quiet: bool) -> None:
        """Have these signals write a checkpoint of this kickoff."""
        self._live.append(live)
        names = {name for config in live.settings for name in config.signals}
        missing = sorted(name for name in names if not self._installed(signal.Signals[name]))
        if not missing:
            return
        if threading.current_thread() is threading.main_thread():
            self._start_thread()
            for name in missing:
                self._install(signal.Signals[name])
        elif not quiet and not self._warned:
            self._warned = True
            warnings.warn(
                f"{', '.join(missing)} will write no checkpoint: only the main thread can install a handler, and "
                "kickoff() runs in another. There, put `with runner.state.signals_watched():` around what starts it.",
                RuntimeWarning,
                stacklevel=2,
            )

    def leave(self, live: _Live) -> None:
        """The kickoff is over. What was asked for while it ran is written first."""
        self._idle.wait(PATIENCE)
        self._live.remove(live)
        if threading.current_thread() is not threading.main_thread():
            return  # the handlers stay: they pass on what nobody here wants
        wanted = {signal.Signals[name] for one in self._live for config in one.settings for name in config.signals}
        for number in set(self._before) - wanted:
            if signal.getsignal(number) == self._handle and number not in self._written:
                signal.signal(number, self._before.pop(number))

    def _installed(self, number: int) -> bool:
        return self._process == os.getpid() and signal.getsignal(number) == self._handle

    def _install(self, number: int) -> None:
        before = signal.getsignal(number)
        if before is None:  # of a C library: it could not be called by us
            logger.warning("%s writes no checkpoint: something else handles it", signal.Signals(number).name)
        elif before != self._handle:
            self._before[number] = before
            signal.signal(number, self._handle)

    def _start_thread(self) -> None:
        if self._process != os.getpid():  # never, or in another process that forked us
            self._process = os.getpid()
            self._pending, self._written = set(), set()
            self._asked = queue.SimpleQueue()
            self._idle.set()
            threading.Thread(target=self._write, name="signal-checkpoints", daemon=True).start()

    def _handle(self, number: int, frame: Any) -> None:
        """In the main thread, between any two bytecodes: no lock is taken here."""
        name = signal.Signals(number).name
        if self._process != os.getpid() or number in self._written or number in self._pending:
            self._written.discard(number)
            self._pass_on(number, frame)
        elif any(one.state is not None and one.wanting(name) for one in self._live):
            self._pending.add(number)
            self._idle.clear()
            self._asked.put(number)
        else:
            self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: Any) -> None:
        before = self._before.get(number, signal.SIG_DFL)
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            signal.signal(number, self._handle)  # it was one that does not end the process

    def _write(self) -> None:
        """The thread."""
        while True:
            number = self._asked.get()
            try:
                self._write_all(number)
            except BaseException:
                logger.exception("no checkpoint was written at %s", signal.Signals(number).name)
            self._written.add(number)
            self._pending.discard(number)
            main = threading.main_thread().ident
            if main is not None:
                signal.pthread_kill(main, number)
            if not self._pending:
                self._idle.set()

    def _write_all(self, number: int) -> None:
        name = signal.Signals(number).name
        for live in list(self._live):
            if live.state is not None and (wanting := live.wanting(name)):
                live.context.copy().run(_write_at_signal, live.state, wanting, number)


def _write_at_signal(state: RuntimeState, settings: list[CheckpointConfig], number: int) -> None:
    with state.lock:
        event = signal_event(number)
        event_bus.emit(None, event)
        for config in settings:
            write_now(state, config, event)


_watcher = _Watcher()


@contextlib.contextmanager
def watching(
    settings: Iterable[CheckpointConfig], state: RuntimeState | None = None, *, quiet: bool = False
) -> Iterator[None]:
    """While in this context, the signals that ``settings`` name write a checkpoint of ``state``.

    Without a state, handlers are installed for kickoffs in other threads.
    """
    named = tuple(config for config in settings if config.signals)
    if not named:
        yield
        return
    live = _Live(named, state, contextvars.copy_context())
    _watcher.watch(live, quiet=quiet)
    try:
        yield
    finally:
        _watcher.leave(live)


def signals_watched(*names: str) -> contextlib.AbstractContextManager[None]:
    """To put around kickoffs in other threads, in the main thread: signals then write their checkpoints.

    ``names`` are those to watch, all five unless given.
    """
    events: Any = list(names) or ["SIGTERM", "SIGINT", "SIGHUP", "SIGTSTP", "SIGCONT"]
    return watching([CheckpointConfig(on_events=events)])
