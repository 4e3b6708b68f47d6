"""The heartbeat of a worker: renews its lease, watches its pool, and detects claims that it has lost.

One thread of the main process beats the lease for the whole worker: a pool child may hold its GIL for a minute. The
connection it beats on is the one whose closing tells the supervisor that the process died.
"""

import contextlib
import json
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from runner.core import processes
from runner.core.backoff import Backoff
from runner.core.jobs import Job
from runner.core.settings import MAX_HANDOVERS, WorkerSettings
from runner.journal import shared_memory
from runner.journal.shared_memory import Performed
from runner.providers.records import Beat, HeldClaim
from runner.providers.redis.connection import Client, connect
from runner.providers.redis.outages import TRANSIENT_ERRORS, NotNow, outage
from runner.providers.redis.protocol import POOLS
from runner.providers.redis.restored_store import LostWrites
from runner.providers.redis.workers import Workers
from runner.tasks import shared_process
from runner.tasks.descriptors import out_of_the_way
from runner.tasks.stops import DRAIN_GRACE, DRAINS, RECHECK

log = logging.getLogger(__name__)

T = TypeVar("T")

CHILD = b"c"  #: what a new child writes into the wake-up pipe
AWAY = 0.5  #: seconds at most between two tries to reach a store that is away: it is to learn of us once it is back
LOOK = 0.1  #: seconds between looks for a child that just started
FIND_LOST_WRITES = 5.0  #: for so long a worker looks again what a restored store may have forgotten
HANG_GRACE = 10.0  #: after a task's timeout, before its process is killed


class Heartbeat(threading.Thread):
    """Renews the lease of one worker, and watches its pool."""

    def __init__(
        self,
        url: str,
        worker: str,
        settings: WorkerSettings,
        *,
        about: dict[str, Any],
        children: Callable[[], Iterable[int]],
        stop_here: Callable[[str], None] | None,
        restart: Callable[[str], None],
        free_slot: Callable[[int], None],
        slots: Callable[[], int],
        queue: str | None,
        taken: Callable[[], int],
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._url = url
        self._worker = worker
        self._settings = settings
        self._about = about
        self._children = children
        self._stop_here = stop_here
        self._restart = restart
        self._free_slot = free_slot
        self._slots = slots
        self._queue = queue
        self._taken = taken
        self._client: Client | None = None
        self._former: Client | None = None  # the one that is registered, until another is
        self._pidfds: dict[int, int] = {}
        self._recheck = 0
        self._claims: tuple[HeldClaim, ...] = ()  # as of its last beat
        self._wake_r, self._wake_w = os.pipe()
        for end in (self._wake_r, self._wake_w):
            os.set_blocking(end, False)
        self._draining = False  # no Event: its lock would be taken again by a signal inside of a signal's handler
        self._drain_seen = False
        self._cause = signal.SIGTERM
        self._drain_end = float("inf")
        self._stopped = threading.Event()
        self._stall = Stall(settings.stall)
        self._frozen_since: dict[int, float] = {}
        self._left: dict[int, float] = {}  # processes that were told to hand back what they share, until when
        self._deadlines = Deadlines()
        self._dropped: SeenTwice[HeldClaim] = SeenTwice()
        self._strays: SeenTwice[Performed] = SeenTwice()
        self._find_lost_writes = LostWrites(worker)
        self._server = ""
        self._number = 0  # of our last beat, as the store counts them
        self._rewound = False  # or so it may be
        self._lost_writes_until = 0.0  # what other workers find meanwhile settles what is unclear to this one
        self.registered = threading.Event()
        self._backoff = Backoff(0.1, min(AWAY, settings.beat))

    # -- from other threads, signal handlers and pool children

    def child_starts(self) -> None:
        """In a pool child, before it takes its first job: register to be watched."""
        self._wake_up(CHILD)

    def drain(self, cause: signal.Signals) -> None:
        """The worker was asked to end: hand everything back. Safe in a signal handler, and in one nested in it."""
        if not self._draining:
            self._cause = cause
        self._draining = True
        self._wake_up(b"d")

    def leave(self) -> None:
        """The worker ends: remove it from the store."""
        self._stopped.set()
        self._wake_up(b"s")
        self.join(5)
        with contextlib.suppress(
            *TRANSIENT_ERRORS, OSError
        ):  # Redis is away: the lease lapses, and who sees that looks there
            self._reap(reason="its worker left")
            shared_memory.remove(self._about.get("out", ""))

    def _wake_up(self, why: bytes) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it is woken as it is, and a signal's handler must not wait
            os.write(self._wake_w, why)

    # -- the thread

    def run(self) -> None:
        """Beat, check, wait; forever."""
        while not self._stopped.is_set():
            try:
                if self._draining:
                    self._drain()
                self._beat()
                self._watch_queue()
                outage.ends(self)
                self._backoff.reset()
                self._wait()
            except TRANSIENT_ERRORS as error:
                self._not_now(error)
                self._stopped.wait(self._backoff.pause())
            except Exception:
                log.exception("the heartbeat failed; it will be retried")
                self._stopped.wait(self._backoff.pause())

    def _workers(self) -> Workers:
        if self._client is None:
            timeout = max(0.3, min(5.0, self._settings.lease))
            self._client = connect(self._url, name=f"runner:{self._worker}", timeout=timeout, single=True)
            self._register()
        return Workers(self._client)

    def _register(self) -> None:
        assert self._client is not None
        workers = Workers(self._client)
        server, client_id = workers.me()
        about = json.dumps({**self._about, "server": server, "client_id": client_id}, sort_keys=True)
        before = workers.beat(self._worker, self._settings.lease_ms, about)
        if self._former is not None:
            self._former.close()
            self._former = None
        self._rewound |= self.registered.is_set() and (server != self._server or not before.stood)
        self._server = server
        try:
            self._take(before)
        finally:
            if not before.stood and self.registered.is_set():
                log.warning(
                    "worker %s had lost its lease and is back; its tasks check whether their claims still hold",
                    self._worker,
                )
                self._tell(RECHECK)
            self.registered.set()

    def _beat(self) -> None:
        workers = self._workers()
        answer = workers.beat(self._worker, self._settings.lease_ms)
        if not answer.stood:
            self._register()
            return
        self._claims = answer.claims
        self._take(answer)
        performed = shared_memory.performed()
        hung = self._deadlines.passed(answer, HANG_GRACE + outage.seconds)
        for claim in hung:
            if shared_memory.performs(performed.get(claim.process), claim.ref, claim.token):
                self._kill_hung(claim)
        for pid in self._children():
            self._kill_if_frozen(pid)
        self._reap_childless(answer.claims)
        self._compare(answer.claims, performed)

    def _compare(self, claims: Iterable[HeldClaim], performed: Mapping[str, Performed]) -> None:
        """Compare the claims in the store with what the processes perform."""
        dropped = {c for c in claims if not shared_memory.performs(performed.get(c.process), c.ref, c.token)}
        twice = self._dropped.again(dropped)
        if twice:  # a store that went back may list them; what it forgot is counted before anybody does it again
            self._find_lost_writes(self._workers().client, shared_memory.remembered)
        for claim in twice:
            if self._workers().take_back(self._worker, claim, reason="no process of its worker was running it"):
                log.warning("no process of this worker runs task %s (token %d); handed back", claim.ref, claim.token)
        held = {Performed(shared_memory.digest(claim.ref), claim.token) for claim in claims}
        if self._strays.again({at for at in performed.values() if at.token} - held):
            self._tell(RECHECK)

    def _take(self, answer: Beat) -> None:
        """Look back, if needed, before the processes are notified, so that lost work is counted before it is redone."""
        self._rewound |= answer.stood and answer.number <= self._number
        self._number = answer.number
        if self._rewound:
            self._lost_writes_until = time.monotonic() + FIND_LOST_WRITES
            self._rewound = False
        if time.monotonic() < self._lost_writes_until:
            self._find_lost_writes(self._workers().client, shared_memory.remembered)
        if answer.recheck != self._recheck:
            self._recheck = answer.recheck
            self._tell(RECHECK)

    def _wait(self) -> None:
        """Wait for the next beat, a closed connection, the death of a child, or a wakeup."""
        end = time.monotonic() + self._settings.beat
        all_seen = 0.0  # a child says that it started perhaps before the pool has its pid
        while (left := end - time.monotonic()) > 0 and not self._stopped.is_set():
            self._track_children()
            sock = self._socket()
            # No select: it knows the first 1,024 descriptors of a process only.
            watched = select.poll()
            for fd in (*([sock.fileno()] if sock else []), self._wake_r, *self._pidfds.values()):
                watched.register(fd, select.POLLIN)
            left = min(left, LOOK) if time.monotonic() < all_seen else left
            readable = {fd for fd, _ in watched.poll(left * 1000)}
            if self._wake_r in readable:
                if os.read(self._wake_r, 64).strip(CHILD):
                    return
                all_seen = time.monotonic() + 5 * LOOK
            if sock and sock.fileno() in readable:  # nothing is asked, so this is its end
                self._disconnect()
                return
            dead = [pid for pid, fd in self._pidfds.items() if fd in readable]
            for pid in dead:
                self._child_died(pid)

    def _socket(self) -> socket.socket | None:
        connection = self._client.connection if self._client is not None else None
        return getattr(connection, "_sock", None)

    def _not_now(self, error: Exception) -> None:
        """The store is away, or refuses: retry on the connection by which the supervisor sees that this worker lives.

        If a new connection may reach another server, the old one stays open until the new one is registered.
        """
        outage.begins(self, error)
        if not isinstance(error, NotNow):
            self._disconnect()
        elif error.moved:
            if self._former is None:
                self._former, self._client = self._client, None
            self._disconnect()

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    # -- the pool

    def _track_children(self) -> None:
        for pid in self._children():
            if pid not in self._pidfds:
                try:
                    self._pidfds[pid] = out_of_the_way(os.pidfd_open(pid))
                except (OSError, AttributeError):
                    continue

    def _child_died(self, pid: int) -> None:
        os.close(self._pidfds.pop(pid))
        self._free_slot(pid)
        shared_memory.forget(pid)
        shared_process.forget(pid)
        self._left.pop(pid, None)
        try:
            self._reap_process(pid)
        except TRANSIENT_ERRORS as error:  # the next beat finds its claims without a process
            self._not_now(error)

    def _reap_process(self, pid: int) -> None:
        if jobs := self._reap(process=str(pid), reason="its process died", dead=True):
            log.warning("pool child %d died; %d task(s) handed back", pid, len(jobs))

    def _reap(self, *, reason: str, process: str = "", dead: bool = False, max_handovers: int = 0) -> list[Job]:
        """Take back the claims of its processes, or of one. Returns the jobs that are interrupted."""
        return self._workers().reap(
            self._worker,
            process=process,
            reason=reason,
            max_attempts=self._settings.max_attempts,
            out=shared_memory.read_marks(self._about.get("out", "")),
            dead=dead,
            max_handovers=max_handovers,
        )

    def _reap_childless(self, claims: Iterable[HeldClaim]) -> None:
        """Take back claims of children that died before they could be watched."""
        if self._stop_here is not None:
            return  # there are none
        alive = set(self._children())
        for process in {_pid(claim) for claim in claims} - alive - {0}:
            self._reap_process(process)

    def _kill_hung(self, claim: HeldClaim) -> None:
        """Kill the process of a task that has long outlived its timeout: it does not react to stops."""
        pid = _pid(claim)
        if pid not in self._children():
            return
        if "-" in claim.process and pid not in self._left:  # its process does others: they are handed back first
            self._left[pid] = time.monotonic() + self._settings.drain_timeout + 1
            log.error("task %s is past its timeout and does not stop; asking process %d to end", claim.ref, pid)
            _kill(pid, DRAINS[signal.SIGTERM])
        elif time.monotonic() > self._left.get(pid, 0.0):
            log.error("task %s is past its timeout and does not stop; killing process %d", claim.ref, pid)
            _kill(pid, signal.SIGKILL)

    def _kill_if_frozen(self, pid: int) -> None:
        """Kill a child stopped for a lease, with a task or without: it would get jobs, and perform none."""
        if processes.state(pid) != "T":
            self._frozen_since.pop(pid, None)
        elif time.monotonic() - self._frozen_since.setdefault(pid, time.monotonic()) > self._settings.lease:
            log.error("process %d is stopped; killing it", pid)
            _kill(pid, signal.SIGKILL)

    def _tell(self, signum: int) -> None:
        if self._stop_here is not None:
            self._stop_here("recheck" if signum == RECHECK else self._cause.name)
            return
        for pid in self._children():
            _kill(pid, signum)

    # -- draining

    def _drain(self) -> None:
        """Stop the tasks. Those that are still running long after the drain timeout are taken back."""
        if not self._drain_seen:
            self._drain_seen = True
            self._drain_end = time.monotonic() + self._settings.drain_timeout + DRAIN_GRACE
            log.warning("worker %s is shutting down; handing its tasks back", self._worker)
            # The consumer's waiting BRPOP would steal the very jobs that are handed back.
            with contextlib.suppress(*TRANSIENT_ERRORS):  # Redis is away: then nothing can be stolen either
                self._workers().unblock([self._worker])
            self._tell(DRAINS.get(self._cause, DRAINS[signal.SIGTERM]))
        if time.monotonic() > self._drain_end:
            log.error("worker %s: tasks did not stop in time; taking them back", self._worker)
            for pid in self._children():
                _kill(pid, signal.SIGKILL)
            self._drain_end = float("inf")
            with contextlib.suppress(*TRANSIENT_ERRORS):  # then they lapse with the lease
                self._reap(reason="it did not stop in time", max_handovers=MAX_HANDOVERS)
            if self._stop_here is not None:
                os._exit(0)

    # -- a consumer that stopped consuming

    def _watch_queue(self) -> None:
        """Detect that Celery has stopped consuming, as after a lost connection: only a restart helps."""
        if self._queue is None or self._draining:
            return
        workers = self._workers()
        waiting = workers.queue_length(self._queue, self._about.get("serves", POOLS))
        idle = waiting > 0 and shared_process.taken_slots(self._claims, forked=self._stop_here is None) < self._slots()
        if self._stall.stands(idle=idle, moved=self._taken()):
            self._restart(
                f"{waiting} job(s) are queued, slots are free, and none was claimed for {self._settings.stall:g} s"
            )


class Stall:
    """Whether nothing was claimed for ``seconds`` although jobs were queued and slots were free."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._moved = -1
        self._since = 0.0

    def stands(self, *, idle: bool, moved: int) -> bool:
        """Check once: is it idle although there is work, and how often has it moved? Starts over after a report."""
        now = time.monotonic()
        if not idle or moved != self._moved:
            self._moved, self._since = moved, now
            return False
        if now - self._since <= self._seconds:
            return False
        self._since = now
        return True


class Deadlines:
    """The deadlines of a worker's claims, by its own clock."""

    def __init__(self) -> None:
        self._ends: dict[HeldClaim, float] = {}

    def passed(self, answer: Beat, more: float) -> list[HeldClaim]:
        """Return the claims in this answer that are ``more`` seconds past their deadline."""
        now = time.monotonic()
        self._ends = {
            claim: self._ends.get(claim, now + (claim.deadline - answer.at) / 1000)
            for claim in answer.claims
            if claim.deadline
        }
        return [claim for claim, end in self._ends.items() if now > end + more]


class SeenTwice(Generic[T]):
    """Values seen in two consecutive checks: an answer in flight at the first has arrived by the second."""

    def __init__(self) -> None:
        self._before: set[T] = set()

    def again(self, found: set[T]) -> set[T]:
        """Return those of ``found`` that the last check had found as well, and start over with them."""
        twice = found & self._before
        self._before = found - twice
        return twice


def _pid(claim: HeldClaim) -> int:
    """The pid of the process that holds a claim; 0 if claims do not say."""
    pid = claim.process.partition("-")[0]
    return int(pid) if pid.isdigit() else 0


def _kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
