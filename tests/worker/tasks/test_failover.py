"""A store behind sentinels: the master is killed under load, and the runs go on at the new one."""

import contextlib
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.client.embedded import find_binary
from runner.testing import Fleet

from ...support.soak import in_soak

PASSWORD = "p@ss/w0rd"
DEAD_AFTER = 3000
"""Milliseconds. After less the sentinels of a busy machine take one living master after the other for dead, and each
change loses what the one before had acknowledged meanwhile."""


def free_ports(many: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(many)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Group:
    """A master, two replicas, and three sentinels that watch them."""

    def __init__(self, folder: Path, eventually: Any) -> None:
        ports = free_ports(6)
        self.servers, self.sentinels = ports[:3], ports[3:]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for port in self.servers:
            of = [] if port == self.servers[0] else ["--replicaof", f"127.0.0.1 {self.servers[0]}"]
            self._start(folder, port, ["--appendonly", "yes", "--requirepass", PASSWORD, "--masterauth", PASSWORD, *of])
        for port in self.sentinels:
            config = folder / f"{port}.conf"
            config.write_text(
                f"port {port}\nrequirepass watch\nsentinel sentinel-pass watch\n"
                f"sentinel monitor store 127.0.0.1 {self.servers[0]} 2\nsentinel auth-pass store {PASSWORD}\n"
                f"sentinel down-after-milliseconds store {DEAD_AFTER}\nsentinel failover-timeout store 10000\n"
            )
            self._start(folder, port, ["--sentinel"], config)
        eventually(self._complete, why="the sentinels know each other and both replicas")

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://:p%40ss%2Fw0rd@{hosts}/store/0?sentinel_password=watch"

    def _start(self, folder: Path, port: int, arguments: list[str], config: Path | None = None) -> None:
        where = folder / str(port)
        where.mkdir()
        command = [
            find_binary(),
            *([config] if config else ["--port", str(port)]),
            "--dir",
            where,
            "--save",
            "",
            *([] if config else ["--repl-diskless-sync-delay", "0"]),
            *arguments,
        ]
        with (where / "log").open("wb") as log:
            self.processes[port] = subprocess.Popen(command, stdout=log, stderr=log)

    def _complete(self) -> bool:
        with contextlib.suppress(Exception):
            for port in self.sentinels:
                with Redis(port=port, password="watch", decode_responses=True) as one:
                    state = one.sentinel_master("store")
                    if (state["num-slaves"], state["num-other-sentinels"]) != (2, 2):
                        return False
            with Redis(port=self.servers[0], password=PASSWORD) as one:
                return all(one.info("replication")[f"slave{i}"]["state"] == "online" for i in range(2))
        return False

    def master(self) -> int:
        """Its port, as most see it."""
        for port in self.sentinels:
            with contextlib.suppress(Exception), Redis(port=port, password="watch", decode_responses=True) as one:
                return int(one.sentinel_get_master_addr_by_name("store")[1])
        return 0

    def has_all(self) -> Callable[[], bool]:
        """Tells whether both replicas have what the master has now: what they lack is lost with it."""
        master = self.master()
        with Redis(port=master, password=PASSWORD) as one:
            written = one.info("replication")["master_repl_offset"]

        def look() -> bool:
            with Redis(port=master, password=PASSWORD) as one:
                info = one.info("replication")
            return all(info[f"slave{i}"]["offset"] >= written for i in range(2))

        return look

    def kill(self, port: int) -> None:
        self.processes[port].kill()
        self.processes[port].wait()

    def end(self) -> None:
        for port in [*self.sentinels, *self.servers]:
            self.kill(port)


@pytest.fixture
def group(tmp_path: Path, eventually: Any) -> Iterator[Group]:
    one = Group(tmp_path, eventually)
    yield one
    one.end()


@pytest.mark.parametrize("pool", [*in_soak("prefork"), "shared"])
def test_a_killed_master_under_load(
    pool: str, group: Group, crew_of: Callable[..., Path], trace: Any, eventually: Any
) -> None:
    first = group.master()
    code = """
        def task(name):
            return Task(name=name, run=lambda ctx: steps(f"{ctx.run_id} {name}", 8, 0.05)(ctx))
        a, b = task("a"), task("b")
        c = Task(name="c", run=lambda ctx: ctx.outputs["a"].raw, context=[a, b])
        crew = Crew(process=Process.graph, tasks=[a, b, c])
    """
    with Fleet(group.url) as fleet, Client(group.url) as client:
        # Given a worker in the midst of many runs
        worker = fleet.start("--concurrency", "4", "--pool", pool)
        crew = crew_of(code)
        handles = [client.submit(crew) for _ in range(8)]
        eventually(lambda: len(trace.steps()) > 20, why="they are at work")
        main = worker.main_pid()
        eventually(group.has_all(), why="each run is known to both replicas")
        # When the master is killed
        group.kill(first)
        # Then all runs complete at the new one, and the worker is the same
        results = [handle.wait(90) for handle in handles]
        assert group.master() not in (0, first)
        assert [result.status for result in results] == ["completed"] * 8, (results, fleet.log())
        assert trace.repeated() <= sum(result.ledger["in_doubt"] for result in results)
        assert worker.main_pid() == main, fleet.log()
        # And what comes after is served at once
        assert client.submit(crew).wait(30).status == "completed"
        assert "p@ss" not in fleet.log()
        assert "ok  Redis: named, redis+sentinel://" in fleet.runner("doctor").stdout


def test_a_commit_may_wait_for_replicas(group: Group, crew_of: Callable[..., Path], eventually: Any) -> None:
    crew = crew_of('crew = Crew(tasks=[Task(name=name, run=lambda ctx: "done") for name in "abc"])')
    said = "0 of 1 replicas acknowledged a commit after 1 s; continuing without them"
    with Fleet(group.url) as fleet, Client(group.url) as client, Redis(port=group.master(), password=PASSWORD) as redis:

        def asked() -> int:
            return redis.info("commandstats").get("cmdstat_wait", {"calls": 0})["calls"]

        fleet.start("--concurrency", "1", RUNNER_WAIT_REPLICAS="1", RUNNER_WAIT_TIMEOUT="1")
        assert client.submit(crew).wait(30).status == "completed"
        eventually(lambda: asked() == 3, why="the last one asks, too, after it is known")
        assert said not in fleet.log()
        for port in group.servers[1:]:
            group.processes[port].send_signal(signal.SIGSTOP)
        assert client.submit(crew).wait(30).status == "completed"
        eventually(lambda: asked() == 6, why="each commit asks")
        assert fleet.log().count(said) == 1
