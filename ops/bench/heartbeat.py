"""What 1,000 idle workers cost the server: their beats, and the one supervisor that watches them.

The workers are 1,000 connections of one process, which sends on each what an idle worker's presence sends, once a
second, spread over the second; and what their supervisors, following, ask. The leading supervisor is the real one.
Celery's own waiting for jobs is measured on its own: it is the broker's price, not the heartbeats'.
"""

import json
import selectors
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fleet import CONCURRENCY
from redis import Redis
from servers import Server
from supervised import leading_supervisor
from table import Row

from runner.core.settings import DEFAULT_QUEUE, WorkerSettings
from runner.providers.redis import keys, scripts
from runner.providers.redis.connection import connect
from runner.providers.redis.workers import Workers
from runner.tasks.supervisor import FOLLOW

WORKERS = 1000


class Idle:
    """A registered worker on a connection of its own."""

    def __init__(self, url: str, number: int) -> None:
        self.id = f"idle-{number:04d}"
        client = connect(url, name=f"runner:{self.id}", single=True)
        self._client = client  # it closes the connection when it goes
        self._connection: Any = client.connection
        workers = Workers(client)
        server, client_id = workers.me()
        settings = WorkerSettings()
        about = {
            "server": server, "client_id": client_id, "host": "here", "pid": number, "pool": "prefork",
            "concurrency": CONCURRENCY, "queue": DEFAULT_QUEUE, "lease": settings.lease, "python": "3",
        }  # fmt: skip
        workers.beat(self.id, settings.lease_ms, json.dumps(about, sort_keys=True))
        home = keys.home()
        beat = scripts.load("beat")
        slots = {
            "workers": keys.key("workers_key", home=home), "worker": keys.key("worker_key", home=home, worker=self.id),
            "claims": keys.key("claims_key", home=home, worker=self.id), "id": self.id,
            "lease_ms": settings.lease_ms, "about": "",
        }  # fmt: skip
        self._beat = self._packed(["EVALSHA", beat.sha, *beat.arguments(slots)], ["LLEN", DEFAULT_QUEUE])
        self._follow = self._packed(
            ["GET", keys.key("leader_key", home=home)],
            ["CLIENT", "LIST", "ID", client_id],
            ["ZCARD", keys.key("workers_key", home=home)],
        )
        self.socket = self._connection._sock

    def _packed(self, *commands: list[Any]) -> bytes:
        return b"".join(b"".join(self._connection.pack_command(*command)) for command in commands)

    def beat(self) -> None:
        self.socket.sendall(self._beat)

    def follow(self) -> None:
        self.socket.sendall(self._follow)


def measure(server: Server, seconds: float) -> Iterator[Row]:
    with ThreadPoolExecutor(16) as pool:
        idle = list(pool.map(lambda number: Idle(server.url, number), range(WORKERS)))
    redis = server.client()
    with leading_supervisor(server):
        drive = Drive(idle)
        drive.go(2.0)
        all_of_it = share(redis, lambda: drive.go(seconds))
        late = drive.latest
    alone = share(redis, lambda: drive.go(seconds))
    if Workers(connect(server.url)).count() != WORKERS:
        raise RuntimeError("a worker was taken for dead")
    waiting = share(redis, lambda: brpop(idle, seconds / 2))
    yield Row(
        "heartbeat", f"idle: {WORKERS:,} workers' heartbeats and their supervisor, share of one Redis core", all_of_it,
        f"{all_of_it:.1%} (beats and followers {alone:.1%}, the leader's watch {max(0.0, all_of_it - alone):.1%}; "
        f"latest beat {late * 1000:.0f} ms late)",
        "< 20 %", all_of_it < 0.2, f"{waiting:.1%}: Celery's own waiting (BRPOP once a second each)",
    )  # fmt: skip


class Drive:
    """Sends what is due, and reads and forgets the answers."""

    def __init__(self, idle: list[Idle]) -> None:
        self._idle = idle
        self._selector = selectors.DefaultSelector()
        for worker in idle:
            worker.socket.setblocking(True)
            self._selector.register(worker.socket, selectors.EVENT_READ)
        self.latest = 0.0

    def go(self, seconds: float) -> None:
        beats = len(self._idle) / WorkerSettings().beat  # per second
        follows = len(self._idle) / max(0.05, FOLLOW * len(self._idle))
        began = time.monotonic()
        beaten = followed = 0
        self.latest = 0.0
        while (now := time.monotonic() - began) < seconds:
            if beaten < now * beats:
                self.latest = max(self.latest, now - beaten / beats)
                self._idle[beaten % len(self._idle)].beat()
                beaten += 1
            if followed < now * follows:
                self._idle[(followed * 7) % len(self._idle)].follow()
                followed += 1
            self._read(0.0 if beaten < now * beats else 0.002)
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            self._read(0.05)

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            key.fileobj.recv(65536)


def brpop(idle: list[Idle], seconds: float) -> None:
    """Every worker waits on an empty queue, a second at a time."""
    command = b"".join(idle[0]._connection.pack_command("BRPOP", "nothing", 1))
    end = time.monotonic() + seconds
    selector = selectors.DefaultSelector()
    for number, worker in enumerate(idle):
        worker.socket.sendall(command)
        selector.register(worker.socket, selectors.EVENT_READ)
        if number % 50 == 49:
            time.sleep(0.05)
    waiting = len(idle)
    while waiting:
        for key, _ in selector.select(0.1):
            key.fileobj.recv(65536)
            if time.monotonic() < end:
                key.fileobj.sendall(command)
            else:
                waiting -= 1


def share(redis: "Redis[str]", act: Callable[[], None]) -> float:
    """The part of one core that the server used meanwhile."""

    def used() -> float:
        info = redis.info("cpu")
        return float(info["used_cpu_user"] + info["used_cpu_sys"])

    before, began = used(), time.monotonic()
    act()
    return (used() - before) / (time.monotonic() - began)
