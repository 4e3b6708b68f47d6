"""What the kernel says of the processes of this machine, and does with them."""

import ctypes
import signal
import sys
from pathlib import Path

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
