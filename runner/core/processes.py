"""What the kernel says of the processes of this machine, and does with them."""

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def state(pid: int | str) -> str:
    """Return the letter of its state in ``/proc``; "" if there is no such process, or no ``/proc``."""
    if not str(pid).isdigit():  # /proc has other files, too
        return ""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def runs(pid: int | str) -> bool:
    """Whether the process exists and is not a zombie."""
    return state(pid) not in ("", "Z", "X")


def end_with_parent(signum: int = signal.SIGTERM) -> None:
    """On Linux, send this process the signal when its parent dies, so that a killed parent leaves nothing behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)


def leave(error: BaseException | None) -> NoReturn:
    """End a process that a task's code has forked, where that code ends, by ``error`` or none, as Python ends one.

    What is around the code is the parent's: the task, its store, and the processes' pool.
    """
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)
