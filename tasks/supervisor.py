"""The supervisor: takes tasks back from dead workers and redelivers lost messages. Every worker carries one; one leads.

Two leaders do no harm: each action is one script that checks again before it acts.
"""

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from runner.core import backoff, file_locks, processes
from runner.core.jobs import Job
from runner.core.settings import WorkerSettings
from runner.engine.ports import Broker
from runner.journal import shared_memory
from runner.providers.redis import lost_messages
from runner.providers.redis.connection import Client
from runner.providers.redis.outages import TRANSIENT_ERRORS, NotNow, outage
from runner.providers.redis.store import return_job
from runner.providers.redis.workers import WorkerInfo, Workers
from runner.tasks.exit_watch import ExitWatch

log = logging.getLogger(__name__)

OVERTAKEN = 5.0  #: between two looks into queues that are not empty
CHECK = 2.0  #: between two looks for what is gone of active runs, at some of them each time
LONGEST_TERM = 2.0  #: how long a leader leads without saying so again; not longer than a lease
WATCH = 0.03  #: between two looks at the workers' connections
QUIET = 0.1  #: between two of these where the kernel reports the exit of each of the workers
RETURN = 1.0  #: after the store was away: for workers to connect again before one counts as gone
FOLLOW = 0.025  #: times the number of workers: between two looks of one follower at the leader
AFTER_EXIT = 0.1  #: for so long after a worker's process of this machine exited, looks follow each other quickly
QUICK = 0.005  #: between two of these: the server has yet to see that the connection closed
SUFFIX = ":supervisor"  #: of the name of a supervisor within a worker, after the worker's


@dataclass
class IntervalSchedule:
    """Actions by name, each with its own interval."""

    last: dict[str, float] = field(default_factory=dict)

    def due(self, name: str, every: float) -> bool:
        """Whether ``every`` seconds have passed since this was last due."""
        now = time.monotonic()
        if now - self.last.get(name, -1e9) < every:
            return False
        self.last[name] = now
        return True


class Supervisor:
    """The supervisor's loop. ``broker`` carries jobs that this Redis does not deliver itself; without it they wait."""

    def __init__(
        self,
        connect: Callable[[], Client],
        name: str,
        settings: WorkerSettings,
        broker: Broker | None = None,
    ) -> None:
        self._connect = connect
        self._name = name
        self._settings = settings
        self._term_ms = int(min(LONGEST_TERM, settings.lease) * 1000)
        self._broker = broker
        self._stopped = False
        self._exits = ExitWatch()
        self._exited = float("-inf")  # when a worker's process of this machine last did
        self._leader = ""  # whose process is watched
        self._leading = False
        self._table = IntervalSchedule()
        self._known: list[WorkerInfo] = []
        self._lost: list[tuple[WorkerInfo, list[Job], str]] = []  # which those who watch the fleet have yet to be told
        self._missing: set[str] = set()
        self._looked = float("-inf")  # when these were missing
        self._open: list[WorkerInfo] = []  # those whose connection is: they have not registered again
        self._overtaken: set[Job] = set()
        self._server = ""
        self._me = ""
        self._since_start = 0.0
        self._trouble = float("-inf")  # when the store was last away, or refused, or we were held up
        self._due = float("inf")  # when its next answer is to be here
        self._ahead = 0.0  # by how much its clock is ahead of ours
        self._pause = self._watch = WATCH
        self._next_check = self._next_listed = 0
        self._backoff = backoff.Backoff(0.1, RETURN / 2)

    @property
    def leading(self) -> bool:
        """Whether this one leads."""
        return self._leading

    def run(self) -> None:
        """Run until `stop`. Outages of Redis are waited out."""
        self._due = time.monotonic()
        while not self._stopped:
            try:
                if not self._me:
                    self._arrive()
                pause = self._lead() if self._leading else self._follow()
                outage.ends(self)
                self._backoff.reset()
            except TRANSIENT_ERRORS as error:
                outage.begins(self, error)
                self._trouble = time.monotonic()
                if not isinstance(error, NotNow) or error.moved:
                    self._me, self._leading = "", False
                pause = self._backoff.pause()
            except Exception:
                log.exception("the supervisor failed; it will retry")
                pause = self._backoff.pause()
            self._answered(pause)
            if self._exits.wait(pause):
                self._exited = time.monotonic()
        if self._leading:
            with contextlib.suppress(*TRANSIENT_ERRORS):  # then the term runs out
                self._workers.elect(self._me, "", 1)  # a millisecond more, and another leads

    def stop(self) -> None:
        """End the loop soon. Safe in a signal handler in the loop's own thread, unlike `threading.Event`."""
        self._stopped = True
        self._exits.wake()

    def _arrive(self) -> None:
        """Read this connection's identity on the server: connections are judged only on the server that saw them open.

        Nothing takes effect before all is known: the store may refuse any of these commands, which are then repeated.
        """
        workers = Workers(self._connect())
        server, client_id = workers.me()
        up = float(workers.client.info("server")["uptime_in_seconds"])
        now = time.monotonic()
        ahead = workers.now() / 1000 - time.monotonic()
        self._workers, self._server, self._since_start, self._ahead = workers, server, now - up, ahead
        self._known, self._open, self._missing, self._table = [], [], set(), IntervalSchedule()
        self._me = f"{self._name}|{server}:{client_id}"

    def _answered(self, pause: float = 0.0) -> None:
        """The store has answered, and is asked again in ``pause`` seconds.

        If the answer is long overdue, the store, this process or its machine stood still, so that no heartbeat, or no
        answer, could arrive. Then workers get time, as after an outage. The clock is read only here: a process that
        stands still elsewhere finds out here.
        """
        now = time.monotonic()
        if now - self._due > self._settings.lease / 2:
            log.warning("held up for %.1f s; giving every worker a full lease to renew", now - self._due)
            self._trouble = now
        self._due = now + pause

    # -- following

    def _follow(self) -> float:
        leader = self._workers.leader()
        self._answered()
        if leader and not self._is_gone(leader):
            self._watch_leader(leader)
            return self._soon(max(0.05, FOLLOW * self._workers.count()))
        if self._workers.elect(self._me, leader, self._term_ms):
            self._leading = True
            log.info("%s leads", self._name)
            return 0.0
        return 0.05

    def _watch_leader(self, leader: str) -> None:
        """See at once that the leader's worker has exited, if it is of this machine."""
        if leader == self._leader:
            return
        name = leader.partition("|")[0].removesuffix(SUFFIX)
        found = [worker for worker in self._workers.registered() if worker.id == name]
        self._exits.watch(_pids(found))
        if found or not leader.partition("|")[0].endswith(SUFFIX):  # else it has yet to register
            self._leader = leader

    def _soon(self, pause: float) -> float:
        """The pause until the next look: a short one just after a process has exited."""
        return min(pause, QUICK) if time.monotonic() - self._exited < AFTER_EXIT else pause

    def _is_gone(self, leader: str) -> bool:
        """Whether the leader's connection on this very server is closed: its number is never reused."""
        server, _, client_id = leader.rpartition("|")[2].partition(":")
        if server != self._server or not client_id:
            return False
        return self._workers.connected([int(client_id)]) == set()

    # -- leading

    def _lead(self) -> float:
        if self._table.due("term", self._term_ms / 4000) and not self._workers.elect(self._me, "", self._term_ms):
            self._leading = False
            return 0.05
        if self._table.due("known", 0.5):
            self._known = self._workers.registered(self._open)
            self._exits.watch(_pids(self._known))
            self._leader = ""
            self._watch = QUIET if self._known and all(map(self._reports_exit, self._known)) else WATCH
        self._reap_disconnected()
        if self._table.due("leases", 0.1):
            self._reap_lapsed()
            self._workers.move_due()
            self._empty_outbox()
        self._report_lost()
        if self._table.due("lost", min(0.5, self._settings.resend_after)):
            self._workers.redeliver(
                int(self._settings.resend_after * 1000), depth=self._broker.depth if self._broker else None
            )
        if self._table.due("overtaken", OVERTAKEN):
            self._redeliver_lost()
        if self._table.due("expired", 60.0):
            self._workers.trim()
            self._next_listed = self._workers.relist(self._next_listed)
        if self._table.due("checked", CHECK):
            self._next_check, found = self._workers.check_runs(self._next_check)
            for run_id, what in found:
                log.error("run %s: %s", run_id, what)
        return self._soon(self._pause)

    def _reports_exit(self, worker: WorkerInfo) -> bool:
        """Whether the exit of a worker is seen at once: it is this process, or one of this machine that is watched."""
        if pids := _pids([worker]):
            return self._exits.watches(pids) and _is_seen(worker)
        return _is_here(worker) and worker.fields.get("pid") == os.getpid()

    def _reap_disconnected(self) -> None:
        """A worker is dead when its connection is closed.

        Checked twice, so that one that has reconnected has time to register. Of a worker of this machine it is known
        whether it can: if its main process lives it is not dead, however long it takes to reconnect, and its lease
        decides; if none of its processes lives, one look is enough.
        """
        by_client = {
            int(worker.fields["client_id"]): worker
            for worker in self._known
            if worker.fields.get("server") == self._server and "client_id" in worker.fields
        }
        before = time.monotonic()
        connected = self._workers.connected(by_client)
        self._open = [worker for client_id, worker in by_client.items() if client_id in (connected or ())]
        self._answered()
        now = time.monotonic()
        if now - self._trouble < RETURN:
            return
        counts = now - self._exited >= AFTER_EXIT or now - self._looked >= WATCH  # as one of the two
        # The look may not cost the server more than a twentieth of its time, however many workers there are.
        least = 20 * (time.monotonic() - before) if len(by_client) > 50 else 0.0
        self._pause = max(self._watch, least)
        if connected is None:
            return
        closed = [worker for client_id, worker in by_client.items() if client_id not in connected]
        gone = {worker.about: worker for worker in closed if not _is_seen(worker)}
        for about, worker in gone.items():
            if (counts and about in self._missing) or shared_memory.is_final(_marks(worker)):
                self._reap(worker, "its connection closed", about=about)
        if counts:
            self._missing, self._looked = set(gone), now

    def _reap_lapsed(self) -> None:
        """A worker is dead, too, when its lease has expired: a machine that vanished or froze closes no connection."""
        now = self._workers.now()
        self._answered()
        self._compare_clocks(now)
        gone = []
        for worker_id, lapses_at in self._workers.lapsed(now):
            worker = next((w for w in self._known if w.id == worker_id), WorkerInfo(worker_id, lapses_at, ""))
            lease = worker.fields.get("lease", self._settings.lease)
            from_before = worker.fields.get("server") != self._server
            back = max(self._trouble, self._since_start if from_before else self._trouble)
            if time.monotonic() - back < lease + 1:
                continue  # no heartbeat could arrive: each worker gets one lease to come back
            gone.append((worker, lease))
        # Frozen, they still wait for jobs, and would be given the very ones that are handed back.
        self._workers.unblock(worker.id for worker, _ in gone)
        for worker, lease in gone:
            self._reap(worker, f"no heartbeat for {lease:g} s", only_lapsed=True)

    def _compare_clocks(self, now: int) -> None:
        """Give workers time if the store's clock was set forward, so that all leases seem to have expired.

        The same happens if this machine was suspended: its own clock stood still.
        """
        ahead = now / 1000 - time.monotonic()
        if (by := ahead - self._ahead) > self._settings.lease / 2:
            log.warning("the store's clock jumped forward by %.1f s; giving every worker a full lease to renew", by)
            self._trouble = time.monotonic()
        self._ahead = ahead

    def _reap(self, worker: WorkerInfo, reason: str, *, about: str = "", only_lapsed: bool = False) -> None:
        file = _marks(worker)
        dead = shared_memory.is_final(file)
        jobs = self._workers.reap(
            worker.id,
            reason=reason,
            max_attempts=self._settings.max_attempts,
            about=about,
            only_lapsed=only_lapsed,
            # One that froze may send yet what it has noted.
            out=shared_memory.read_marks(file) if dead or not only_lapsed else None,
            dead=dead,
        )
        shared_memory.remove(file)
        self._known = [known for known in self._known if known.id != worker.id]
        log.warning("worker %s is gone (%s): %d task(s) handed back", worker.id, reason, len(jobs))
        if self._broker is not None:
            self._lost.append((worker, jobs, reason))

    def _redeliver_lost(self) -> None:
        """Redeliver jobs missing from a queue that is not empty; checked twice, since one may just be being taken."""
        missing = lost_messages.missing(self._workers.client, self._workers.home)
        for job in missing & self._overtaken:
            log.warning("the message of %s was lost; sending it again", job.ref)
            return_job(self._workers.client, job)
        self._overtaken = missing - self._overtaken

    def _report_lost(self) -> None:
        """Report the workers that are gone, once the tasks of all of them were handed back."""
        while self._broker is not None and self._lost:
            worker, jobs, reason = self._lost.pop(0)
            if host := worker.fields.get("host"):
                self._broker.report_lost(f"{worker.id}@{host}", jobs, f"worker {worker.id} is gone: {reason}")
                self._answered()

    def _empty_outbox(self) -> None:
        """Send the outbox, also if the broker is this Redis: a run may have been submitted with another one."""
        if self._broker is None:
            return
        for job in self._workers.outbox():
            if queue := self._workers.queue(job):
                self._broker.send(job, queue)
            self._workers.sent(job)
            self._answered()  # there may be many, and each takes its time


def _marks(worker: WorkerInfo) -> str:
    """The file in which a worker of this machine marks the sent calls of its tasks; "" for others."""
    return str(worker.fields.get("out", "")) if _is_here(worker) else ""


def _is_here(worker: WorkerInfo) -> bool:
    return bool(worker.fields.get("host") == socket.gethostname())


def _pids(workers: Iterable[WorkerInfo]) -> set[int]:
    """The main processes of those of these workers that are of this machine; not this process."""
    here = [one.fields for one in workers if _is_here(one)]
    return {int(fields["pid"]) for fields in here if fields.get("pid")} - {os.getpid()}


def _is_seen(worker: WorkerInfo) -> bool:
    """Whether its main process is known to live on this machine: not another with its pid, nor only its children."""
    return processes.runs(worker.fields.get("pid", "")) and file_locks.is_held(_marks(worker))
