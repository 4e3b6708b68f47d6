"""Waits for the exit of processes of this machine, which the kernel reports at once."""

import os
import select
from collections.abc import Iterable
from contextlib import suppress

from runner.tasks.descriptors import out_of_the_way

UNWATCHED = -1  #: in the place of a file: of a process that has exited, or that the kernel reports nothing of


class ExitWatch:
    """A wait that ends early when a watched process exits, or when `wake` is called.

    `wake` may be called from any thread and in a signal's handler; the other methods are for the thread that waits.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)
        self._files: dict[int, int] = {}

    def __del__(self) -> None:
        self.watch(())
        for end in (self._read, self._write):
            os.close(end)

    def wake(self) -> None:
        """End the present wait, or the next one."""
        with suppress(BlockingIOError):  # full: it is woken as it is
            os.write(self._write, b"w")

    def watch(self, pids: Iterable[int]) -> None:
        """Watch these processes, and no others."""
        wanted = set(pids)
        for pid in self._files.keys() - wanted:
            _close(self._files.pop(pid))
        for pid in wanted - self._files.keys():
            try:
                self._files[pid] = out_of_the_way(os.pidfd_open(pid))
            except (OSError, AttributeError):  # it is gone; or this is not Linux
                self._files[pid] = UNWATCHED

    def watches(self, pids: Iterable[int]) -> bool:
        """Whether the exit of each of these processes will be reported."""
        return all(self._files.get(pid, UNWATCHED) != UNWATCHED for pid in pids)

    def wait(self, seconds: float) -> bool:
        """Wait for so many seconds at most. Returns whether a watched process has exited."""
        watched = select.poll()  # no select: it knows the first 1,024 descriptors of a process only
        for file in (self._read, *self._files.values()):
            if file != UNWATCHED:
                watched.register(file, select.POLLIN)
        ready = {file for file, _ in watched.poll(seconds * 1000)}
        if self._read in ready:
            os.read(self._read, 64)
        exited = [pid for pid, file in self._files.items() if file in ready]
        for pid in exited:
            _close(self._files[pid])
            self._files[pid] = UNWATCHED
        return bool(exited)


def _close(file: int) -> None:
    if file != UNWATCHED:
        os.close(file)
