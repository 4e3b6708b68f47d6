"""Stops the tasks in flight in this process: drains, lost claims, revoked jobs and timeouts.

In a pool child the task runs on the main thread, and a signal handler raises in it, also out of a sleep or a socket. In
a threads pool, and in a pool child with a thread for each task, the exception is set in the task's thread and raised at
its next bytecode. Such a child abandons a model call in flight: `runner.journal.blocking_calls`.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FrameType

from runner.core import waiting
from runner.core.errors import ClaimLost, Interrupted, Stop, TimedOut
from runner.core.jobs import Claim
from runner.journal.cancellation.async_raise import InterruptibleSection, is_joining
from runner.journal.cancellation.calls_in_flight import RETURNING
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.providers.redis.outages import outage

# Real-time signals are not used otherwise; where there are none (macOS) two that nothing in a worker uses.
_FIRST = getattr(signal, "SIGRTMIN", None)
RECHECK = _FIRST + 2 if _FIRST else signal.SIGIO
DRAINS = (
    {signal.SIGTERM: _FIRST + 1, signal.SIGINT: _FIRST + 3, signal.SIGHUP: _FIRST + 4}
    if _FIRST
    else dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), signal.SIGURG)
)
"""How a pool child is told to drain, by what its worker was told."""

AGAIN = 0.02  #: seconds until a task is looked at again that was where a stop would do harm
DRAIN_GRACE = RETURNING + 1.0  #: seconds after the drain timeout, until those that did not stop are taken back
ENDS_WITHIN = 1.0  #: seconds until a task is stopped that does not end by what was raised in it
STILL_JOINING = 0.2  #: seconds until one is that was stopped, and may wait for threads that do not notice it


def leave_hangups_to_parent() -> None:
    """Ignore SIGHUP, which a terminal that closes sends to all processes: with Celery's handlers they would not drain.

    The parent gets it, too, and asks its workers to end, unless it runs under ``nohup``.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # no handler: billiard takes an interrupted read for the end


def ignore_rechecks() -> None:
    """Before the pool forks: a child that is told to look at its claims, and has begun none yet, is not ended by it."""
    signal.signal(RECHECK, signal.SIG_IGN)


class _InFlight:
    """Context in which stops reach a task. (A generator would cost too much.)"""

    __slots__ = ("_stops", "_timeout", "_timer", "began", "cancel_scope", "claim", "section", "waited")

    def __init__(self, stops: "TaskStops", cancel_scope: CancelScope, claim: Claim, timeout: float | None) -> None:
        self._stops, self._timeout, self.cancel_scope, self.claim = stops, timeout, cancel_scope, claim
        waiter = waiting.here() if waiting.shared else None
        may = partial(stops.may_interrupt, cancel_scope)
        self.section = InterruptibleSection(may, cancel_scope) if waiter is None else waiter.section(may, cancel_scope)
        self.waited = outage.seconds if timeout else 0.0  # in the process, until then, for the store
        self.began = time.monotonic()
        self._timer: waiting.Timer | None = None

    def __enter__(self) -> None:
        try:
            try:
                self._timer = self._stops.begun(self, self._timeout)
            except BaseException:
                self._landed()
                raise
        except Stop:
            self._landed()  # it may have come in the midst of that
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._landed()
            if kind is None or not issubclass(kind, Stop):
                if kind is None and self._timeout:
                    self._end_late(self._timeout)
                return
        except Stop:
            self._landed()
            raise
        self._landed()  # the same

    def left(self, timeout: float) -> float:
        """The seconds until its time is up. What it waited for the store is not its own."""
        return self.began + timeout + outage.seconds - self.waited - time.monotonic()

    def _end_late(self, timeout: float) -> None:
        """It has ended, and has failed if its time was up and it was not interrupted, as where it blocked its loop."""
        stopping = self.cancel_scope.stopping
        if self.left(timeout) <= 0 and not self.section.told and (stopping is None or isinstance(stopping, TimedOut)):
            self.cancel_scope.ask(late := TimedOut.after(timeout))
            raise late

    def _landed(self) -> None:
        """No stop of this task reaches the next task in this thread."""
        self.section.over()
        self._stops.ended(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # which refers to this: no collector is needed


class TaskStops:
    """The tasks in flight in this process, and the ways to stop them."""

    def __init__(
        self,
        drain_timeout: float,
        hold: Callable[[Sequence[Claim]], Sequence[bool]],
        mark: Callable[[Iterable[Claim], str], None],
        *,
        on_main_thread: bool,
    ) -> None:
        self._drain_timeout = drain_timeout
        self._hold = hold
        self._mark = mark
        self._on_main_thread = on_main_thread
        self._flying: dict[waiting.Section, _InFlight] = {}
        self._draining = False
        self._leaving = False
        self._force = False
        self._look_due = float("-inf")  # when all of them are looked at again, if that is to come
        self.has_message = (
            False  #: whether the process has a job's message, which nothing else knows of until its claim
        )

    @property
    def leaving(self) -> bool:
        """Whether this process was itself asked to end, and does so once its task is handed back."""
        return self._leaving

    @property
    def draining(self) -> bool:
        """Whether this process takes no more tasks."""
        return self._draining

    def ready(self) -> None:
        """From here on, a signal that ends the process first hands tasks back."""
        if self._on_main_thread and _is_main(threading.get_ident()):  # billiard sets its own after the child's start
            signal.signal(signal.SIGTERM, self._terminated)

    def watching(self, cancel_scope: CancelScope, claim: Claim, timeout: float | None) -> _InFlight:
        """In this context, stops reach this task."""
        return _InFlight(self, cancel_scope, claim, timeout)

    def begun(self, task: _InFlight, timeout: float | None) -> waiting.Timer | None:
        """From here on stops reach the task. Returns the function to call when its time is up."""
        self._flying[task.section] = task
        task.cancel_scope.insist = partial(self._end, task.section)
        if self._draining:
            task.cancel_scope.ask(Interrupted("the worker is draining"))
            task.cancel_scope.check()
        if not timeout:
            return None
        waiter = waiting.here() if waiting.shared else None
        return (_later if waiter is None else waiter.later)(timeout, partial(self._time_out, task, timeout))

    def ended(self, task: _InFlight) -> None:
        """No stop reaches the task any more."""
        self._flying.pop(task.section, None)
        task.cancel_scope.insist = None

    def _end(self, section: waiting.Section, stop: BaseException) -> None:
        waiter = waiting.here() if waiting.shared else None
        (_later if waiter is None else waiter.later)(ENDS_WITHIN, partial(self._stop_if_left, section, stop))

    def _stop_if_left(self, section: waiting.Section, stop: BaseException) -> None:
        if (task := self._flying.get(section)) is None:
            return
        task.cancel_scope.ask(stop)
        if self.may_interrupt(task.cancel_scope):
            self._poke()
        else:  # a call is in flight beside what ended
            _later(ENDS_WITHIN, self._stop_if_left, section, stop)

    def drain(self, cause: str = "SIGTERM") -> None:
        """Take no more tasks; stop those between steps now, others when their call ends or after the drain timeout."""
        first, self._draining = not self._draining, True
        if first:
            self.mark(cause)
        for task in list(self._flying.values()):
            task.cancel_scope.ask(Interrupted("the worker is draining"))
        if self._flying:
            _later(self._drain_timeout, self._force_out)
        self._break_in()

    def hand_back(self, message: str) -> None:
        """Stop the task of the job that came with this message, if it is in flight, as a drain stops all of them."""
        for task in list(self._flying.values()):
            if task.claim.job.message_id == message:
                task.cancel_scope.ask(stop := Interrupted("its job was revoked"))
                _later(self._drain_timeout, self._insist, task, stop)
        self._break_in()

    def _insist(self, task: _InFlight, stop: Interrupted) -> None:
        stop.deferrable = False
        task.cancel_scope.force()
        if self._flying.get(task.section) is task:
            self._poke()

    def mark(self, cause: str) -> None:
        """A signal arrived: first write a checkpoint for each run in flight that asked for it."""
        asked = [task.claim for task in list(self._flying.values()) if task.claim.scope.triggers & {cause, "*"}]
        if asked:
            with contextlib.suppress(Exception):  # best effort as to the runs: Redis is away
                self._mark({(claim.job.run_id, claim.job.branch): claim for claim in asked}.values(), cause)

    def recheck(self) -> None:
        """Stop the tasks whose claims are lost."""
        flying = list(self._flying.values())
        with contextlib.suppress(Exception):  # Redis is away: the next heartbeat asks again
            for task, holds in zip(flying, self._hold([task.claim for task in flying]), strict=True):
                if not holds:
                    task.cancel_scope.ask(ClaimLost(f"the claim on {task.claim.job.ref} is lost"))
        self._break_in()

    def install(self) -> None:
        """Make signals drain and recheck (in a pool child's main thread)."""
        for cause, signum in DRAINS.items():
            signal.signal(signum, lambda *_, name=cause.name: self.drain(name))
        signal.signal(RECHECK, lambda *_: self.recheck())
        leave_hangups_to_parent()
        self.install_pauses()

    def install_pauses(self) -> None:
        """Handle Ctrl-Z and its end (in a process's main thread). The process stops all the same."""
        signal.signal(signal.SIGTSTP, self._paused)
        signal.signal(signal.SIGCONT, lambda *_: self._continued())

    def _paused(self, signum: int, _frame: FrameType | None) -> None:
        self.mark("SIGTSTP")
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

    def _continued(self) -> None:
        signal.signal(signal.SIGTSTP, self._paused)
        self.mark("SIGCONT")

    def _terminated(self, _signum: int, _frame: FrameType | None) -> None:
        """This process was asked to end, perhaps with its whole group: hand the task back, then exit."""
        self._leaving = True
        if self._flying:
            self.drain()
            return
        self._draining = True
        if not self.has_message or outage.waiting:  # else the job is returned first
            raise SystemExit(0)

    def _time_out(self, task: _InFlight, timeout: float) -> None:
        if (left := task.left(timeout)) > 0:
            if self._flying.get(task.section) is task:
                _later(max(left, AGAIN), self._time_out, task, timeout)
            return
        task.cancel_scope.ask(TimedOut.after(timeout))
        self._poke()

    def _force_out(self) -> None:
        self._force = True
        for task in list(self._flying.values()):
            task.cancel_scope.force()
        self._poke()

    def _poke(self) -> None:
        """From another thread: make the task's own thread check."""
        if self._on_main_thread:
            os.kill(os.getpid(), RECHECK)
        else:
            self._break_in()

    def _break_in(self) -> None:
        """Raise the stop in each task that may be interrupted; the others check at their next step."""
        again, here = list[float](), None
        for task in list(self._flying.values()):
            stop = task.cancel_scope.stopping
            if stop is None or not self.may_interrupt(task.cancel_scope):
                continue
            own = task.section if isinstance(task.section, InterruptibleSection) else None
            if not self._on_main_thread or (own is not None and not _is_main(own.thread)):
                if not task.section.break_in(type(stop)):
                    again.append(task.section.again)
            elif own is not None and not own.in_critical_section():
                here = task  # the last to be told: what is raised here ends this
            else:
                again.append(task.section.again)
        if again:
            self._look_again(min(again))
        if here is not None and here.cancel_scope.stopping is not None:
            _later(STILL_JOINING, self._leave_behind, here)
            here.section.told = True
            raise here.cancel_scope.stopping

    def _look_again(self, seconds: float) -> None:
        """Look at all of them again then, unless that is soon done in any case.

        Many tasks that are stopped together are not looked at by each of their timers.
        """
        now = time.monotonic()
        if now < self._look_due <= now + seconds:
            return
        _later(seconds, self._poke)
        self._look_due = now + seconds  # after that: a signal's handler may raise in the midst of it

    def may_interrupt(self, cancel_scope: CancelScope) -> bool:
        """Whether its stop may be raised in a task right now."""
        return cancel_scope.interruptible(force=self._force or not getattr(cancel_scope.stopping, "deferrable", False))

    def _leave_behind(self, task: _InFlight) -> None:
        """Interrupt a stopped task that waits for its threads, since they may be in a long call."""
        if self._flying.get(task.section) is task and isinstance(task.section, InterruptibleSection):
            if is_joining(task.section.thread):
                self._poke()
            else:
                _later(STILL_JOINING, self._leave_behind, task)


def _is_main(thread: int) -> bool:
    return thread == threading.main_thread().ident


def _later(seconds: float, do: Callable[..., None], *arguments: object) -> threading.Timer:
    timer = threading.Timer(seconds, do, arguments)
    timer.daemon = True
    timer.start()
    return timer
