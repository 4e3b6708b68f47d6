"""Many inputs of one crew, with kills and a deploy on the way: python ops/chaos/many_inputs.py --inputs 500 --kills 60

`runner submit --each` takes them. Pool children and whole workers are killed with -9 at random; half way each worker is
told to end (SIGTERM) and another takes its place. Some inputs fail at first, and are resumed with the batch. At the end
the model server's own count is held against the ledger of each run. Exit code 0 if nothing is wrong.
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from account import models_of
from scene import HERE, Scene, label_of, scene

from runner.testing import ModelRequest

CALLS = 3
FAILS_EACH = 20  #: one of so many inputs fails until it is mended

_ASKED = re.compile(r"run=(\S+) task=(\w+): call (\d)")


def answer(request: ModelRequest) -> str:
    """What the model says: which call it was."""
    found = _ASKED.search(request.text)
    return "/".join(found.groups()) if found else "?"


def expected(label: str) -> str:
    """The last task's output."""
    return " ".join(f"{label}/{task}/{number}" for task, number in (("first", 0), ("first", 1), ("second", 0)))


class Disturbed:
    """Whoever does the work meanwhile is killed, or told to end, until the command is over."""

    def __init__(self, scene: Scene, rand: random.Random, given: argparse.Namespace) -> None:
        self.scene, self.rand, self.given = scene, rand, given
        self.done: Counter[str] = Counter()

    def fill(self) -> None:
        for _ in range(self.given.workers - len(self.scene.workers)):
            self.scene.start(concurrency=2)

    def kill(self) -> None:
        worker = self.rand.choice(self.scene.workers)
        children = worker.children()
        if not children:  # it is just coming up
            return
        with contextlib.suppress(ProcessLookupError):
            if self.rand.random() < 0.1:
                worker.kill_group()
                self.done["a whole worker"] += 1
            else:
                os.kill(self.rand.choice(children), signal.SIGKILL)
                self.done["a child"] += 1

    def deploy(self) -> None:
        """New workers, and the old ones told to end: what they hold is handed over."""
        for worker in self.scene.workers:
            self.scene.start(concurrency=2)
            worker.process.send_signal(signal.SIGTERM)
            self.done["SIGTERM"] += 1

    def run(self, *command: str, kills: int, calls: int) -> list[dict[str, Any]]:
        """One command, disturbed. ``calls`` is how many the model has been asked at its end. Returns its lines."""
        begun, deployed, killed = self.scene.models.paid, False, 0
        with (
            (self.scene.fleet.folder / "lines").open("w+") as lines,
            subprocess.Popen(
                [sys.executable, "-m", "runner", *command], stdout=lines, env=self.scene.fleet.environment()
            ) as process,
        ):
            while process.poll() is None:
                part = (self.scene.models.paid - begun) / max(calls - begun, 1)
                if killed < kills * part:
                    killed += 1
                    self.kill()
                if kills and part > 0.5 and not deployed:
                    deployed = True
                    self.deploy()
                self.fill()
                time.sleep(self.rand.uniform(0, 0.1))
            lines.seek(0)
            return [json.loads(line) for line in lines]


def checked(scene: Scene, labels: list[str], results: dict[int, dict[str, Any]]) -> tuple[Counter[str], list[str]]:
    """The sums, and what is wrong."""
    asked: dict[str, list[str]] = {label: [] for label in labels}
    for request in scene.models.log:
        asked.setdefault(label_of(request), []).append(request.digest)
    sums, wrong = Counter[str](), list[str]()
    if strange := asked.keys() - set(labels):
        wrong.append(f"requests of nobody: {sorted(strange)[:5]}")
    for number, label in enumerate(labels, 1):
        result = results.get(number)
        if result is None:
            wrong.append(f"{label}: no result")
            continue
        ledger, bodies = models_of(scene.client.run(result["run_id"]).result().ledger), asked[label]
        again = len(bodies) - len(set(bodies))
        sums.update(
            runs=1, completed=result["status"] == "completed", asked=len(bodies), paid=ledger["calls"],
            replayed=ledger["replayed"], in_doubt=ledger["in_doubt"], again=again,
            recoveries=result["recoveries"],
        )  # fmt: skip
        checks = {
            f"it is {result['status']}: {result['error']}": result["status"] == "completed",
            f"it gave {result['result']!r}": result["result"] == expected(label),
            f"{len(set(bodies))} different calls": len(set(bodies)) == CALLS,
            f"{ledger['calls']} calls paid in the ledger": ledger["calls"] == CALLS,
            f"{again} calls made again, {ledger['in_doubt']} in doubt": again <= ledger["in_doubt"],
        }
        wrong += [f"{label} ({result['run_id']}): {what}" for what, right in checks.items() if not right]
    return sums, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=500)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--delay", type=float, default=0.05, help="seconds that a call of the model takes")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}: {given.inputs} inputs, {given.kills} kills, a deploy", file=sys.stderr)
    labels, began = [f"i{number}" for number in range(given.inputs)], time.monotonic()
    with scene(answer, delay=given.delay, RUNNER_MAX_ATTEMPTS="100000", RUNNER_LEASE="3") as one:
        mended, each = one.fleet.folder / "mended", one.fleet.folder / "each.jsonl"
        one.fleet.settings["MENDED"] = str(mended)
        each.write_text(
            "".join(json.dumps({"label": n, "fails": i % FAILS_EACH == 7}) + "\n" for i, n in enumerate(labels))
        )
        disturbed = Disturbed(one, random.Random(given.seed), given)
        disturbed.fill()
        one.ready(given.workers)
        crew, at_once = str(HERE / "crews" / "many.py"), str(given.at_once)
        found = disturbed.run(
            "submit", crew, "--each", str(each), "--at-once", at_once, kills=given.kills, calls=CALLS * given.inputs
        )
        results = {line["line"]: line for line in found}
        failed = [line for line in results.values() if line["status"] == "failed"]
        wanted = len(range(7, given.inputs, FAILS_EACH))
        wrong = [f"{len(failed)} failed at first, not {wanted}"] if len(failed) != wanted else []
        if len(found) != given.inputs:
            wrong.append(f"{len(found)} lines of results, not {given.inputs}")
        mended.touch()
        if failed:
            batch = one.client.store.runs.field(failed[0]["run_id"], "batch")
            calls = one.models.paid + len(failed)
            results |= {line["line"]: line for line in disturbed.run("resume", batch, kills=5, calls=calls)}
        sums, more = checked(one, labels, results)
        wrong += more
        blows = ", ".join(f"{count} {kind}" for kind, count in disturbed.done.most_common())
        rows = {
            "inputs, completed": f"{sums['completed']} of {given.inputs}",
            "failed at first, resumed": len(failed),
            "blows": blows,
            "hand-overs": sums["recoveries"],
            "calls the server was asked": one.models.paid,
            "calls in the ledgers, paid": sums["paid"],
            "... served from the journal": sums["replayed"],
            "... in doubt": sums["in_doubt"],
            "calls made twice": sums["again"],
            "seconds": f"{time.monotonic() - began:.0f}",
        }
        print("\n".join(f"{name:<28}  {value}" for name, value in rows.items()))
        if wrong:
            print(f"{len(wrong)} WRONG, with --seed {given.seed}:", *wrong[:40], sep="\n  ")
            print(one.log(), file=sys.stderr)
            return 1
    print("every input has its result once, and every call was paid once but for those in doubt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
