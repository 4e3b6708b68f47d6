"""Several ``runner`` commands side by side, as ``runner up`` runs them."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import IO

from runner.settings import WorkerSettings

MARGIN = 20.0  #: seconds that a part gets to end, over what its tasks in flight get
_PR_SET_PDEATHSIG = 1


def run_together(commands: Mapping[str, Sequence[str]], *, tend: Callable[[], None]) -> int:
    """Until a signal, or until one of them ends by itself; then all are asked to end. Returns the exit code.

    What a part prints goes to stderr with its name before each line.
    """
    parts: dict[str, subprocess.Popen[str]] = {}
    asked: list[int] = []

    def ask(signum: int, _frame: FrameType | None) -> None:
        asked.append(signum)
        for part in parts.values():
            if part.poll() is None:
                part.terminate()  # each time: a worker that is asked three times does not wait for its tasks

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, ask)
    width = max(map(len, commands))
    for name, command in commands.items():
        if not asked:
            parts[name] = _start(command)
    printers = [
        threading.Thread(target=_print, args=(name.ljust(width), part.stdout), daemon=True)
        for name, part in parts.items()
    ]
    for printer in printers:
        printer.start()
    ended = ""
    while not asked and not ended:
        time.sleep(0.1)
        tend()
        ended = next((name for name, part in parts.items() if part.poll() is not None), "")
    _end(list(parts.values()))
    for printer in printers:
        printer.join(1.0)
    if not ended or asked:
        return 0
    print(f"error: {ended} ended by itself, with {parts[ended].returncode}; the others were ended too", file=sys.stderr)
    return 1


def _start(command: Sequence[str]) -> "subprocess.Popen[str]":
    parent = os.getpid()

    def end_with_parent() -> None:
        # Linux: one that is killed leaves nothing behind.
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

    return subprocess.Popen(
        [sys.executable, "-m", "runner", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C in a terminal reaches us alone; we pass it on in order
        preexec_fn=end_with_parent,
    )


def _print(name: str, lines: IO[str]) -> None:
    for line in lines:
        print(f"{name}  {line.rstrip()}", file=sys.stderr, flush=True)


def _end(parts: "list[subprocess.Popen[str]]") -> None:
    for part in parts:
        if part.poll() is None:
            part.terminate()
    end = time.monotonic() + WorkerSettings().drain_timeout + MARGIN
    for part in parts:
        try:
            part.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            part.kill()
            part.wait()
