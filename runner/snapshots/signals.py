"""Signals that trigger a checkpoint: it is on disk before the signal takes its usual effect.

A signal immediately wakes a separate thread (`signal.set_wakeup_fd`), whatever the main thread is blocked in and
whichever lock it holds. That thread writes the checkpoint, and then has the signal take effect as without it: by the
default action, or by the previous handler, in the main thread. So exit codes are the process's own, and a second signal
acts without a checkpoint only if the first one's write has taken seconds.
"""

import contextlib
import contextvars
import ctypes
import logging
import os
import signal
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from runner.events.bus import event_bus
from runner.events.system_events import signal_event
from runner.providers.config import CheckpointConfig
from runner.snapshots.runtime import RuntimeState
from runner.snapshots.writer import write_now

logger = logging.getLogger("runner.snapshots")

PATIENCE = 30.0  #: seconds that the end of a kickoff waits for a checkpoint that a signal asked for
INSIST = 5.0  #: seconds that a checkpoint is being written before the same signal, sent again, acts without it
KICK_SECONDS = 0.05  #: how often the main thread is told again that a handler waits for it

_LEFT = 0x80
"""Set in what the main thread writes to the other: it got this signal, and left it to that one to have it act."""
_ALL_READ = 0
"""Written to be answered once everything before it has been seen to."""


@dataclass(frozen=True, eq=False)
class _Live:
    """A kickoff in flight, and those of its configs that name signals."""

    settings: tuple[CheckpointConfig, ...]
    state: RuntimeState | None
    context: contextvars.Context

    def wanting(self, name: str) -> list[CheckpointConfig]:
        """The configs that this signal triggers, one for each location."""
        found = {(c.location, type(c.provider)): c for c in self.settings if name in c.on_events}
        return list(found.values()) if self.state is not None else []


class _Watcher:
    """The signal handlers of this process, and the thread that writes checkpoints for them."""

    def __init__(self) -> None:
        self.process = 0
        self._before: dict[int, Any] = {}
        self._live: list[_Live] = []
        self._reading = self._writing = -1
        self._at_work = 0  # the signal that is being written for
        self._began = 0.0
        self._heard: set[int] = set()  # the main thread knows of this one, too
        self._written: set[int] = set()  # done: the main thread may pass it on
        self._acted: Counter[int] = Counter()  # signals that were seen to, and that the main thread has yet to leave
        self._unread: deque[int] = deque()
        self._asking: deque[threading.Event] = deque()
        self._warned = False

    # -- kickoffs come and go

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
                "kickoff() runs in another. In the main thread, wrap what starts it in "
                "`with runner.snapshots.signals_watched():`.",
                RuntimeWarning,
                stacklevel=2,
            )

    def leave(self, live: _Live) -> None:
        """End the watch of a kickoff. Pending checkpoints are written first."""
        try:
            self._await_thread()
        finally:
            self._live.remove(live)
        if threading.current_thread() is not threading.main_thread():
            return  # the handlers stay: they pass on what is not wanted here
        wanted = {signal.Signals[name] for one in self._live for config in one.settings for name in config.signals}
        for number in set(self._before) - wanted:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, self._before.pop(number))
        if not self._before and signal.set_wakeup_fd(-1) != self._writing:
            logger.debug("another handler has taken over the signal wakeup")

    def _installed(self, number: int) -> bool:
        return self.process == os.getpid() and signal.getsignal(number) == self._handle

    def _install(self, number: int) -> None:
        before = signal.getsignal(number)
        if before is None:  # of a C library: it could not be called by us
            logger.warning("%s writes no checkpoint: something else handles it", signal.Signals(number).name)
        elif before != self._handle:
            self._before[number] = before
            signal.signal(number, self._handle)
        self._be_woken()

    def _start_thread(self) -> None:
        if self.process != os.getpid():  # never, or in another process that forked us
            self.process = os.getpid()
            self._heard, self._written = set(), set()
            self._acted, self._unread, self._asking = Counter(), deque(), deque()
            self._reading, self._writing = os.pipe()
            os.set_blocking(self._writing, False)
            threading.Thread(target=self._listen, name="signal-checkpoints", daemon=True).start()

    def _await_thread(self) -> None:
        """Wait until the thread has handled every signal so far; it may not even have been woken yet."""
        if self.process == os.getpid():
            seen = threading.Event()
            self._asking.append(seen)
            self._write(_ALL_READ)
            seen.wait(PATIENCE)

    def _write(self, word: int) -> None:
        with contextlib.suppress(BlockingIOError):  # full of the same
            os.write(self._writing, bytes([word]))

    def _be_woken(self) -> bool:
        """Whether signals wake the thread: true unless other code has replaced the wakeup file descriptor."""
        before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        if before in (-1, self._writing):
            return True
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        return False

    # -- in the main thread, between any two bytecodes: nothing here takes a lock

    def _handle(self, number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        again = number == self._at_work and number in self._heard and time.monotonic() - self._began > INSIST
        if self.process != os.getpid() or number in self._written or again:
            self._written.discard(number)
            self._pass_on(number, frame)
        elif any(one.wanting(name) for one in self._live):
            self._heard.add(number)
            if not self._be_woken():
                self._write(number)
            self._write(number | _LEFT)
        else:
            self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: Any) -> None:
        before = self._before.get(number, signal.SIG_DFL)
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_kill(threading.get_ident(), number)
            signal.signal(number, self._handle)  # it was one that does not end the process

    # -- in the thread

    def _listen(self) -> None:
        while True:
            word = self._unread.popleft() if self._unread else os.read(self._reading, 1)[0]
            number = word & ~_LEFT
            if word == _ALL_READ:
                self._asking.popleft().set()
            elif not word & _LEFT:
                self._see_to(number)
            elif self._acted[number]:
                self._acted[number] -= 1
            else:
                os.kill(os.getpid(), number)  # the kickoff was over before it was handled; only we can have it act

    def _see_to(self, number: int) -> None:
        name = signal.Signals(number).name if number in self._before else ""
        wanting = [(live, found) for live in list(self._live) if (found := live.wanting(name))]
        if not wanting:
            self._acted[number] = 0
            return  # the main thread passes it on
        self._heard.discard(number)  # the main thread may learn of the one before only now
        self._began = time.monotonic()
        self._at_work = number
        for live, settings in wanting:
            try:
                live.context.copy().run(_write, live.state, settings, number)
            except BaseException:
                logger.exception("no checkpoint was written at %s", name)
        self._have_it_act(number)
        self._at_work = 0
        self._acted[number] += 1

    def _have_it_act(self, number: int) -> None:
        before = self._before.get(number, signal.SIG_DFL)
        if before == signal.SIG_DFL:
            _act_by_default(number)
        elif callable(before):
            self._written.add(number)
            main = threading.main_thread().ident or 0
            # A signal that comes just before the main thread begins to wait does not wake it: it is told again.
            while number in self._written:
                signal.pthread_kill(main, number)
                threading.Event().wait(KICK_SECONDS)
            self._forget_kicks(number)

    def _forget_kicks(self, kicked: int) -> None:
        """Discard the wakeups that this code caused itself, and keep others."""
        os.set_blocking(self._reading, False)
        with contextlib.suppress(BlockingIOError):
            while words := os.read(self._reading, 100):
                self._unread.extend(word for word in words if word & ~_LEFT != kicked)
        os.set_blocking(self._reading, True)


def _act_by_default(number: int) -> None:
    """Have the system perform its default action for this signal, from any thread, without the main thread."""
    if number == signal.SIGCONT:
        return  # it did: we continue
    library = ctypes.CDLL(None)
    library.signal.restype = ctypes.c_void_p
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    handler = library.signal(number, None)  # SIG_DFL is 0
    signal.pthread_kill(threading.get_ident(), number)  # acts before it returns; sent to the process, it might not
    library.signal(number, handler)  # it was stopped, and continues
    signal.siginterrupt(number, True)


def _write(state: RuntimeState | None, settings: list[CheckpointConfig], number: int) -> None:
    if state is None:
        return
    with state.lock.hurried():
        event = signal_event(number)
        event_bus.emit(None, event)
        for config in settings:
            write_now(state, config, event)


_watcher = _Watcher()


def _in_child() -> None:
    if _watcher.process:
        signal.set_wakeup_fd(-1)  # the parent listens at the other end


os.register_at_fork(after_in_child=_in_child)


@contextlib.contextmanager
def watching(
    settings: Iterable[CheckpointConfig], state: RuntimeState | None = None, *, quiet: bool = False
) -> Iterator[None]:
    """In this context, signals in ``settings`` checkpoint ``state``; None only installs handlers for other threads."""
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
    """Context for the main thread around kickoffs in others: signals ``names`` (default: all) write checkpoints."""
    events: Any = list(names) or ["SIGTERM", "SIGINT", "SIGHUP", "SIGTSTP", "SIGCONT"]
    return watching([CheckpointConfig(on_events=events)])
