"""An access list that is changed under living workers: python ops/chaos/access.py --trials 20

The workers log in as a user of their own. While several runs go on, at random moments, an operator takes a right from
that user, or its password, or removes it, and gives all back a moment later. Exit code 0 if all runs complete with
right outputs, nothing was done more often than the ledgers have in doubt, and the model server was asked at most as
often as they have paid and in doubt.
"""

import argparse
import random
import sys
import time
from collections import Counter

from ring_runs import LEASE, Ring, log_in, ring, tally
from store_faults import PAUSE

from runner.providers.redis import scripts
from runner.providers.redis.connection import connect
from runner.testing import eventually

CHANGES = {
    "all commands": ["-@all"],
    "writes": ["-@write"],
    "scripts": ["-@scripting"],
    "transactions": ["-@transaction"],
    "keys": ["resetkeys"],
    "one command": [],
    "password": ["resetpass", ">another"],
    "off": ["off"],
    "removed": [],
}
"""What is taken, and how; where there is no rule, the user itself, or one of the commands that scripts call."""

CUT = ("password", "off")
"""What who is logged in does not notice: their connections are closed."""


def change(stage: Ring, rand: random.Random, kind: str, seconds: float) -> None:
    """Take it, and give it back after so many seconds."""
    commands = sorted({command.lower() for name in scripts.names() for command in scripts.load(name).commands})
    with connect(stage.redis.url) as admin:
        if rules := [f"-{rand.choice(commands)}"] if kind == "one command" else CHANGES[kind]:
            admin.execute_command("ACL", "SETUSER", stage.user, *rules)
        else:
            admin.execute_command("ACL", "DELUSER", stage.user)
        if kind in CUT:
            admin.execute_command("CLIENT", "KILL", "USER", stage.user)
        time.sleep(seconds)  # so long it is gone
        log_in(admin, stage.user)


def trial(stage: Ring, rand: random.Random, kind: str, runs: int, deadline: float) -> tuple[Counter[str], list[str]]:
    """Some runs, and two changes of a kind while they go on."""
    open_runs = stage.submit_some(("agents", "graph", "growing"), runs, pause=PAUSE)
    eventually(lambda: stage.asked(open_runs[0][2]) > 0, within=60, why="the runs are under way")
    for _ in range(2):
        time.sleep(rand.uniform(0, 0.5))  # at any moment of theirs
        change(stage, rand, kind, rand.choice((0.05, 0.3, 1.0, LEASE + 1.0)))
    return tally(kind, stage.outcomes(open_runs, deadline))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=CHANGES, default=list(CHANGES))
    parser.add_argument("--trials", type=int, default=5, help="of each kind")
    parser.add_argument("--runs", type=int, default=6, help="that go on at the time")
    parser.add_argument("--deadline", type=float, default=90, help="seconds after which a run counts as hung")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", file=sys.stderr)
    rand = random.Random(given.seed)
    columns = ("runs", "right", "hung", "failed", "wrong", "repeated", "in doubt")
    rows = [f"| what is taken | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}"]
    wrong: list[str] = []
    for kind in given.kinds:
        with ring(user="worker") as stage:
            for crew in ("graph", "growing", "agents"):
                stage.learn(crew, lambda _: None)
            told: Counter[str] = Counter()
            for n in range(given.trials):
                one, found = trial(stage, rand, kind, given.runs, given.deadline)
                told.update(one)
                wrong += found
                for what in found:
                    print(f"WRONG trial {n + 1}: {what}", flush=True)
            if any(what.startswith(kind) for what in wrong) or "Traceback" in stage.log():
                print(stage.log()[-20_000:], file=sys.stderr)
            rows.append(f"| {kind} | {' | '.join(str(told[column]) for column in columns)} |")
            print(rows[-1], file=sys.stderr, flush=True)
    print("\n".join(rows))
    print(f"{given.trials} trials of each, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
