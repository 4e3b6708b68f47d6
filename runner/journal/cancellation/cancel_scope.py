"""The cancellation scope of a task: where it may be stopped, and the waits that a stop ends.

A task's own code can be stopped at once. Inside a call (a step) the task gets time, so that a paid call can end and be
recorded. Inside a write to the store it is never stopped, nor between the return of a call and its record. Each task in
flight has one cancellation scope.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, Self

from runner.core import waiting
from runner.core.clock import SYSTEM, Clock
from runner.core.errors import ClaimLost

_RLock = type(threading.RLock())  # which is made without a call of Python
Answers = dict[object, Mapping[int, Any]]


class CancelScope:
    """Cancels one task. A signal handler, a timer or another thread asks for it; the task itself checks it."""

    of_coroutine = False  #: whether the task is a coroutine of the event loop that it is performed on

    _forced = False  # of the class: few tasks are stopped by force
    insist: Callable[[BaseException], None] | None = None  #: has the task stopped if it does not soon end

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        # Re-entrant: a signal handler runs on the task's own thread, perhaps while that is in here.
        self._lock = _RLock()
        self._in_call, self._in_write = _InCall(), _InWrite()  # which do not refer to this: no collector is needed
        self.call: contextlib.AbstractContextManager[None] = self._in_call
        """In here the task is inside a step: a deferrable stop waits for its end."""
        self.write: Write = self._in_write
        """In here the task writes to the store: no stop breaks in."""
        self.unbroken: contextlib.AbstractContextManager[None] = self._in_write
        """In here no stop breaks in either, and no lock is held that a write may take."""
        self.answers: Answers | None = None
        """What each call in progress gave, from its return until it is recorded: no stop breaks in meanwhile."""
        self._asleep: dict[Wakeup, None] = {}
        self._with_person = 0.0
        self._no_question: threading.Event | None = None  # until a person is asked: it costs more than the rest of this

    @property
    def stopping(self) -> BaseException | None:
        """Return the exception that the task is to be stopped with; None if it is not to stop."""
        return self._in_call.stop

    @property
    def in_call(self) -> bool:
        """Whether the task is inside a step."""
        return bool(self._in_call.many)

    @property
    def is_recording(self) -> bool:
        """Whether a thread of the task writes to the store, or has what its call gave, and does so next."""
        return bool(self._in_write.entries) or self.has_answer

    @property
    def has_answer(self) -> bool:
        """Whether a thread of the task has what its call gave, and is to record it."""
        return self.answers is not None and any(self.answers.values())

    def keep_answers(self) -> "Answers":
        """Return `answers`, from now on. Few tasks have some."""
        with self._lock:
            if self.answers is None:
                self.answers = {}
            return self.answers

    @property
    def awaits_answer(self) -> bool:
        """Whether the task is in a call whose result may still be recorded. Not if its claim is lost."""
        return bool(self._in_call.many) and not isinstance(self._in_call.stop, ClaimLost)

    @property
    def ends_calls(self) -> bool:
        """Whether the task, if it is to stop, is to do so before its calls end: they have no time, or it is over."""
        return self._forced or not getattr(self._in_call.stop, "deferrable", False)

    @contextlib.contextmanager
    def person(self) -> Iterator[None]:
        """Enclose waiting for a person at the terminal, which does not count towards a timeout."""
        began = self._clock.monotonic()
        self._no_question = answered = threading.Event()
        try:
            yield
        finally:
            self._with_person += self._clock.monotonic() - began
            answered.set()

    def with_person(self) -> float:
        """Return the seconds that the task has waited for people, after waiting until no question is open."""
        if self._no_question is not None:
            self._no_question.wait()
        return self._with_person

    def check(self) -> None:
        """Raise the stop here, if the task is to stop. The task calls this before each step and after each write."""
        if self._in_call.stop is not None:
            raise self._in_call.stop

    def check_in_call(self) -> None:
        """Raise the stop here, inside a call but not a write, if the task is to stop before the call ends."""
        stop = self._in_call.stop
        if stop is not None and not self._in_write.entries and self.ends_calls:
            raise stop

    def sleep_in_call(self, seconds: float) -> None:
        """Sleep for ``seconds`` inside a call. Raises the stop if the task is to stop before the call ends."""
        end = self._clock.monotonic() + seconds
        with self.waking() as stopped:
            while (left := end - self._clock.monotonic()) > 0:
                self.check_in_call()
                self._clock.wait(stopped.wait, left)
        self.check_in_call()

    def force(self) -> None:
        """Let the stop interrupt calls from now on: their time is over."""
        self._forced = True
        self._wake()

    def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``, on any thread of the task. Raises a stop of the task at once."""
        with self.waking() as stopped:
            self.check()
            self._clock.wait(stopped.wait, seconds)
        self.check()

    @contextlib.contextmanager
    def waking(self) -> Iterator["Wakeup"]:
        """Provide a `Wakeup` for a thread of the task to wait for; a stop of the task wakes it as well."""
        with Wakeup() as stopped:
            self._asleep[stopped] = None
            try:
                yield stopped
            finally:
                del self._asleep[stopped]

    def ask(self, stop: BaseException) -> None:
        """Ask the task to stop. The first reason stands, but a lost claim overrides a deferrable one."""
        with self._lock:
            if self._in_call.stop is None or not getattr(stop, "deferrable", False):
                self._in_call.stop = stop
        self._wake()

    def ends_by(self, stop: BaseException) -> None:
        """The task is to end by this error, which is raised in its code: it is stopped if it does not.

        It does not if the code is a coroutine for whose result it waits in another way.
        """
        if self.insist is not None:
            self.insist(stop)

    def _wake(self) -> None:
        for one in list(self._asleep):
            one.wake()

    def interruptible(self, *, force: bool) -> bool:
        """Whether the stop may be raised in the task right now; ``force`` breaks into calls too."""
        with self._lock:
            call = self._in_call
            return call.stop is not None and not self.is_recording and (force or not call.many)


class Entries(Protocol):
    """Entered by `append`, left by `pop`: of a list these are no calls of Python."""

    def append(self, entry: None, /) -> None:
        """Enter."""

    def pop(self) -> None:
        """Leave."""


class Write(Protocol):
    """Encloses a write to the store, as a context or by its ``entries``."""

    @property
    def entries(self) -> Entries:
        """One for each thread that is in here."""

    def __enter__(self) -> None:
        """Enter."""

    def __exit__(self, *_: object) -> None:
        """Leave."""


class _InCall:
    """Encloses a step, which the task enters only if it is not to stop. (A generator would cost too much.)"""

    __slots__ = ("many", "stop")

    def __init__(self) -> None:
        self.many: list[None] = []  # one for each thread that is: to add to it needs no lock, as to count would
        self.stop: BaseException | None = None

    def __enter__(self) -> None:
        if self.stop is not None:
            raise self.stop
        self.many.append(None)

    def __exit__(self, *_: object) -> None:
        self.many.pop()


class _InWrite:
    """Encloses a write to the store."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[None] = []

    def __enter__(self) -> None:
        self.entries.append(None)

    def __exit__(self, *_: object) -> None:
        self.entries.pop()


_waiting: dict[int, "Wakeup"] = {}


def asleep() -> int:
    """Return the number of tasks' threads that wait for something, such as a model, and need no core."""
    return len(_waiting)


class Wakeup:
    """Lets a thread wait, inside this context, until it is woken or an exception is raised in it.

    It consists of a plain lock, which an exception never leaves locked.
    """

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()
        waiter = waiting.here()
        self._alarm = None if waiter is None else waiter.alarm()

    def __enter__(self) -> Self:
        if self._alarm is not None:
            return self
        self._thread = threading.get_ident()
        self._outer = _waiting.get(self._thread)
        _waiting[self._thread] = self
        return self

    def __exit__(self, *_: object) -> None:
        if self._alarm is not None:
            return
        if self._outer is not None:
            _waiting[self._thread] = self._outer
        else:
            _waiting.pop(self._thread, None)

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep until `wake`, for at most ``seconds``. Returns whether it was woken."""
        if self._alarm is not None:
            while not self._asleep.acquire(blocking=False):  # what woke it may have come before
                if not self._alarm.wait(seconds):
                    return self._asleep.acquire(blocking=False)
            return True
        return self._asleep.acquire(timeout=-1 if seconds is None else min(max(seconds, 0), threading.TIMEOUT_MAX))

    def wake(self, *_: object) -> None:
        """End the wait, or the next one if there is none now. Can be called in any thread and in a signal handler."""
        with contextlib.suppress(RuntimeError):  # it is awake
            self._asleep.release()
        if self._alarm is not None:
            self._alarm.set()

    @staticmethod
    def wake_thread(thread: int) -> None:
        """End the wait of that thread, if it waits, because an exception was raised in it."""
        if (asleep := _waiting.get(thread)) is not None:
            asleep.wake()
        elif (loop := _loop_in(thread)) is not None:
            with contextlib.suppress(RuntimeError):  # it was closed
                loop.call_soon_threadsafe(lambda: None)


def _loop_in(thread: int) -> Any:
    """The event loop of asyncio's that the thread runs, which may wait for what never happens."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_name == "run_forever" and frame.f_globals.get("__name__") == "asyncio.base_events":
            return frame.f_locals.get("self")
        frame = frame.f_back
    return None
