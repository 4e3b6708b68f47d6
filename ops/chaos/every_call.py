"""A worker is killed with -9 at each call of a crew, in turn: python ops/chaos/every_call.py

For each kind of crew (agents, plain functions, async ones; streamed or not) there is one run for each of its twelve
calls and each moment, and one in which all twelve are hit. `flight`: the server has the request and has not answered.
`answered`: the answer is on its way, or recorded, or what comes next has begun. Exit code 0 if the server was asked
twelve times and once for each call in doubt, and every tool was used once.
"""

import argparse
import os
import signal
import sys
import threading
import time
from typing import Any

from account import Account, reckon
from scene import CALLS, KINDS, Scene, crew, scene, script

from runner.testing import ModelRequest

MOMENTS = ("flight", "answered")


class Killer:
    """The model server's script. The process that asks is killed at some of its calls, each when it comes first."""

    def __init__(self, scene: Scene, moment: str, wanted: set[int]) -> None:
        self.scene, self.moment, self.wanted = scene, moment, wanted
        self.seen: set[str] = set()
        self.kills = 0

    def __call__(self, request: ModelRequest) -> Any:
        if request.digest not in self.seen:
            self.seen.add(request.digest)
            if len(self.seen) in self.wanted:
                if self.moment == "flight":
                    self.kill()
                else:
                    threading.Thread(target=self.when_answered, args=(request,), daemon=True).start()
        return script(request)

    def when_answered(self, request: ModelRequest) -> None:
        while not request.delivered:
            time.sleep(0.0005)
        self.kill()

    def kill(self) -> None:
        for worker in self.scene.workers:
            for pid in worker.children():
                os.kill(pid, signal.SIGKILL)
                self.kills += 1


def one(scene: Scene, kind: str, moment: str, wanted: set[int]) -> Account:
    """One run with kills at these calls."""
    killer = Killer(scene, moment, wanted)
    scene.models.reset()
    scene.models.use(killer)
    label = f"{kind}-{time.monotonic_ns()}"
    result = scene.client.submit(crew(kind), {"label": label}).wait(120)
    account = reckon(scene, {label: result}, killer.kills)
    if killer.kills != len(wanted):
        account.wrong.append(f"{killer.kills} kills, not {len(wanted)}")
    if account.in_doubt > killer.kills:
        account.wrong.append(f"{account.in_doubt} calls in doubt after {killer.kills} kills")
    if moment == "flight" and (account.asked, account.in_doubt) != (CALLS + len(wanted), len(wanted)):
        account.wrong.append(f"the server was asked {account.asked} times, {account.in_doubt} in doubt")
    served = sum((n - 1) % 4 for n in wanted)  # the calls of the task so far; it has four
    if moment == "flight" and (account.tools_again, account.replayed) != (0, served):
        account.wrong.append(f"{account.tools_again} tools used again, {account.replayed} calls served, not {served}")
    return account


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--moments", nargs="+", choices=MOMENTS, default=list(MOMENTS))
    parser.add_argument("--at", nargs="+", type=int, metavar="N", help="one run of each kind, hit at these calls")
    given = parser.parse_args()
    every = set(range(1, CALLS + 1))
    hits = [set(given.at)] if given.at else [*({n} for n in sorted(every)), every]
    wrong = runs = kills = 0
    with scene(RUNNER_MAX_ATTEMPTS="1000") as stage:
        stage.start()
        stage.ready(1)
        for kind in given.kinds:
            for moment in given.moments:
                asked = doubt = again = 0
                for wanted in hits:
                    account = one(stage, kind, moment, wanted)
                    runs, kills = runs + 1, kills + len(wanted)
                    asked, doubt, again = asked + account.asked, doubt + account.in_doubt, again + account.tools_again
                    for what in account.wrong:
                        wrong += 1
                        print(f"WRONG {kind}, {moment}, at {sorted(wanted)}: {what}")
                told = f"{len(hits)} runs: {asked} calls asked, {doubt} in doubt, {again} tools used again"
                print(f"{kind:22} {moment:9} {told}", flush=True)
        if wrong:
            print(stage.log(), file=sys.stderr)
    print(f"{runs} runs, {kills} kills, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
