"""When a call in flight may be broken into: where it waits, and not where it may have its answer.

A call that is broken into is in doubt, and is paid again. Nothing breaks into a blocking call of a thread: what is
raised there is raised once the call has returned, and then what it returned is lost. So the thread is looked at, and is
left alone until the call returns; then it has time to record what it got, and the stop is raised after that. A signal
does break into a blocking call of the main thread, whose stop is raised as soon as it is seen to wait.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Generator, MutableMapping
from types import FrameType, coroutine
from typing import Any

from runner.core import waiting
from runner.core.clock import SYSTEM
from runner.core.errors import ClaimLost, Stop
from runner.journal.cancellation.cancel_scope import CancelScope, Wakeup

RETURNING = 2.0
"""Seconds that a thread has to record what its call gave, from when that is seen to have returned; and coroutines of an
event loop for their calls to end, and to be recorded."""
COMPUTING = 1.0  #: seconds of the processor's time, from then on: no answer takes as long to parse as that
FINISHING = 0.5  #: seconds that a coroutine may continue with what it waited for, as to read the rest or to close
SOON, SELDOM = 0.02, 0.25  #: seconds between two looks at a call: the first, and those at one that blocks

_WAIT = Wakeup.wait.__code__
_HANDLERS = frozenset({"runner.tasks.stops", "runner.journal.cancellation.async_raise", __name__})
"""Whose frames are above those of the interrupted code, when a signal's handler looks."""


class CallLooks:
    """How far the call is in which a thread of this process was to be stopped."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._began = SYSTEM.monotonic()
        self._seen: object = None
        self._returned: tuple[float, float] | None = None  # when it was seen to have, and the time it had used
        self.again = SOON  #: seconds until another look

    def may_end(self, frame: FrameType | None) -> bool:
        """Look at it: whether it may be broken into where it is. ``frame`` is the thread's innermost."""
        by_signal = self._thread == threading.get_ident()
        while by_signal and frame is not None and _is_of_handler(frame):
            frame = frame.f_back
        if frame is None or frame.f_code is _WAIT:
            return True
        if _is_loop(frame):
            return SYSTEM.monotonic() - self._began >= RETURNING
        used = _time_used(self._thread)
        seen, self._seen = self._seen, (id(frame), frame.f_lasti, None if by_signal else used)
        if seen is None:
            return False
        now = SYSTEM.monotonic()
        if self._seen != seen:
            self._returned = self._returned or (now, used)
            self.again = SOON
        elif by_signal:
            return True
        elif self._returned is None:
            self.again = min(self.again * 2, SELDOM)
            return False
        if self._returned is None:
            return False
        returned, used_then = self._returned
        return now - returned >= RETURNING or used - used_then >= COMPUTING


def _is_of_handler(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in _HANDLERS


def _is_loop(frame: FrameType) -> bool:
    """Whether the thread waits in an event loop, for whatever its coroutines wait for."""
    return frame.f_code.co_name == "select" and frame.f_globals.get("__name__") == "selectors"


def _time_used(thread: int) -> float:
    """The processor's time that a thread has used: it is the same as long as that is blocked. 0 if unknown."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except (AttributeError, OSError):
        return 0.0


@coroutine
def awaited(
    wanted: Awaitable[Any], scope: CancelScope, kept: MutableMapping[int, Any], *, put_off: bool = False
) -> Generator[Any, Any, None]:
    """Await something, whose result is in ``kept`` before this returns.

    If the task is being stopped, and it is cancelled when what it waits for has come, it gets that, and is cancelled
    soon, with what it waits for then; not if its claim is lost, as nothing of it is recorded. If it ends before, the
    cancellation is in ``kept`` under 1: raise it when the result is recorded, or see `cancel_next_wait`.

    If the task is not being stopped, so that its own code cancels it, the same only with ``put_off``: then the
    cancellation is in ``kept`` at once, and comes as soon as it waits for anything else.
    """
    steps: Any = wanted if hasattr(wanted, "throw") else waiting.awaited(wanted)
    sent: Any = None
    error: BaseException | None = None
    late: asyncio.CancelledError | None = None
    came = 0.0
    while True:
        try:
            awaits = steps.send(sent) if error is None else steps.throw(error)
        except StopIteration as end:
            if late is not None:
                kept[1] = late
            kept.__setitem__(0, end.value)  # a call: what was raised in this thread is raised here, when that is kept
            return
        except (Stop, StopAsyncIteration):  # the latter is the end of a stream
            raise
        except BaseException as raised:
            if late is None:
                raise
            raise late from raised
        sent, error = None, None
        timer = None
        if late is not None:
            left = came + FINISHING - SYSTEM.monotonic()
            if awaits is not None and scope.stopping is None:
                left = 0.0
            if awaits is not None:  # as asyncio does: another task that it waits for is cancelled with it
                timer = awaits.get_loop().call_later(left, awaits.cancel, *late.args)
            elif left < 0:
                error, late = late, None
                continue
        try:
            sent = yield awaits
        except asyncio.CancelledError as cancelled:
            may_continue = put_off if scope.stopping is None else not isinstance(scope.stopping, ClaimLost)
            if may_continue and late is None and _has_come(awaits):
                late, came = cancelled, SYSTEM.monotonic()
                if scope.stopping is None:
                    kept[1] = late
            else:
                error, late = cancelled, None
        except BaseException as raised:
            error = raised
        finally:
            if timer is not None:
                timer.cancel()


def cancel_next_wait(cancelled: asyncio.CancelledError) -> None:
    """Cancel the running coroutine where it waits next: it was cancelled, and has what `awaited` gave it."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()  # it is the same cancellation
        task.cancel(*cancelled.args)


def _has_come(awaits: Any) -> bool:
    if not isinstance(awaits, asyncio.Future) or not awaits.done() or awaits.cancelled():
        return False
    return not isinstance(awaits.exception(), asyncio.CancelledError)  # as of a cancelled `gather`
