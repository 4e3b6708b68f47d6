"""Pool children that do tasks of several runs: where nothing in a crew's file asks for a process of its own.

The first task of a crew decides it, when its file has been read. From then on the other children of the worker hand
jobs of the same code over to its process, which has a thread for each, and ends with the last of them. Where none takes
a job, it is done where it is. One that is lost on the way was not claimed, and is sent again.
"""

import contextlib
import json
import logging
import mmap
import os
import queue
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

from runner.bundles import own_directory
from runner.bundles.run_dir import Home
from runner.core.errors import Interrupted
from runner.core.jobs import Claim, Job
from runner.core.settings import setting
from runner.engine import adapters, sharing
from runner.engine.attempt import Loaded
from runner.journal import apart
from runner.journal.cancellation import cancel_scope
from runner.journal.enclosing import journal_here
from runner.tasks import capacity

log = logging.getLogger(__name__)

PROCESSES, SEATS = 4, 256  #: of a worker that may be shared, and tasks that each does at a time beside its first
TASKS = 1000  #: that one does at most, as what libraries keep of tasks adds up
ACTIVE = 4  #: tasks of one that do not wait for a model, at which no other one begins
POLL = 0.01  #: seconds between two looks at that
PATIENCE = 30.0  #: seconds that a job is to wait for it
PLACE = struct.Struct("32sII")
"""What a worker's processes know of one that is shared: its code, if it takes others; its pid; how many it has."""

NO_CODE = bytes(32)
NOTHING = bytes(PROCESSES * PLACE.size)
places: mmap.mmap | bytes = NOTHING  #: those of the processes of this worker that are shared


def share() -> None:
    """In the main process, before its pool forks."""
    global places
    if capacity.shared():
        places = mmap.mmap(-1, len(NOTHING))


def forget(pid: int) -> None:
    """In the main process: a process has died, which may have been a shared one."""
    for place, (_, of, _) in enumerate(_all()):
        if of == pid:
            _say(place, NO_CODE, 0, 0)


def _all() -> list[tuple[bytes, int, int]]:
    return list(PLACE.iter_unpack(places))


def _places_of(code: bytes) -> list[int]:
    return [place for place, (found, _, _) in enumerate(_all()) if found == code]


def _say(place: int, code: bytes, pid: int, busy: int) -> None:
    if isinstance(places, mmap.mmap):
        PLACE.pack_into(places, place * PLACE.size, code, pid, busy)


def _address(place: int) -> str:
    """Of a socket of Linux's own kind, which goes with the process that has it."""
    return f"\0crew-runner-{setting('RUNNER_WORKER_ID', '')}-{place}"


def hand_over(job: Job, code: bytes) -> bool:
    """Have a process do it that does others of this code. Returns whether one took it."""
    found = _places_of(code)
    random.shuffle(found)
    return any(_took(place, job) for place in found)


def _took(place: int, job: Job) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        try:
            line.settimeout(PATIENCE + 5)
            line.connect(_address(place))
            if not _is_own_user(line):
                return False
            line.send(json.dumps(astuple(job)).encode())
            return line.recv(1) == b"y"
        except OSError:  # it ended; or it may have taken it, and a job that comes twice is done once
            return False


def _is_own_user(line: socket.socket) -> bool:
    """Whether the other end is a process of this user: such an address has no permissions."""
    _, user, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


_sleep_of_python = time.sleep


def _sleep(seconds: float) -> None:
    """`time.sleep`, which ends for a stop: a client of a model sleeps before it tries again."""
    journal = journal_here()
    if journal is None:
        _sleep_of_python(seconds)
    else:
        journal.cancel_scope.sleep_in_call(seconds)


class SharedProcess(sharing.Sharing):
    """This process, once it does tasks of several runs.

    Args:
        do: does a job, and those that this continues with, in the thread of a seat.
        drain: has all tasks of this process handed back.
        waits: says that the first task needs no core.
        drains: whether this process takes no more tasks.
        max_attempts: a task that has had as many is not done beside others.
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
        self._takes = False  # whether it takes others now
        self._free: list[_Seat] = []
        self._first = 1  # until its first task is done
        self._busy = self._done = self._seats = 0
        self._socket: socket.socket | None = None
        self._code = b""
        self.place = 0  #: which of the worker's it is

    # -- for the attempts at its tasks

    def read(self, claim: Claim, home: Home, read: Callable[[], Loaded]) -> Loaded:
        """The crew of a task. The first one decides whether there are others beside it."""
        loaded = read()
        if self.is_open:
            try:
                sharing.check(claim, loaded)
            except Interrupted:
                self._refuse(claim.adapter)
                raise
        elif self._may_open(claim) and sharing.may_begin(claim, loaded) and own_directory.is_possible():
            self._open(claim, home)
        return loaded

    def _may_open(self, claim: Claim) -> bool:
        self._code = sharing.code_of(claim.bundle, claim.module, claim.attr, claim.adapter)
        return self.may_be_beside(claim.job) and len(_places_of(self._code)) < capacity.processes()

    def may_be_beside(self, job: Job) -> bool:
        """Whether a task may share a process. Not in its last attempt: what kills a process there, time after time,
        would otherwise fail the runs of all that are beside it."""
        return job.attempt < self._max_attempts

    def _refuse(self, adapter: str) -> None:
        """A file that was read for another run is not what the first was: no more of them."""
        self.close()
        if not adapters.is_unchanged(adapter):
            log.warning("reading a crew's file changed the process that its tasks share: they are all handed back")
            self._drain()

    # -- taking others

    def _open(self, claim: Claim, home: Home) -> None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for place in range(PROCESSES):
            with contextlib.suppress(OSError):  # another one has it
                line.bind(_address(place))
                break
        else:
            line.close()
            return
        line.listen(64)
        try:
            threading.Thread(target=self._listen, args=(line,), name="runner: jobs of others", daemon=True).start()
        except RuntimeError:  # the system has no more of them
            line.close()
            return
        self.place, self._socket = place, line
        apart.begin()
        time.sleep = _sleep  # type: ignore[assignment]  # a float is enough
        adapters.share(claim.adapter, home)
        self.is_open = self._takes = True
        self._tell()
        self._waits()

    def _tell(self) -> None:
        """Say what it is at. Its place stays its own until its last task is done: so do the pages of its tasks."""
        _say(self.place, self._code if self._takes else NO_CODE, os.getpid(), self._busy)

    def _listen(self, line: socket.socket) -> None:
        try:
            while True:
                other, _ = line.accept()
                with other, contextlib.suppress(OSError, ValueError, TypeError):
                    other.settimeout(5.0)
                    if _is_own_user(other):
                        other.send(b"y" if self._take(Job(*json.loads(other.recv(65536)))) else b"n")
        except OSError:  # it was closed, or this process has no more files
            pass
        finally:
            self.close()  # others would wait for an answer

    def _take(self, job: Job) -> bool:
        """Begin it, if there is room. Of many that are handed over at a time, one begins when those before it wait."""
        with self._changes:
            if self._is_active() and self._is_alone():
                return False  # the child that has it may use another core
            left = PATIENCE
            while self._takes and self._is_active() and left > 0 and not self._drains():
                self._changes.wait(POLL)
                left -= POLL
            if self._drains():
                self.close()
            if not self._takes or left <= 0 or not self._add():
                return False
            try:
                seat = self._free.pop() if self._free else self._new_seat()
            except (OSError, RuntimeError) as error:
                log.warning("no thread for another task in a process that tasks share: %s", error)
                self._leave()
                return False
            self._done += 1
            if self._done >= TASKS:
                self.close()
        seat.jobs.put(job)
        return True

    def _is_active(self) -> bool:
        return self._first + self._busy - cancel_scope.asleep() >= ACTIVE

    def _is_alone(self) -> bool:
        return len(_places_of(self._code)) < min(capacity.processes(), PROCESSES)

    def _add(self) -> bool:
        """One more, where there is room for it in the worker. It is said first: another process looks, too."""
        if self._busy >= SEATS or not capacity.has_room_for_shared(self._busy):
            return False
        self._busy += 1
        self._tell()
        if sum(busy for _, _, busy in _all()) <= capacity.shared():
            return True
        self._leave()
        return False

    def _leave(self) -> None:
        self._busy -= 1
        self._tell()
        self._changes.notify_all()

    def _new_seat(self) -> "_Seat":
        seat = _Seat(self, self._seats)
        self._seats += 1
        return seat

    def run(self, seat: "_Seat", job: Job) -> None:
        """In a seat's thread."""
        try:
            self._do(job)
        except BaseException:
            log.exception("a job failed")
        finally:
            with self._changes:
                self._free.append(seat)
                self._leave()

    def close(self) -> None:
        """Take no more of them."""
        with self._changes:
            self._takes = False
            if self._socket is not None:
                self._tell()
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            self._changes.notify_all()

    def wait_until_empty(self) -> None:
        """The first task is done: return when all others are, after which none is taken any more."""
        with self._changes:
            self._first = 0
            while self._busy:
                self._changes.wait()
            self.close()
            if self._socket is not None:
                _say(self.place, NO_CODE, 0, 0)
                self._socket.close()  # its place may be another's
                self._socket = None


class _Seat:
    """A thread in which one task after the other is done, with what it keeps from one to the next.

    Raises `RuntimeError` or `OSError` where there cannot be another one.
    """

    def __init__(self, process: SharedProcess, number: int) -> None:
        self.number, self._process = number, process
        self.jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._begun: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=f"of a task: {number}", daemon=True).start()
        if (refused := self._begun.get()) is not None:
            raise refused

    def _run(self) -> None:
        here.seat = self
        try:
            own_directory.begin()
        except OSError as error:
            self._begun.put(error)
            return
        self._begun.put(None)
        while True:
            self._process.run(self, self.jobs.get())


here: Any = threading.local()
"""``seat``: that of the thread that asks, if it is one's."""


def seat() -> int | None:
    """The number of the seat whose thread asks; None in another thread."""
    found = getattr(here, "seat", None)
    return None if found is None else found.number
