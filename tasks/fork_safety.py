"""Delays a fork while another thread holds a lock that the child would wait for forever.

A forked child has the locks of all threads but only one of the threads. Python and libc do not reset these locks in a
child: that of a stream that the log is written to, that of a module being imported, the resolver's, and OpenSSL's. The
heartbeat, the supervisor and the periodic work use all of them concurrently with Celery's thread, which forks.

The log's handlers are held during the fork. For the others the frames of the threads are looked at. That holds until
the fork, as no thread may interrupt another meanwhile: each runs until it waits for something. For the same reason none
is in the midst of a computation, so a lock that is held only for that is free in the child.
"""

import contextlib
import os
import socket
import ssl
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

from runner.bundles import task_logging

LONGEST = 2.0  #: seconds that a fork waits for them: who resolves a name may wait for longer, and the worker may not
LOOK = 0.001
TURN = 10.0  #: seconds that a thread may compute, during a fork, before another interrupts it: at other times 5 ms
_IMPORT = "<frozen importlib._bootstrap>"
_WITHIN: frozenset[CodeType] = frozenset(
    one.__code__
    for one in (
        socket.getaddrinfo, socket.create_connection,
        ssl.create_default_context, ssl.SSLContext.wrap_socket, ssl.SSLSocket.do_handshake,
    )
)  # fmt: skip

_forking = 0  #: the process whose forks wait
_turn = 0.0  #: that time, before the fork
_held: list[Any] = []  #: the locks of the log's handlers


def install() -> None:
    """Make forks of this process wait; not those of its children, which are the tasks' own."""
    global _forking
    if not _forking:
        os.register_at_fork(before=_wait, after_in_parent=_go_on, after_in_child=_go_on)
    _forking = os.getpid()


def _wait() -> None:
    global _turn
    if os.getpid() != _forking:
        return
    end, _turn = time.monotonic() + LONGEST, sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    time.sleep(LOOK)  # who waits for the interpreter, and would interrupt this thread sooner, has it now
    while not (_hold_log() and not any_within()) and time.monotonic() < end:
        _let_go()  # who holds another lock may want to log
        time.sleep(LOOK)


def _hold_log() -> bool:
    for lock in filter(None, (handler.lock for handler in task_logging.all_handlers())):
        if not lock.acquire(blocking=False):
            return False
        _held.append(lock)
    return True


def _let_go() -> None:
    while _held:
        with contextlib.suppress(RuntimeError):  # in a child logging has released its handlers' locks
            _held.pop().release()


def _go_on() -> None:
    """After the fork, in both processes."""
    global _turn
    if _turn:
        sys.setswitchinterval(_turn)
        _turn = 0.0
    _let_go()


def any_within() -> bool:
    """Whether another thread holds one of these locks now, other than the log's."""
    here = threading.get_ident()
    return any(_is_within(frame) for thread, frame in sys._current_frames().items() if thread != here)


def _is_within(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _WITHIN or frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False
