"""Processes that are forked in a task, or where its code is imported, are in no task: each tells the task's of calls.

It waits until the task has noted a call before that leaves, so that a kill of both hides none.
"""

import contextlib
import itertools
import os
import socket
import threading
from weakref import WeakValueDictionary

from runner.journal.current_journal import current_journal, sole_journal
from runner.journal.journal import Journal

_PATIENCE = 30.0  #: seconds that a call waits to be noted: for so long its task may hold the lock of its process
_LONGEST = 512


class Forks:
    """What one process knows of those that were forked in tasks: its own children, or that it is one."""

    def __init__(self) -> None:
        self.task = 0  #: in which task this process was forked; 0 for none
        self.standin: str | None = None  #: what answers that task's models, if not they
        self._forking = 0
        self._standin: str | None = None
        self._next = itertools.count(1)
        self._journals: WeakValueDictionary[int, Journal] = WeakValueDictionary()
        self._ends: tuple[socket.socket, socket.socket] | None = None
        self._is_read = False

    def before(self) -> None:
        """One is about to be forked."""
        found = current_journal(imports=True)
        if found is None:
            self._forking, self._standin = self.task, self.standin
            return
        if self._ends is None:
            self._ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._standin = found[0].standin
        self._forking = next((number for number, one in self._journals.items() if one is found[0]), 0)
        if not self._forking:
            self._forking = next(self._next)
            self._journals[self._forking] = found[0]

    def after_in_parent(self) -> None:
        """After a fork, in the parent: read from now on what the child reports."""
        if self._ends is not None and self.task == 0 and not self._is_read:
            self._is_read = True
            threading.Thread(target=self._read, args=(self._ends[0],), name="calls of forks", daemon=True).start()

    def after_in_child(self) -> None:
        """This is it."""
        self.task, self.standin, self._is_read = self._forking, self._standin, False
        self._journals.clear()
        if self._ends is not None:
            self._ends[0].close()  # when the task's process has gone, what waits for it there is to end
            if not self.task:
                self._ends[1].close()
                self._ends = None

    def report(self, where: str) -> None:
        """Report a call to the parent, and return when it has noted that; at once if the task is gone."""
        if self._ends is None:
            return
        mine, theirs = socket.socketpair()
        with mine, contextlib.suppress(OSError):
            with theirs:
                line = f"{self.task} {where}".encode()[:_LONGEST]
                socket.send_fds(self._ends[1], [line], [theirs.fileno()])
            mine.settimeout(_PATIENCE)
            mine.recv(1)  # the end of it: its other holder has closed it

    def _read(self, end: socket.socket) -> None:
        while True:
            line, (answer, *_), _, _ = socket.recv_fds(end, _LONGEST, 1)
            try:
                number, _, where = line.decode("utf-8", "replace").partition(" ")
                journal = self._journals.get(int(number))
                if journal is None or journal.is_over:  # as of a pool that is used by a later task of its process
                    journal = sole_journal()
                if journal is not None:
                    with contextlib.suppress(BaseException):  # where the task is to stop, it notices by itself
                        journal.note_unrecorded(where)
            finally:
                os.close(answer)


forks = Forks()
os.register_at_fork(before=forks.before, after_in_parent=forks.after_in_parent, after_in_child=forks.after_in_child)
