"""Shared processes: pool children that run tasks of several runs at a time, each in a thread.

A crew qualifies if nothing in its file needs a process for each task; the first of its tasks decides this, once its
file has been read. From then on the other children of the worker hand jobs of the same code over to that process. It
has a thread for each job, and ends with the last of them. A job that no shared process accepts runs in the child that
received it. A job that is lost on the way was not claimed, and is sent again.
"""

import contextlib
import json
import logging
import mmap
import os
import queue
import random
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from runner.bundles import thread_directory
from runner.bundles.run_dir import Home
from runner.core.errors import Interrupted
from runner.core.jobs import Claim, Job
from runner.core.settings import setting
from runner.engine import adapters, sharing
from runner.engine.attempt import Loaded
from runner.journal import blocking_calls
from runner.journal.cancellation import cancel_scope
from runner.journal.current_journal import active_journal
from runner.providers.records import HeldClaim
from runner.tasks import capacity

log = logging.getLogger(__name__)

PROCESSES, THREADS = 4, 256  #: shared processes of a worker, and tasks that each runs at a time besides its first
TASKS = 1000  #: tasks that one runs before it ends: what libraries keep of each adds up
ACTIVE = 4  #: tasks that do not wait for a model; with so many, a process begins no other task
POLL = 0.01  #: seconds between two checks of that
PATIENCE = 30.0  #: seconds that a job waits to begin
RECEIVE = 1.0  #: seconds in which a child that connected sends its job
_ENTRY = struct.Struct("32sIII")
"""A shared process, as the others of its worker see it: its code, if it accepts jobs; its pid; its number of tasks; how
many jobs are offered to it, and have no answer yet."""

_NO_CODE = bytes(32)
EMPTY = bytes(PROCESSES * _ENTRY.size)
table: mmap.mmap | bytes = EMPTY  #: the shared processes of this worker


def share() -> None:
    """Allocate the table of shared processes; in the main process, before its pool forks."""
    global table
    if capacity.shared():
        table = mmap.mmap(-1, len(EMPTY))


def forget(pid: int) -> None:
    """Remove a dead process from the table; in the main process."""
    for place, (_, owner, _, _) in enumerate(_all()):
        if owner == pid:
            _write(place, _NO_CODE, 0, 0)


def offered() -> int:
    """How many children of this worker have offered a job to a shared process, and wait for its answer."""
    return sum(offers for _, _, _, offers in _all())


def taken_slots(claims: Collection[HeldClaim], *, forked: bool) -> int:
    """How many of a worker's slots have a task, or a job that is offered to a shared process.

    ``forked``: it has processes; a claim whose process has a number, too, is that of a thread in a shared one, and
    takes none.
    """
    return sum("-" not in claim.process for claim in claims) + offered() if forked else len(claims)


def _all() -> list[tuple[bytes, int, int, int]]:
    return list(_ENTRY.iter_unpack(table))


def _find(code: bytes) -> list[int]:
    return [place for place, (found, *_) in enumerate(_all()) if found == code]


def _write(place: int, code: bytes, pid: int, busy: int, offers: int = 0) -> None:
    if isinstance(table, mmap.mmap):
        _ENTRY.pack_into(table, place * _ENTRY.size, code, pid, busy, offers)


def _address(place: int) -> str:
    """An abstract socket address of Linux: it disappears with the process that bound it."""
    return f"\0crew-runner-{setting('RUNNER_WORKER_ID', '')}-{place}"


def delegate(job: Job, code: bytes) -> bool:
    """Hand a job over to a shared process that runs the same code. Returns whether one accepted it."""
    found, end = _find(code), time.monotonic() + PATIENCE
    random.shuffle(found)
    return any(_offer(place, job, end) for place in found)


def _offer(place: int, job: Job, end: float) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        try:
            line.settimeout(max(0.0, end - time.monotonic()) + 5)
            line.connect(_address(place))
            if not _is_own_user(line):
                return False
            line.send(json.dumps(job).encode())
            return line.recv(1) == b"y"
        except OSError:  # it ended; or it accepted the job, and a second delivery is discarded
            return False


def _is_own_user(line: socket.socket) -> bool:
    """Whether the peer is a process of this user: an abstract address has no permissions."""
    _, user, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


def _received(line: socket.socket) -> Job | None:
    """The job that one who connected offers; None if that is no child of ours, or has gone."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        line.settimeout(RECEIVE)
        if _is_own_user(line):
            return Job(*json.loads(line.recv(65536)))
    line.close()
    return None


def _tell(line: socket.socket, answer: bytes) -> None:
    """Answer one who offered a job."""
    with line, contextlib.suppress(OSError):
        line.send(answer)


_python_sleep = time.sleep


def _sleep(seconds: float) -> None:
    """`time.sleep`, interrupted by a stop: clients of models sleep before they retry."""
    journal = active_journal()
    if journal is None:
        _python_sleep(seconds)
    else:
        journal.cancel_scope.sleep_in_call(seconds)


class SharedProcess(sharing.Sharing):
    """This process as one that may run tasks of several runs.

    Args:
        do: runs a job, and those that it continues with, in the current thread.
        drain: hands back all tasks of this process.
        waits: reports that the first task needs no core.
        drains: whether this process is draining.
        max_attempts: a task in its last attempt gets a process of its own.
    """

    def __init__(
        self,
        do: Callable[[Job], None],
        drain: Callable[[], None],
        waits: Callable[[], None],
        drains: Callable[[], bool] = lambda: False,
        max_attempts: int = 5,
    ) -> None:
        self._do, self._drain, self._waits, self._drains = do, drain, waits, drains
        self._max_attempts = max_attempts
        self._changes = threading.Condition()
        self._accepts = False  # whether it accepts jobs now
        self._idle: list[_TaskThread] = []
        self._first = 1  # until its first task is done
        self._busy = self._done = self._threads = self._offers = 0
        self._socket: socket.socket | None = None
        self._code = b""
        self.place = 0  #: its index in the table

    # -- called by the attempts at its tasks

    def read(self, claim: Claim, home: Home, read: Callable[[], Loaded]) -> Loaded:
        """Read the crew of a task. The first crew decides whether the process is shared."""
        loaded = read()
        if self.is_open:
            try:
                sharing.check(claim, loaded)
            except Interrupted:
                self._refuse(claim.adapter)
                raise
        elif self._may_open(claim) and sharing.may_begin(claim, loaded) and thread_directory.is_supported():
            self._open(claim, home)
        return loaded

    def _may_open(self, claim: Claim) -> bool:
        self._code = sharing.code_of(claim.bundle, claim.module, claim.attr, claim.adapter)
        return self.may_share_process(claim.job) and len(_find(self._code)) < capacity.processes()

    def may_share_process(self, job: Job) -> bool:
        """Whether a task may run in a shared process.

        Not in its last attempt: a task that keeps killing its process would otherwise fail the runs of all tasks in it.
        """
        return job.attempt < self._max_attempts

    def _refuse(self, adapter: str) -> None:
        """Accept no more jobs: the file, read for another run, gave another crew than at first."""
        self.close()
        if not adapters.is_unchanged(adapter):
            log.warning("reading the crew file changed the state of a shared process; handing all its tasks back")
            self._drain()

    # -- accepting jobs

    def _open(self, claim: Claim, home: Home) -> None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for place in range(PROCESSES):
            with contextlib.suppress(OSError):  # another process has it
                line.bind(_address(place))
                break
        else:
            line.close()
            return
        line.listen(64)
        try:
            threading.Thread(target=self._listen, args=(line,), name="shared process: listener", daemon=True).start()
        except RuntimeError:  # the system has no more of them
            line.close()
            return
        self.place, self._socket = place, line
        blocking_calls.use_threads()
        time.sleep = _sleep  # type: ignore[assignment]  # a float is enough
        adapters.share(claim.adapter, home)
        self.is_open = self._accepts = True
        self._publish()
        self._waits()

    def _publish(self) -> None:
        """Update the entry in the table, which the process keeps until its last task is done."""
        _write(self.place, self._code if self._accepts else _NO_CODE, os.getpid(), self._busy, self._offers)

    def _listen(self, line: socket.socket) -> None:
        """Answer those who offer jobs, each when its job begins, or when it has waited for long enough."""
        offers: deque[tuple[socket.socket, Job, float]] = deque()
        watched = select.poll()
        watched.register(line, select.POLLIN)
        try:
            while True:
                if watched.poll(POLL * 1000 if offers else None):
                    other, _ = line.accept()
                    if (job := _received(other)) is not None:
                        offers.append((other, job, time.monotonic() + PATIENCE))
                while offers and (answer := self._answer(*offers[0][1:])):
                    _tell(offers.popleft()[0], answer)
                self._told(len(offers))
        except OSError:  # it was closed, or this process has no more files
            pass
        finally:
            self.close()
            for other, _, _ in offers:
                _tell(other, b"n")
            self._told(0)

    def _answer(self, job: Job, end: float) -> bytes:
        """Say whether an offered job begins here, once known: when enough of those before it wait for a model."""
        with self._changes:
            if self._drains():
                self.close()
            if self._accepts and self._is_active():
                # The child that offers it may use another core
                return b"n" if self._is_alone() or time.monotonic() >= end else b""
            return b"y" if self._accepts and self._accept(job) else b"n"

    def _told(self, offers: int) -> None:
        """Publish how many jobs have no answer yet."""
        if offers != self._offers:
            with self._changes:
                self._offers = offers
                if self._socket is not None:
                    self._publish()

    def _accept(self, job: Job) -> bool:
        """Start a thread's work on a job, if there is room."""
        if not self._reserve():
            return False
        try:
            thread = self._idle.pop() if self._idle else self._new_thread()
        except (OSError, RuntimeError) as error:
            log.warning("cannot start a thread for another task in a shared process: %s", error)
            self._release()
            return False
        self._done += 1
        if self._done >= TASKS:
            self.close()
        thread.jobs.put(job)
        return True

    def _is_active(self) -> bool:
        return self._first + self._busy - cancel_scope.asleep() >= ACTIVE

    def _is_alone(self) -> bool:
        return len(_find(self._code)) < min(capacity.processes(), PROCESSES)

    def _reserve(self) -> bool:
        """Count one more task, if the worker has room. Published before the check, since other processes check, too."""
        if self._busy >= THREADS or not capacity.has_room(self._busy, capacity.EACH_SHARED):
            return False
        self._busy += 1
        self._publish()
        if sum(busy for _, _, busy, _ in _all()) <= capacity.shared():
            return True
        self._release()
        return False

    def _release(self) -> None:
        self._busy -= 1
        self._publish()
        self._changes.notify_all()

    def _new_thread(self) -> "_TaskThread":
        thread = _TaskThread(self, self._threads)
        self._threads += 1
        return thread

    def run(self, thread: "_TaskThread", job: Job) -> None:
        """Run a job; called in that thread."""
        try:
            self._do(job)
        except BaseException:
            log.exception("a job failed")
        finally:
            with self._changes:
                self._idle.append(thread)
                self._release()

    def close(self) -> None:
        """Accept no more jobs."""
        with self._changes:
            self._accepts = False
            if self._socket is not None:
                self._publish()
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            self._changes.notify_all()

    def wait_until_empty(self) -> None:
        """Wait, after the first task, until all others are done. The process then accepts no more."""
        with self._changes:
            self._first = 0
            while self._busy:
                self._changes.wait()
            self.close()
            if self._socket is not None:
                _write(self.place, _NO_CODE, 0, 0)
                self._socket.close()  # its address is free for another process
                self._socket = None


class _TaskThread:
    """A thread with its own working directory that runs tasks in turn. Raises `RuntimeError` or `OSError`."""

    def __init__(self, process: SharedProcess, number: int) -> None:
        self.number, self._process = number, process
        self.jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._started: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=f"task {number}", daemon=True).start()
        if (refused := self._started.get()) is not None:
            raise refused

    def _run(self) -> None:
        _local.number = self.number
        try:
            thread_directory.unshare()
        except OSError as error:
            self._started.put(error)
            return
        self._started.put(None)
        while True:
            self._process.run(self, self.jobs.get())


_local: Any = threading.local()


def thread_number() -> int | None:
    """The number of the current task thread; None in any other thread."""
    found: int | None = getattr(_local, "number", None)
    return found
