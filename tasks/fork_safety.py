"""Delays a fork while another thread holds a lock that the child would wait for forever.

A forked child has the locks of all threads but only one of the threads. Python and libc do not reset these locks in a
child: that of a module being imported, that of a log file, the resolver's, and OpenSSL's. The heartbeat, the supervisor
and the periodic work use all of them concurrently with Celery's thread, which forks.
"""

import logging
import os
import socket
import ssl
import sys
import threading
import time
from types import CodeType, FrameType

LONGEST = 2.0  #: seconds that a fork waits for them: who resolves a name may wait for longer, and the worker may not
LOOK = 0.001
_IMPORT = "<frozen importlib._bootstrap>"
_WITHIN: frozenset[CodeType] = frozenset(
    one.__code__
    for one in (
        logging.Handler.handle, logging.Logger.callHandlers, socket.getaddrinfo, socket.create_connection,
        ssl.create_default_context, ssl.SSLContext.wrap_socket, ssl.SSLSocket.do_handshake,
    )
)  # fmt: skip

_forking = 0  #: the process whose forks wait


def install() -> None:
    """Make forks of this process wait; not those of its children, which are the tasks' own."""
    global _forking
    if not _forking:
        os.register_at_fork(before=_wait)
    _forking = os.getpid()


def _wait() -> None:
    if os.getpid() != _forking:
        return
    end = time.monotonic() + LONGEST
    while any_within() and time.monotonic() < end:
        time.sleep(LOOK)


def any_within() -> bool:
    """Whether another thread holds one of these locks now."""
    here = threading.get_ident()
    return any(_is_within(frame) for thread, frame in sys._current_frames().items() if thread != here)


def _is_within(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _WITHIN or frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False
