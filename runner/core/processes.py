"""Reads the kernel's information about a process of this machine."""

from pathlib import Path


def state(pid: int | str) -> str:
    """The letter of its state in ``/proc``; "" where there is no such process, or no ``/proc``."""
    if not str(pid).isdigit():  # /proc has other files, too
        return ""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def runs(pid: int | str) -> bool:
    """Whether there is such a process, and not only a zombie's exit code."""
    return state(pid) not in ("", "Z", "X")
