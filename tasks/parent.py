"""The parent of a worker: restarts it when it dies, passes on what it is asked, and never leaves it behind alone."""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from runner.core.settings import WorkerSettings

QUICK = 10.0  #: a worker that lived shorter than this many seconds is restarted with a pause
LONGEST_PAUSE = 10.0
GAVE_UP = 70  #: exit code of a worker that does not start
MARGIN = 5.0  #: seconds beyond the drain timeout that a worker gets to end
LOOK = 0.05  #: seconds between looks for one that ended, where the kernel does not tell
REQUESTS = "RUNNER_ENVIRONMENTS_FD"  #: where a worker reads which descriptor takes its requests
_PR_SET_PDEATHSIG = 1
_MAIN = ("-P", "-m", "runner.tasks.worker")  # -P: what lies in the working directory is not ours
_BUILDER = ("-P", "-m", "runner.tasks.environment")


def run(
    environments: Sequence[Mapping[str, str]],
    *,
    until: Callable[[], bool] | None = None,
    poll: float = 1.0,
    tries: int | None = None,
) -> int:
    """Keep a worker running in each of these environments until asked to end, or until ``until()`` says so.

    Returns the exit code. After ``tries`` deaths of one in a row, each soon after the start, it gives up.
    """
    asked: list[int] = []
    heard, tell = os.pipe()  # a worker is always told by SIGTERM; here it reads what we were told by
    os.set_blocking(heard, False)
    wanted, want = os.pipe()  # requests for workers in other environments: see `runner.tasks.environments`
    os.set_blocking(wanted, False)
    parts = [
        {**os.environ, **one, "RUNNER_ASKED_FD": str(heard), REQUESTS: str(want), "RUNNER_PART": str(number)}
        for number, one in enumerate(environments)
    ]
    workers = [_Kept(one, (heard, want)) for one in parts]

    def ask(signum: int, _frame: FrameType | None) -> None:
        asked.append(signum)
        os.write(tell, bytes([signum]) * len(workers))
        for one in workers:  # once is enough; whoever asks a third time means it
            one.send(signal.SIGTERM if len(asked) < 3 else signal.SIGKILL)

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, ask)
    while not asked:
        for one in workers:
            one.start()
        if asked:  # it came between two children
            break
        _wait(workers, poll, wanted)
        if asked:
            break
        for request in _requests(wanted):
            settings = _in_environment(parts, request)
            name = f"{settings['RUNNER_PART']} {settings['RUNNER_ENVIRONMENT']}"
            if not any(one.name == name for one in workers):
                workers.append(_Kept(settings, (heard,), _BUILDER, name))
        pending = not all(one.runs for one in workers)
        ended = [one for one in workers if one.has_ended()]
        if until is not None and not pending and all(one.code == 0 for one in ended) and until():
            _end(workers, poll)
            if asked or (all(one.code == 0 for one in workers) and until()):
                return 0
            continue  # there is something to do again
        for one in ended:
            if one.name and one.code == 0:  # it had nothing to do
                workers.remove(one)
            elif not one.again(None if one.name else tries):
                print(
                    f"runner worker: it ended {tries} times shortly after starting; giving up",
                    file=sys.stderr,
                    flush=True,
                )
                _end(workers, poll)
                return GAVE_UP
    _end(workers, poll)
    return 0


class _Kept:
    """One worker that is kept running."""

    def __init__(
        self, environment: Mapping[str, str], passed: Sequence[int], command: Sequence[str] = _MAIN, name: str = ""
    ) -> None:
        self._environment, self._passed, self._command, self.name = environment, passed, command, name
        self._child: subprocess.Popen[bytes] | None = None
        self._started = self._due = 0.0
        self._pause, self._quick_deaths = 0.1, 0
        self._told = False
        self.pidfd: int | None = None
        self.code = 0

    @property
    def due(self) -> float:
        """In how many seconds it is to be started; infinite while it runs."""
        return float("inf") if self._child is not None else self._due - time.monotonic()

    def start(self) -> None:
        """Start it, if it does not run and its pause is over."""
        if self.due > 0:
            return
        self._started, self._told = time.monotonic(), False
        self._child = subprocess.Popen(
            [sys.executable, *self._command],
            env=self._environment,
            pass_fds=self._passed,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )
        with contextlib.suppress(OSError, AttributeError):  # no such call (macOS)
            self.pidfd = os.pidfd_open(self._child.pid)

    def send(self, signum: int) -> None:
        """Send it a signal, if it runs."""
        if self._child is not None:
            self._child.send_signal(signum)
            self._told = True

    def ask(self) -> None:
        """Ask it to end, unless it was."""
        if not self._told:
            self.send(signal.SIGTERM)

    def has_ended(self) -> bool:
        """Whether it ran, and ended since the last look. Its exit code is in ``code``."""
        if self._child is None or (code := self._child.poll()) is None:
            return False
        self.code, self._child = code, None
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        return True

    def again(self, tries: int | None) -> bool:
        """Have it started again after a pause; False if it died too often."""
        lived = time.monotonic() - self._started
        self._quick_deaths = 0 if lived > QUICK or self.code < 0 else self._quick_deaths + 1
        if tries is not None and self._quick_deaths >= tries:
            return False
        self._pause = 0.1 if lived > QUICK else min(self._pause * 2, LONGEST_PAUSE)
        print(
            f"runner worker: the worker process exited with status {self.code}; starting another",
            file=sys.stderr,
            flush=True,
        )
        self._due = time.monotonic() + self._pause
        return True

    @property
    def runs(self) -> bool:
        """Whether it was started, and is not known to have ended."""
        return self._child is not None


def _requests(wanted: int) -> list[str]:
    """What was asked for since the last look, each once."""
    with contextlib.suppress(BlockingIOError):
        return list(dict.fromkeys(os.read(wanted, 1 << 16).decode().splitlines()))
    return []


def _in_environment(parts: Sequence[Mapping[str, str]], request: str) -> dict[str, str]:
    """The settings of a worker in another environment, of the part that asked for it."""
    asked = json.loads(request)
    part = parts[asked["part"]]
    own = {
        "RUNNER_QUEUE": asked["queue"],
        "RUNNER_ENVIRONMENT": asked["digest"],
        "RUNNER_ENVIRONMENT_BUNDLE": asked["bundle"],
        "RUNNER_ENVIRONMENT_FILE": asked["file"],
    }
    return {name: value for name, value in part.items() if name != REQUESTS} | own


def _wait(workers: Sequence[_Kept], seconds: float, wanted: int | None = None) -> None:
    """Until one of them ends or is to be started, or something is ``wanted``, for so long at most."""
    left = min(seconds, *(max(one.due, 0) for one in workers))
    running = [one for one in workers if one.runs]
    if any(one.pidfd is None for one in running):
        time.sleep(min(left, LOOK))
        return
    watched = select.poll()
    if wanted is not None:
        watched.register(wanted, select.POLLIN)
    for one in running:
        watched.register(one.pidfd or 0, select.POLLIN)
    watched.poll(left * 1000)


def _end(workers: Sequence[_Kept], poll: float) -> None:
    """Ask them to end, and wait; kill those that have not when the drain timeout is long over."""
    end = time.monotonic() + WorkerSettings().drain_timeout + MARGIN
    for one in workers:
        one.ask()
    while any(one.runs for one in workers):
        for one in workers:
            if not one.has_ended() and time.monotonic() > end:
                one.send(signal.SIGKILL)
        running = [one for one in workers if one.runs]
        if running:
            _wait(running, poll)


def end_with_parent(signum: int = signal.SIGTERM) -> None:
    """Linux: a parent that is killed takes this process along; a worker that is asked to end hands its tasks back."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)
