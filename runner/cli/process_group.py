"""Runs several ``runner`` commands together, for ``runner up``."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from runner.cli.stdio import say
from runner.core.processes import end_with_parent
from runner.core.settings import WorkerSettings

MARGIN = 20.0  #: seconds that a part gets to end, over what its tasks in flight get


def run_together(commands: Mapping[str, Sequence[str]], *, tend: Callable[[], object]) -> int:
    """Until a signal, or until one of them exits; then all are asked to stop. Returns the exit code.

    What a part prints goes to stderr with its name before each line.
    """
    grace = WorkerSettings().drain_timeout + MARGIN
    asked: list[int] = []
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # ignored: as `nohup` wants it
            signal.signal(signum, lambda signum, _: asked.append(signum))
    parts: dict[str, subprocess.Popen[str]] = {}
    printers = []
    ended = ""
    try:
        for name, command in commands.items():
            parts[name] = _start(command)
            label = name.ljust(max(map(len, commands)))
            printers.append(threading.Thread(target=_print, args=(label, parts[name].stdout), daemon=True))
            printers[-1].start()
        while not asked and not ended:
            time.sleep(0.1)
            tend()
            ended = next((name for name, part in parts.items() if part.poll() is not None), "")
    finally:
        _end(list(parts.values()), printers, asked, grace)
    if asked:
        return 0
    say(f"error: {ended} exited unexpectedly with status {parts[ended].returncode}; everything was stopped")
    return 1


def _start(command: Sequence[str]) -> "subprocess.Popen[str]":
    parent = os.getpid()

    def begin() -> None:
        end_with_parent()
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        [sys.executable, "-P", "-m", "runner", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C in a terminal reaches us alone
        preexec_fn=begin,
    )


def _print(name: str, lines: IO[str]) -> None:
    for line in lines:
        say(f"{name}  {line.rstrip()}")


def _end(
    parts: "list[subprocess.Popen[str]]", printers: list[threading.Thread], asked: list[int], grace: float
) -> None:
    """Ask all to end, once more at each further signal: a worker that is asked a third time does not wait."""
    deadline = time.monotonic() + grace
    shown = 0
    # A printer ends when its part and all that it started have: they hold the same pipe.
    while any(part.poll() is None for part in parts) or any(printer.is_alive() for printer in printers):
        late = time.monotonic() > deadline
        if late or max(len(asked), 1) > shown:
            shown = max(len(asked), 1)
            for part in parts:
                if part.poll() is None:
                    part.kill() if late else part.terminate()
        if late:
            return
        time.sleep(0.05)
