"""A Redis Cluster of real servers: masters that share the slots, and replicas, to kill and to reshard."""

import contextlib
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis import Redis
from redis.exceptions import RedisError

from runner.client.embedded import find_binary
from runner.providers.redis.cluster import SLOTS
from runner.testing import eventually

TIMEOUT = 1000  #: ms until a node that says nothing is taken to be gone


class RedisCluster:
    """Masters by their number; after them their replicas, in the same order; and ``spare`` ones, without slots."""

    def __init__(
        self, folder: Path, masters: int = 3, replicas: int = 0, spare: int = 0, arguments: Sequence[str] = ()
    ) -> None:
        self.folder, self.masters, self.arguments = folder, masters, (*arguments, "--appendonly", "yes")
        self.ports = free_ports(masters * (1 + replicas) + spare)
        self.spare = spare
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """That of the cluster, of two of its nodes."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{port}' for port in self.ports[:2])}"

    def node(self, number: int) -> Redis:
        """A client of one node."""
        return Redis(port=self.ports[number], decode_responses=True, socket_timeout=5)

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def _make(self) -> None:
        for number in range(len(self.ports)):
            self.start(number)
        eventually(self._all_answer, why="all nodes answer")
        for number in range(self.masters):
            with self.node(number) as node:
                first, last = (SLOTS * n // self.masters for n in (number, number + 1))
                node.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
                node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        with self.node(0) as node:
            for port in self.ports[1:]:
                node.execute_command("CLUSTER", "MEET", "127.0.0.1", port)
        eventually(lambda: self._each_knows(len(self.ports)), why="each node knows all others")
        for number in range(self.masters, len(self.ports) - self.spare):
            with self.node(number) as node:
                node.execute_command("CLUSTER", "REPLICATE", self.id_of((number - self.masters) % self.masters))
        eventually(self.is_whole, why="the cluster is up")

    def end(self) -> None:
        """Kill all nodes."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    def start(self, number: int) -> None:
        """Start a node, with what it has stored."""
        port = self.ports[number]
        where = self.folder / str(port)
        where.mkdir(parents=True, exist_ok=True)
        command = [
            *(find_binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", where, "--save", ""),
            *("--cluster-enabled", "yes", "--cluster-node-timeout", str(TIMEOUT), "--cluster-port", str(port + 10_000)),
            *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0", *self.arguments),
        ]
        with (where / "log").open("ab") as log:
            self.processes[port] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        """Kill -9 a node."""
        self.processes[self.ports[number]].kill()
        self.processes[self.ports[number]].wait()

    def id_of(self, number: int) -> str:
        """The id by which nodes call it."""
        with self.node(number) as node:
            return str(node.execute_command("CLUSTER", "MYID"))

    def master_of(self, slot: int) -> int:
        """The number of the node that has a slot, as most that answer see it; -1 if none has."""
        seen: list[int] = []
        for number in range(len(self.ports)):
            with contextlib.suppress(RedisError, OSError), self.node(number) as node:
                for first, last, (_, port, *_), *_ in node.execute_command("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        seen.append(self.ports.index(port))
        return max(seen, key=seen.count, default=-1)

    def begin_move(self, slot: int, to: int) -> None:
        """Say at both nodes that a slot moves: it waits for its keys."""
        at = self.master_of(slot)
        with self.node(at) as source, self.node(to) as target:
            target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(at))
            source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to))

    def move_keys(self, slot: int, at: int, to: int, many: int = 10) -> int:
        """Move so many of its keys, as `redis-cli --cluster reshard` does. Returns how many."""
        with self.node(at) as source:
            keys = source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, many)
            if keys:
                source.execute_command("MIGRATE", "127.0.0.1", self.ports[to], "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, at: int, to: int) -> None:
        """All keys are there: say to whom the slot belongs."""
        owner = self.id_of(to)
        for number in (to, at, *(n for n in range(self.masters) if n not in (to, at))):
            with contextlib.suppress(RedisError, OSError), self.node(number) as node:
                node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", owner)

    def move(self, slot: int, to: int) -> None:
        """Move a slot with all its keys."""
        at = self.master_of(slot)
        self.begin_move(slot, to)
        while self.move_keys(slot, at, to):
            pass
        self.end_move(slot, at, to)

    def is_whole(self) -> bool:
        """Whether each node that runs says that all slots are served, and each replica has all there is."""
        for number, port in enumerate(self.ports):
            if self.processes[port].poll() is None:
                with self.node(number) as node:
                    if told(node)["cluster_state"] != "ok":
                        return False
                    if node.info("replication").get("master_link_status", "up") != "up":
                        return False
        return True

    def _each_knows(self, many: int) -> bool:
        infos = []
        for number in range(len(self.ports)):
            with self.node(number) as node:
                infos.append(told(node))
        return all(info["cluster_known_nodes"] == str(many) and info["cluster_state"] == "ok" for info in infos)

    def _all_answer(self) -> bool:
        with contextlib.suppress(RedisError, OSError):
            for number in range(len(self.ports)):
                with self.node(number) as node:
                    node.ping()
            return True
        return False


def told(node: Redis) -> dict[str, str]:
    """What a node says of the cluster."""
    lines = str(node.execute_command("CLUSTER", "INFO")).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def free_ports(many: int) -> list[int]:
    """Ports that nobody listens on, nor on those 10,000 above, where nodes of a cluster speak with each other."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < many:
            one, bus = (stack.enter_context(socket.socket()) for _ in range(2))
            one.bind(("127.0.0.1", 0))
            port: Any = one.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                bus.bind(("127.0.0.1", port + 10_000))
                found.append(port)
    return found
