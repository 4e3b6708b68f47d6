"""Locks that tell, in a forked child, which of them it takes that another thread of its parent held at the fork.

An interpreter imports this as it starts, where its folder is in ``PYTHONPATH``. A thread that is not the main one waits
a moment with each lock that it takes, so that forks come upon all that the threads of a process ever hold.
"""

import _thread
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

PAUSE = 0.02  #: seconds
_main, _pid = _thread.get_ident(), os.getpid()
_plain, _reentrant, _sleep = _thread.allocate_lock, threading.RLock, time.sleep
_holding: "set[Watched]" = set()
_own = ("threading.py", "queue.py")  #: where it says nothing of whose the lock is


def _where() -> str:
    frame: Any = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.endswith((*_own, "sitecustomize.py")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"


class Watched:
    """A lock that knows who holds it."""

    def __init__(self, lock: Any = None) -> None:
        self._lock: Any = _plain() if lock is None else lock
        self._holder, self._taken, self._made = (0, 0), "", _where()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, and say so if that waits for a thread that this process does not have."""
        me = _thread.get_ident()
        pid, thread = self._holder
        if pid and pid != _pid and thread != _main:
            self._holder = (0, 0)
            with Path(os.environ["LOCK_WATCH"]).open("a") as file:
                stack = "".join(traceback.format_stack(limit=8))
                file.write(f"made at {self._made}, held at {self._taken}, taken in a child:\n{stack}\n")
        if not self._lock.acquire(blocking, timeout):
            return False
        self._holder = (_pid, me)
        if me != _main:
            self._taken = _where()
            _holding.add(self)
            if not self._taken.startswith("<frozen"):
                _sleep(PAUSE)
        return True

    def release(self) -> None:
        """Let it go."""
        self._holder = (0, 0)
        self._lock.release()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._holder = (0, 0)
        self._lock._at_fork_reinit()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)  # what a condition asks a reentrant one


class Reentrant(Watched):
    """The same that its holder may take again."""

    def __init__(self) -> None:
        super().__init__(_reentrant())


def _before() -> None:
    if held := [lock for lock in list(_holding) if lock._holder[0] == _pid and lock._holder[1] != _main]:
        with Path(f"{os.environ['LOCK_WATCH']}.held").open("a") as file:
            file.write("".join(f"{lock._made}, held at {lock._taken}\n" for lock in held))


def _in_child() -> None:
    global _pid, _main
    _pid, _main = os.getpid(), _thread.get_ident()


if "LOCK_WATCH" in os.environ:
    os.register_at_fork(before=_before, after_in_child=_in_child)
    vars(threading).update(Lock=Watched, _allocate_lock=Watched, RLock=Reentrant)
