"""The parent of a worker: restarts it when it dies, passes on what it is asked, and never leaves it behind alone."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType

from runner.core.settings import WorkerSettings

QUICK = 10.0  #: a worker that lived shorter than this many seconds is restarted with a pause
LONGEST_PAUSE = 10.0
GAVE_UP = 70  #: exit code of a worker that does not start
MARGIN = 5.0  #: seconds beyond the drain timeout that a worker gets to end
_PR_SET_PDEATHSIG = 1


def run(
    environment: Mapping[str, str],
    *,
    until: Callable[[], bool] | None = None,
    poll: float = 1.0,
    tries: int | None = None,
) -> int:
    """Keep one worker running until asked to end, or until ``until()`` says so. Returns the exit code.

    After ``tries`` deaths in a row, each soon after the start, it gives up.
    """
    quick_deaths = 0
    asked: list[int] = []
    heard, tell = os.pipe()  # the worker is always told by SIGTERM; here it reads what we were told by
    os.set_blocking(heard, False)
    child: subprocess.Popen[bytes] | None = None

    def ask(signum: int, _frame: FrameType | None) -> None:
        asked.append(signum)
        os.write(tell, bytes([signum]))
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                # Once is enough; whoever asks a third time means it.
                child.send_signal(signal.SIGTERM if len(asked) < 3 else signal.SIGKILL)

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, ask)
    pause = 0.1
    while not asked:
        started = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "runner.tasks.worker"],  # -P: what lies in the working directory is not ours
            env={**os.environ, **environment, "RUNNER_ASKED_FD": str(heard)},
            pass_fds=(heard,),
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )
        if asked:  # it came between two children
            child.send_signal(signal.SIGTERM)
        code = _wait(child, asked, until, poll)
        if asked or (until is not None and code == 0 and until()):
            return 0
        quick_deaths = 0 if time.monotonic() - started > QUICK or code < 0 else quick_deaths + 1
        if tries is not None and quick_deaths >= tries:
            print(
                f"runner worker: it ended {tries} times shortly after starting; giving up", file=sys.stderr, flush=True
            )
            return GAVE_UP
        pause = 0.1 if time.monotonic() - started > QUICK else min(pause * 2, LONGEST_PAUSE)
        print(
            f"runner worker: the worker process exited with status {code}; starting another",
            file=sys.stderr,
            flush=True,
        )
        time.sleep(pause)
    return 0


def _wait(child: "subprocess.Popen[bytes]", asked: list[int], until: Callable[[], bool] | None, poll: float) -> int:
    """Wait until the worker exits; kill it if it was asked to stop and the drain timeout is long over."""
    patience = WorkerSettings().drain_timeout + MARGIN
    end: float | None = None
    while True:
        try:
            return child.wait(timeout=poll)
        except subprocess.TimeoutExpired:
            if end is None and not asked and until is not None and until():
                child.send_signal(signal.SIGTERM)
                end = time.monotonic() + patience
            elif end is None and asked:
                end = time.monotonic() + patience
            elif end is not None and time.monotonic() > end:
                child.kill()


def end_with_parent(signum: int = signal.SIGTERM) -> None:
    """Linux: a parent that is killed takes this process along; a worker that is asked to end hands its tasks back."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)
