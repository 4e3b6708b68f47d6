"""A store that loses what it had said, or cannot take more: python ops/chaos/store_faults.py --trials 5

Several runs go on when, each time at another moment, something happens to the server under living workers:

- `killed`: kill -9 and a new start; the append-only file is whole.
- `power cut`: the last part of a second of the append-only file is gone.
- `failover`: a replica is promoted that was cut off for part of a second; nothing else tells the workers.
- `backup`: the server comes back with the data of some seconds before.
- `full disk`: for two seconds the append-only file cannot grow (needs root, for a small file system of its own).

Exit code 0 if all runs complete with right outputs, and nothing was done more often than the ledgers have in doubt.
"""

import argparse
import contextlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ring_runs import Outcome, Ring, ring, tally

from runner.providers.redis.connection import connect
from runner.testing import RedisServer, eventually

KINDS = ("killed", "power cut", "failover", "backup", "full disk")
PAUSE = 0.05  #: seconds that a step takes


@contextlib.contextmanager
def small_disk() -> Iterator[Path | None]:
    """A file system that is soon full; None where it cannot be made."""
    with tempfile.TemporaryDirectory(prefix="rt-") as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", folder], capture_output=True, check=False
        )
        if mounted.returncode:
            yield None
            return
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=False)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Blows:
    """What can happen to the server of a ring."""

    def __init__(self, stage: Ring, rand: random.Random) -> None:
        self.stage, self.rand = stage, rand
        self.server = stage.redis
        self.made: list[RedisServer] = []

    def deal(self, kind: str) -> None:
        """Let it happen; the server answers again when this returns."""
        {
            "killed": self.killed,
            "power cut": lambda: self.goes_back(self.rand.uniform(0.2, 0.9)),
            "backup": lambda: self.goes_back(self.rand.uniform(2.0, 5.0)),
            "failover": self.failover,
            "full disk": self.full_disk,
        }[kind]()

    def killed(self) -> None:
        self.server.kill()
        self.server.start()

    def goes_back(self, seconds: float) -> None:
        """Come back with the data of so many seconds before."""
        kept = Path(tempfile.mkdtemp(prefix="rt-kept-"))
        with connect(self.server.url) as client:
            client.config_set("appendfsync", "always")
            client.config_set("appendfsync", "everysec")  # all that was written so far is on disk
        shutil.copytree(self.server.folder / "appendonlydir", kept / "appendonlydir")
        time.sleep(seconds)
        self.server.kill()
        shutil.rmtree(self.server.folder / "appendonlydir")
        shutil.move(kept / "appendonlydir", self.server.folder / "appendonlydir")
        shutil.rmtree(kept)
        self.server.start()

    def get_ready(self, kind: str) -> None:
        """Before the runs begin: a replica, in step, for a failover."""
        if kind != "failover":
            return
        ports = free_port(), free_port()
        self.replica = RedisServer(arguments=("--port", str(ports[1])))
        self.replica.start()
        self.made.append(self.replica)
        with connect(self.server.url) as master, connect(self.replica.url) as other:
            master.config_set("repl-diskless-sync-delay", 0)
            master.config_set("port", ports[0])
            other.replicaof("127.0.0.1", ports[0])
            eventually(lambda: other.info("replication")["master_link_status"] == "up", why="the replica is in step")

    def failover(self) -> None:
        """Promote the replica, which has not heard from its master for part of a second."""
        with connect(self.replica.url) as other:
            other.replicaof("127.0.0.1", 1)  # nobody: it keeps what it has
            time.sleep(self.rand.uniform(0.2, 0.9))
            self.server.kill()
            other.replicaof("NO", "ONE")
        self.server = self.replica
        self.stage.proxy.move_to(self.replica)

    def full_disk(self) -> None:
        """Let the append-only file find no room for two seconds."""
        filler = self.server.folder / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as out:
            while True:
                out.write(bytes(2**20))
        with contextlib.suppress(OSError), filler.open("ab", buffering=0) as out:
            while True:
                out.write(b"0")
        time.sleep(2)
        filler.unlink()

    def end(self) -> None:
        for server in self.made:
            server.kill()
            shutil.rmtree(server.folder, ignore_errors=True)


def trial(stage: Ring, blows: Blows, kind: str, runs: int, deadline: float) -> tuple[Counter[str], list[str]]:
    """Some runs, and one blow while they go on."""
    blows.get_ready(kind)
    open_runs = stage.submit_some(("graph", "growing", "agents"), runs, pause=PAUSE)
    begun = blows.rand.randint(1, 6)
    eventually(lambda: stage.steps(open_runs[0][2]).total() >= min(begun, 4), within=60, why="the runs are under way")
    blows.deal(kind)
    return tally(kind, _none_gone(kind, stage.outcomes(open_runs, deadline)))


def _none_gone(kind: str, outcomes: Iterable[tuple[str, Outcome]]) -> Iterator[tuple[str, Outcome]]:
    """A store of before, or a replica, may never have heard of a run; one that was killed, or full, has."""
    for run, outcome in outcomes:
        if outcome.verdict == "gone" and kind in ("killed", "full disk"):
            outcome.is_wrong("wrong", "it is gone")
        yield run, outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--trials", type=int, default=5, help="of each kind")
    parser.add_argument("--runs", type=int, default=6, help="that go on at the time")
    parser.add_argument("--deadline", type=float, default=90, help="seconds after which a run counts as hung")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", file=sys.stderr)
    rand = random.Random(given.seed)
    columns = ("runs", "right", "gone", "hung", "failed", "wrong", "repeated", "in doubt")
    rows = [f"| what happens | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}"]
    wrong: list[str] = []
    for kind in given.kinds:
        with contextlib.ExitStack() as stack:
            disk = stack.enter_context(small_disk()) if kind == "full disk" else None
            if kind == "full disk" and disk is None:
                print("full disk: left out; mounting a small file system needs root", file=sys.stderr)
                continue
            stage = stack.enter_context(ring(folder=disk and disk / "redis", around=False, RUNNER_LEASE="2"))
            for crew in ("graph", "growing", "agents"):
                stage.learn(crew, lambda _: None)
            blows = Blows(stage, rand)
            stack.callback(blows.end)
            told: Counter[str] = Counter()
            for n in range(given.trials):
                one, found = trial(stage, blows, kind, given.runs, given.deadline)
                told.update(one)
                wrong += found
                for what in found:
                    print(f"WRONG trial {n + 1}: {what}", flush=True)
            if any(what.startswith(kind) for what in wrong):
                print(stage.log()[-20_000:], file=sys.stderr)
            rows.append(f"| {kind} | {' | '.join(str(told[column]) for column in columns)} |")
    print("\n".join(rows))
    print(f"{given.trials} trials of each, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
