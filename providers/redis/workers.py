"""Leases of workers, the election of the leading supervisor, and recovery of dead workers' tasks."""

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from runner.core.jobs import Job
from runner.core.plan import queue_for
from runner.core.settings import MAX_HANDOVERS
from runner.providers.records import Beat, HeldClaim
from runner.providers.redis import keys, scripts
from runner.providers.redis.connection import Client
from runner.providers.redis.keys import queue_in, queue_of, served
from runner.providers.redis.outages import NotNow
from runner.providers.redis.protocol import FIRST, POOLS

AT_ONCE = 12  #: claims that one script takes back: about a millisecond, in which the server serves no other client


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as it registered: ``about`` is its own JSON, kept as text to tell one registration from the next."""

    id: str
    lapses_at: int
    about: str

    @property
    def fields(self) -> dict[str, Any]:
        """The fields with which a worker registered."""
        return json.loads(self.about) if self.about else {}

    @property
    def reads(self) -> tuple[int, ...]:
        """The numbers of the protocols that a worker reads."""
        return tuple(self.fields.get("reads", (FIRST,)))


class Workers:
    """The leases of one store."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.home = keys.home_of(client)

    def _key(self, name: str, **parts: str) -> str:
        return keys.key(name, home=self.home, **parts)

    def beat(self, worker: str, lease_ms: int, about: str = "") -> Beat:
        """Prolong the lease; with ``about``, register. One round trip."""
        stood, recheck, at, flat, number = scripts.load("beat").at(
            self.client, of=worker, id=worker, lease_ms=lease_ms, about=about
        )
        claims = []
        for ref, value in zip(flat[::2], flat[1::2], strict=True):
            token, process, deadline = value.split("|")
            claims.append(HeldClaim(ref, int(token), process, int(deadline)))
        return Beat(bool(stood), int(recheck), at, tuple(claims), number)

    def reap(
        self,
        worker: str,
        *,
        reason: str,
        max_attempts: int,
        process: str = "",
        about: str = "",
        only_lapsed: bool = False,
        out: Mapping[str, str] | None = None,
        dead: bool = False,
        max_handovers: int = 0,
    ) -> list[Job]:
        """Take back the claims of a worker, or of one process. See `runner.engine.ports.Workers.reap`.

        Many are taken back in parts: the messages of the first are sent before the last are looked at, and no other
        client of the server waits for all of them. Who dies in between leaves the rest to who looks next. ``dead``: its
        processes are known to have died, so they have begun no step since.
        """
        script, back, left = scripts.load("reap"), list[Job](), dict(out or {})
        parts: list[tuple[list[str], dict[str, str]]] = [([], left)]
        for some, said in parts:
            done, found, many, processes, overwritten = script.at(
                self.client,
                of=worker,
                id=worker,
                process=process,
                about=about,
                lapsed=int(only_lapsed),
                reason=reason,
                out=json.dumps(said),
                dead=int(dead),
                max_attempts=max_attempts,
                max_handovers=max_handovers,
                some=json.dumps(some),
                at_once=AT_ONCE,
            )
            if not done:  # it has come back
                break
            back += map(_job, found)
            if overwritten and self._mended():  # what stayed is looked at again
                parts.append((some, said))
            for part in (slice(i, i + AT_ONCE) for i in range(0, len(many), AT_ONCE)):
                parts.append((many[part], {one: left[one] for one in processes[part] if one in left}))
        return back

    def take_back(self, worker: str, claim: HeldClaim, *, reason: str, max_handovers: int = MAX_HANDOVERS) -> bool:
        """Hand back one claim of a worker that lives; whether it still held. Handed over too often, its task fails."""
        about = {"token": claim.token, "ref": claim.ref, "reason": reason, "max_handovers": max_handovers}
        script = scripts.load("take_back")
        return bool(script.at(self.client, *keys.unref(claim.ref), of=worker, worker=worker, **about))

    def registered(self, known: Iterable[WorkerInfo] = ()) -> list[WorkerInfo]:
        """Every registered worker, lapsed or not.

        What those ``known`` said of themselves is not read again: one round trip, and another one if there are others.
        """
        leases = self.client.zrange(self._key("workers_key"), 0, -1, withscores=True)
        said = {one.id: one.about for one in known if one.about}
        new = [worker for worker, _ in leases if worker not in said]
        if new:
            pipe = self.client.pipeline(transaction=False)
            for worker in new:
                pipe.hget(self._key("worker_key", worker=worker), "about")
            said.update(zip(new, pipe.execute(), strict=True))
        return [WorkerInfo(worker, int(score), said[worker] or "") for worker, score in leases]

    def lapsed(self, now: int) -> list[tuple[str, int]]:
        """Workers whose lease has lapsed, and when it did."""
        found = self.client.zrangebyscore(self._key("workers_key"), "-inf", now, withscores=True)
        return [(worker, int(score)) for worker, score in found]

    def alive(self) -> list[WorkerInfo]:
        """Return the workers whose lease has not lapsed."""
        now = self.now()
        return [worker for worker in self.registered() if worker.lapses_at > now]

    def count(self) -> int:
        """Return how many workers are registered."""
        return int(self.client.zcard(self._key("workers_key")))

    def claimed(self, worker: str) -> int:
        """Return how many tasks a worker holds."""
        return int(self.client.hlen(self._key("claims_key", worker=worker)))

    def now(self) -> int:
        """Return the server's time in milliseconds."""
        seconds, micros = self.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def leader(self) -> str:
        """Who leads, as it wrote itself; "" if none does."""
        return self.client.mget(self._key("leader_key"))[0] or ""  # a key of another type is none, and is taken over

    def elect(self, me: str, gone: str, ttl_ms: int) -> bool:
        """Take, keep or take over the lead from a supervisor that was seen to be gone."""
        return bool(scripts.load("elect").at(self.client, me=me, gone=gone, ttl_ms=ttl_ms))

    def connected(self, client_ids: Iterable[int]) -> set[int] | None:
        """Which of these connections are open, or None where the server will not tell."""
        ids = list(client_ids)
        if not ids:
            return set()
        try:
            # One string as the command: redis-py would otherwise parse every line of the answer.
            text = self.client.execute_command("CLIENT", "LIST", "ID", *ids)
        except NotNow:
            raise
        except (NoPermissionError, ResponseError):
            return None
        lines = text if isinstance(text, list) else str(text).splitlines()
        return {int(line["id"]) if isinstance(line, dict) else int(line.split(" ", 1)[0][3:]) for line in lines if line}

    def supervisors(self) -> list[str]:
        """The names of the supervisors that run without a worker; the leader's alone, if no clients may be listed."""
        try:
            found = re.findall(r" name=runner:(supervisor-\S+) ", str(self.client.execute_command("CLIENT", "LIST")))
        except NotNow:
            raise
        except (NoPermissionError, ResponseError):
            found = re.findall(r"^(supervisor-\S+)\|", self.leader())
        return sorted(set(found))

    def unblock(self, workers: Iterable[str]) -> None:
        """End the waiting of these workers' consumers for jobs; their connections carry the worker's name."""
        wanted = tuple(f" name={worker}:celery " for worker in workers)
        if not wanted:
            return
        with contextlib.suppress(NoPermissionError):  # then a job they take is sent again, a second later
            text = self.client.execute_command("CLIENT", "LIST", "TYPE", "normal")
            for line in str(text).splitlines():
                if "cmd=brpop" in line and any(name in line for name in wanted):
                    self.client.client_unblock(int(line.split(" ", 1)[0][3:]))

    def me(self) -> tuple[str, int]:
        """The server's run id and the id of this client's connection on it: what `connected` can find again."""
        number = int(self.client.client_id())
        return str(self.client.info("server")["run_id"]), number

    def move_due(self, limit: int = 500) -> int:
        """Send the tasks whose next attempt has come; returns how many."""
        many, overwritten = scripts.load("move_due").at(self.client, limit=limit)
        if overwritten:
            self._mended()
        return int(many)

    def redeliver(self, older_ms: int, limit: int = 100, depth: Callable[[str], int | None] | None = None) -> int:
        """Send again jobs that were never claimed. See `runner.engine.ports.Workers.redeliver`."""
        script, depths = scripts.load("redeliver"), dict[str, int]()
        many: int = 0
        while True:
            sent, unknown, overwritten = script.at(
                self.client, older_ms=older_ms, limit=limit, depths=json.dumps(depths)
            )
            many += int(sent)
            if overwritten:
                self._mended()
            if not unknown:
                return many
            for queue in unknown:
                depths[queue] = (depth(queue) if depth is not None else None) or 0

    def trim(self, limit: int = 1000) -> int:
        """Forget expired runs; returns how many."""
        return int(scripts.load("trim").at(self.client, limit=limit))

    def relist(self, first: int, limit: int = 500) -> int:
        """List those of the runs, from the ``first`` on, again that an index has lost. Returns where to look next.

        One index has all runs, and of two others one has each: what one has lost the others have.
        """
        runs, of_active, of_expiring = map(self._key, ("runs_key", "active_key", "expiring_key"))
        # One by one: a pipeline does not ask again where one of them was overwritten, and had to be removed.
        listed, active, expiring = map(self.client.zcard, (runs, of_active, of_expiring))
        last = first + limit - 1
        ids = self.client.zrange(runs if listed >= active + expiring else of_active, first, last)
        if listed < active + expiring and last >= active:
            ids += self.client.zrange(of_expiring, max(first - active, 0), last - active)
        if ids:
            scripts.load("relist").at(self.client, ids=json.dumps(ids))
        return first + limit if len(ids) == limit else 0

    def check_runs(self, first: int, limit: int = 40) -> tuple[int, list[tuple[str, str]]]:
        """Look at active runs, from the ``first`` on, for what is gone of them: they would be active for ever.

        Returns where to look next, and what was found: run and text. See ``check_runs.lua``.
        """
        check = partial(scripts.load("check_runs").at, self.client, first=first, many=limit)
        after, found, overwritten = check()
        if overwritten and self._mended():
            after, more, _ = check()
            found += more
        return int(after), [(run_id, text) for run_id, text in found]

    def _mended(self) -> bool:
        """Remove keys that were overwritten with another type, as `NoticingClient.mend`. Returns whether any were."""
        return bool(getattr(self.client, "mend", bool)())

    def outbox(self, limit: int = 500) -> list[Job]:
        """Jobs to send where the broker is not this Redis, oldest first."""
        return [_job(entry) for entry in self.client.zrange(self._key("outbox_key"), 0, limit - 1)]

    def queue(self, job: Job) -> str:
        """The queue that the messages of its task go to; "" where its run is gone."""
        task = keys.key("task_key", branch_key=keys.branch_key(job.run_id, job.branch, self.home), name=job.task)
        queue = self.client.hget(keys.run_key(job.run_id, self.home), "queue")
        return queue_for(queue, self.client.hget(task, "pool")) if queue else ""

    def sent(self, job: Job) -> None:
        """A job from the outbox was handed to the broker."""
        self.client.zrem(self._key("outbox_key"), f"{job.ref}|{job.attempt}")

    def active_runs(self) -> int:
        """Return how many runs are running."""
        return int(self.client.zcard(self._key("active_key")))

    def busy(self) -> bool:
        """Whether there is something to do, or will be without a person: a run that awaits input may wait for days."""
        pipe = self.client.pipeline(transaction=False)
        for run_id in self.client.zrange(self._key("active_key"), 0, -1):
            pipe.hget(keys.run_key(run_id, self.home), "status")
        if any(status != "waiting" for status in pipe.execute()):
            return True
        if self.client.zcard(self._key("queued_key")) or self.client.zcard(self._key("due_key")):
            return True
        return any(self.claimed(worker.id) for worker in self.registered())

    def queue_length(self, queue: str, pools: Collection[str] = POOLS) -> int:
        """How many messages wait on this Redis for those who serve the queue called so, with these pools."""
        pipe = self.client.pipeline(transaction=False)
        for one in served(queue_in(self.home, queue), pools):
            pipe.llen(one)
        return sum(map(int, pipe.execute()))

    def needs_processes(self, queue: str, seconds: float) -> bool:
        """Wait, for at most so many seconds, until there is a task for the processes of those who serve this queue.

        A job stays where it is. Also true if the workers of this store are known to have needed processes before.
        """
        if self.client.exists(self._key("processes_key")) or self.queue_length(queue, ("process",)):
            return True
        newest = queue_of(queue_in(self.home, queue))
        return self.client.blmove(newest, newest, seconds, "RIGHT", "RIGHT") is not None

    def use_processes(self, seconds: int) -> None:
        """Say that workers of this store need processes; it is known for so long from now on."""
        self.client.set(self._key("processes_key"), "1", ex=seconds)

    def clients(self, imported: Collection[str], seconds: int) -> set[str]:
        """The models' clients that workers have imported, with these, which are known for so long from now on."""
        key = self._key("clients_key")
        pipe = self.client.pipeline(transaction=False)
        if imported:
            pipe.sadd(key, *imported)
            pipe.expire(key, seconds)
        pipe.smembers(key)
        return set(pipe.execute()[-1])

    def watched(self) -> bool:
        """Whether a Flower is watching."""
        return bool(self.client.exists(self._key("monitors_key")))

    def watch(self, seconds: int) -> None:
        """Say that a Flower watches."""
        self.client.set(self._key("monitors_key"), "1", ex=seconds)


def _job(entry: str) -> Job:
    reference, attempt = entry.rsplit("|", 1)
    return Job(*keys.unref(reference), int(attempt))
