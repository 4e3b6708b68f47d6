"""Processor time, of whole process groups."""

import os
from collections.abc import Iterable
from pathlib import Path


def used(groups: Iterable[int], processes: Iterable[int] = ()) -> float:
    """The seconds that all threads of these process groups, and of these processes, have been running so far."""
    wanted, total = set(groups), 0
    pids = {*processes, *(pid for pid in _pids() if _group(pid) in wanted)}
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(thread.read_text().split()[0])
            except OSError:  # it has ended
                continue
    return total / 1e9


def _pids() -> Iterable[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
