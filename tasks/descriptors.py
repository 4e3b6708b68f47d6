"""Moves the file descriptors that a worker's main process has for its pool out of the low numbers."""

import contextlib
import fcntl
import os

PLAIN = 1024  #: the numbers that `select` knows: those below are left to tasks, whose processes inherit all files


def out_of_the_way(number: int) -> int:
    """The same open file under a number that no task needs, where this process may have one; its old one is closed."""
    with contextlib.suppress(OSError, ValueError):  # it may have no such numbers
        moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, PLAIN)
        os.close(number)
        return moved
    return number
