"""Runs whose workers are killed at random: python ops/chaos/run.py --runs 200 --kills 1000

Each run is a crew of three tasks that asks a model twelve times and uses eighteen tools. Pool children, main processes
and whole groups of workers are killed with -9 until the kills are used up, then all runs come to their end. At the end
the model server's own count is held against the ledger of each run. Exit code 0 if nothing was paid for twice but what
the ledgers have in doubt, and each sum is right; else 1, with what is wrong.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter

from account import Account, reckon
from scene import CALLS, KINDS, Scene, crew, scene

from runner.client import Client, RunHandle, RunResult
from runner.testing import WorkerProcess, children_of

BLOWS = ("child",) * 16 + ("main",) * 3 + ("group",)


class Killer:
    """Kills, at random, and keeps the number of workers."""

    def __init__(self, scene: Scene, rand: random.Random, workers: int, concurrency: int) -> None:
        self.scene, self.rand, self.many, self.concurrency = scene, rand, workers, concurrency
        self.done: Counter[str] = Counter()

    def fill(self) -> None:
        alive = self.scene.workers
        for _ in range(self.many - len(alive)):
            self.scene.start(concurrency=self.concurrency)

    def blow(self) -> bool:
        """One kill, if there is somebody to kill."""
        kind = self.rand.choice(BLOWS)
        worker: WorkerProcess = self.rand.choice(self.scene.workers)
        pids = worker.children() if kind == "child" else children_of(worker.pid) if kind == "main" else [worker.pid]
        if not pids or not worker.children():  # it is just coming up: a kill would prove nothing
            return False
        with contextlib.suppress(ProcessLookupError):
            if kind == "group":
                worker.kill_group()
            else:
                os.kill(self.rand.choice(pids), signal.SIGKILL)
            self.done[kind] += 1
            return True
        return False

    @property
    def total(self) -> int:
        return sum(self.done.values())

    @property
    def killed(self) -> int:
        """How many processes that perform tasks went with that: all of a worker's, unless a child was killed alone."""
        return sum(many * (1 if kind == "child" else self.concurrency) for kind, many in self.done.items())


class Runs:
    """The runs, a few at a time, so that there is something to kill until the end."""

    def __init__(self, client: Client, count: int, at_once: int, kinds: list[str]) -> None:
        self.crews = [crew(kind) for kind in kinds]
        self.client, self.count, self.at_once = client, count, at_once
        self.open: dict[str, RunHandle] = {}
        self.results: dict[str, RunResult] = {}
        self.submitted = 0

    def turn(self) -> None:
        """Take in what is over, submit what may begin."""
        for label, handle in list(self.open.items()):
            if handle.status != "running":
                self.results[label] = handle.result()
                del self.open[label]
        while self.submitted < self.count and len(self.open) < self.at_once:
            label = f"r{self.submitted}"
            self.open[label] = self.client.submit(self.crews[self.submitted % len(self.crews)], {"label": label})
            self.submitted += 1

    @property
    def left(self) -> int:
        return self.count - len(self.results)


def storm(scene: Scene, given: argparse.Namespace, rand: random.Random) -> tuple[Runs, Killer]:
    """All runs and all kills."""
    killer = Killer(scene, rand, given.workers, given.concurrency)
    killer.fill()
    scene.ready(given.workers)
    runs = Runs(scene.client, given.runs, given.at_once or max(4, given.workers * given.concurrency), given.kinds)
    began = shown = time.monotonic()
    while runs.left and time.monotonic() - began < given.most:
        # The kills keep pace with the calls. If the runs are over first, there are more of them.
        due = min(given.kills, given.kills * scene.models.paid / (given.runs * CALLS) * 1.1)
        for _ in range(3):
            if killer.total <= due and killer.total < given.kills:
                killer.blow()
        killer.fill()
        if runs.left <= 1 and killer.total < given.kills:
            runs.count += 1
        runs.turn()
        if sys.stderr.isatty() or time.monotonic() - shown > 10:
            shown = time.monotonic()
            told = f"{shown - began:5.0f} s  {len(runs.results)}/{given.runs} runs  {killer.total}/{given.kills} kills"
            print(f"{told}  {scene.models.paid} calls", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr)
        time.sleep(rand.uniform(0, given.pace))
    return runs, killer


def table(account: Account, killer: Killer, seconds: float) -> str:
    """The summary."""
    kills = ", ".join(f"{count} {kind}" for kind, count in killer.done.most_common())
    rows = {
        "runs completed": f"{account.completed} of {account.runs}",
        "kills (SIGKILL)": f"{killer.total} ({kills})",
        "hand-overs": account.recoveries,
        "calls the server was asked": account.asked,
        "calls in the ledgers, paid": account.paid,
        "... served from the journal": account.replayed,
        "... in doubt": account.in_doubt,
        "... of those never arrived": account.unheard,
        "calls made twice": account.repeated,
        "uses of tools": account.tools,
        "... made twice": account.tools_again,
        "... perhaps": account.tools_in_doubt,
        "tokens in the ledgers": f"{account.tokens[0]} + {account.tokens[1]}",
        "seconds": f"{seconds:.0f}",
    }
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=0, help="runs in flight; as many as there are processes")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--delay", type=float, default=0.05, help="seconds that a call of the model takes")
    parser.add_argument("--pace", type=float, default=0.1, help="the most seconds between two looks")
    parser.add_argument("--most", type=float, default=3600, help="seconds after which it gives up")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}: {given.runs} runs, {given.kills} kills", file=sys.stderr)
    began = time.monotonic()
    with scene(delay=given.delay, RUNNER_MAX_ATTEMPTS="100000", RUNNER_LEASE="3") as one:
        runs, killer = storm(one, given, random.Random(given.seed))
        results = runs.results | {label: handle.result() for label, handle in runs.open.items()}
        account = reckon(one, results, killer.killed)
        print(table(account, killer, time.monotonic() - began))
        if account.wrong:
            print(f"{len(account.wrong)} WRONG, with --seed {given.seed}:", *account.wrong[:40], sep="\n  ")
            print(one.log(), file=sys.stderr)
            return 1
    never = f", but for {account.unheard} in doubt that died on their way to it" if account.unheard else ""
    print(f"every call was paid once but for those in doubt; the ledgers' sums are the server's own count{never}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
