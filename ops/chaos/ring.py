"""A fault at each command between workers and their Redis, in turn: python ops/chaos/ring.py

A proxy stands between the workers and the server. Each crew runs once unharmed, and what its workers ask of the server
is listed: by the connection's part, by the command or script, by how often it came. Then there is one run for each of
these and each fault: a refusal of each kind, a cut before and after the server had the command, a delay, a loss. With
``--blows N`` random ones follow, up to five in a run, until N were dealt. The runs wait most of the time, so several
rings side by side (``--rings N``) are done sooner. Exit code 0 if every run completed with the
outputs of the unharmed one, no step was done more often than the ledger has in doubt, the model server was asked as
often as the ledger says, and no refusal made a worker restart or cost an attempt.
"""

import argparse
import multiprocessing
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from ring_runs import CREWS, Outcome, Ring, ring

from runner.testing import Command, Cut, Delay, Fault, Lose, Refuse
from runner.testing.fault_proxy import REFUSALS

PERIODIC = 3  #: of what a worker asks by itself, again and again, so many are hit


@dataclass(frozen=True, order=True)
class Place:
    """A command of a run: whose connection it comes on, what it is, how many of it came before in this run."""

    part: str
    name: str
    before: int

    def __str__(self) -> str:
        return f"{self.part} {self.name} #{self.before + 1}"


def part_of(command: Command) -> str:
    """Whose connection it is: a task's, the heartbeat's, the supervisor's, Celery's."""
    name = command.connection
    for part in ("supervisor", "celery", "outbox", "probe", "mark"):
        if f":{part}" in name:
            return part
    return "task" if name.count(":") == 2 else "heartbeat" if name.count(":") == 1 else "other"


@dataclass
class Aim:
    """Watches what passes during one run, and hits the places it was given."""

    targets: dict[Place, Fault] = field(default_factory=dict)
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    hit: list[Place] = field(default_factory=list)

    def __call__(self, command: Command) -> Fault | None:
        part = part_of(command)
        place = Place(part, command.name, self.seen[part, command.name])
        self.seen[part, command.name] += 1
        fault = self.targets.pop(place, None)
        if fault is not None:
            self.hit.append(place)
        return fault

    def places(self) -> list[Place]:
        """All that passed; of what comes again and again by itself, the first few."""
        return [
            Place(part, name, before)
            for (part, name), many in sorted(self.seen.items())
            if name not in ("HELLO", "AUTH", "PSUBSCRIBE", "MULTI", "EXEC") and part != "other"
            for before in range(many if part == "task" else min(many, PERIODIC))
        ]


def faults(slow: float) -> list[Fault]:
    """Every kind."""
    refusals = [Refuse(code, seconds) for code in REFUSALS for seconds in (0.0, 0.3)]
    return [*refusals, Cut(applied=False), Cut(applied=True), Delay(slow), Lose(applied=False), Lose(applied=True)]


@dataclass
class Tally:
    """What came of runs with blows."""

    runs: int = 0
    blows: int = 0
    missed: int = 0
    wrong: list[str] = field(default_factory=list)
    per_fault: dict[str, Counter[str]] = field(default_factory=dict)

    def __add__(self, other: "Tally") -> "Tally":
        rows = {
            kind: self.per_fault.get(kind, Counter()) + other.per_fault.get(kind, Counter())
            for kind in sorted({*self.per_fault, *other.per_fault})
        }
        return Tally(
            self.runs + other.runs, self.blows + other.blows, self.missed + other.missed, self.wrong + other.wrong, rows
        )


@dataclass
class Campaign:
    """Runs with blows on one ring."""

    ring: Ring
    deadline: float
    tally: Tally = field(default_factory=Tally)

    def one(self, crew: str, targets: dict[Place, Fault]) -> Outcome:
        """One run with these blows."""
        told = ", ".join(f"{fault} at {place}" for place, fault in targets.items())
        aim = Aim(dict(targets))
        outcome = self.ring.run(crew, aim, deadline=self.deadline, calm=all(_passes(f) for f in targets.values()))
        self.tally.runs += 1
        self.tally.blows = self.ring.proxy.blows.total()
        self.tally.missed += len(aim.targets)
        for place in aim.hit:
            row = self.tally.per_fault.setdefault(_kind(targets[place]), Counter())
            row["blows"] += 1
            row["repeated"] += outcome.repeated
            row["in doubt"] += outcome.in_doubt
            row[outcome.verdict] += 1
        for what in outcome.wrong:
            self.tally.wrong.append(f"{crew}, {told}: {what}")
            print(f"WRONG {self.tally.wrong[-1]}", flush=True)
        return outcome


def _passes(fault: Fault) -> bool:
    """Whether nothing breaks by it.

    A connection that was answered LOADING is closed by redis-py (a server that loads has closed them all itself), and a
    task may be handed over because the connection of its process closed.
    """
    return isinstance(fault, Delay) or (isinstance(fault, Refuse) and fault.code != "LOADING")


def _kind(fault: Fault) -> str:
    match fault:
        case Refuse(code, seconds):
            return f"refused: {code}" + (f" for {seconds:g} s" if seconds else "")
        case Cut(applied):
            return "cut after the server did it" if applied else "cut before the server had it"
        case Delay(seconds):
            return f"delayed by {seconds:g} s"
        case Lose(applied):
            return "lost after the server did it" if applied else "lost before the server had it"


def table(tally: Tally) -> str:
    """What each kind of fault came to."""
    columns = ("blows", "hung", "failed", "wrong", "repeated", "in doubt")
    lines = [f"| fault | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}"]
    total: Counter[str] = Counter()
    for kind, row in tally.per_fault.items():
        total.update(row)
        lines.append(f"| {kind} | {' | '.join(str(row[column]) for column in columns)} |")
    return "\n".join([*lines, f"| all | {' | '.join(str(total[column]) for column in columns)} |"])


def every(places: list[Place], given: argparse.Namespace) -> list[tuple[Place, Fault]]:
    """Each place with each fault; a sample of them where one was asked for. First those by which nothing breaks."""
    pairs = [(place, fault) for place in places for fault in faults(given.slow)]
    random.Random(given.seed).shuffle(pairs)
    return sorted(pairs[: given.sample or None], key=lambda pair: not _passes(pair[1]))


def learn(given: argparse.Namespace) -> dict[str, list[Place]]:
    """What each crew's workers ask of the server when nobody disturbs them."""
    known = {}
    with ring() as stage:
        for crew in given.crews:
            aim = Aim()
            stage.learn(crew, aim)
            known[crew] = aim.places()
    return known


def share(given: argparse.Namespace, known: dict[str, list[Place]], nth: int) -> Tally:
    """What the ``nth`` ring has to do: its places and faults in turn, then random ones up to its part of the blows."""
    with ring() as stage:
        campaign = Campaign(stage, given.deadline)
        for crew in given.crews:
            stage.learn(crew, Aim())
            for place, fault in every(known[crew], given)[nth :: given.rings]:
                campaign.one(crew, {place: fault})
            print(f"ring {nth + 1}: {crew} is done, {campaign.tally.blows} blows", file=sys.stderr, flush=True)
        rand = random.Random(given.seed * 1000 + nth)
        while campaign.tally.blows < given.blows / given.rings:
            crew = rand.choice(given.crews)
            # A connection that is lost costs its client a timeout of seconds: fewer of those.
            kinds = [fault for fault in faults(given.slow) if not isinstance(fault, Lose) or rand.random() < 0.05]
            campaign.one(crew, {rand.choice(known[crew]): rand.choice(kinds) for _ in range(rand.randint(1, 5))})
        if campaign.tally.wrong:
            print(stage.log()[-20_000:], file=sys.stderr)
    return campaign.tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crews", nargs="+", choices=CREWS, default=list(CREWS))
    parser.add_argument("--sample", type=int, default=0, help="so many of each crew's places and faults; 0: all")
    parser.add_argument("--blows", type=int, default=0, help="then random ones, until so many were dealt in all")
    parser.add_argument(
        "--rings", type=int, default=1, help="so many side by side, each with a server and workers of its own"
    )
    parser.add_argument("--slow", type=float, default=1.0, help="seconds of a delay")
    parser.add_argument("--deadline", type=float, default=60, help="seconds after which a run counts as hung")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", file=sys.stderr)
    began = time.monotonic()
    known = learn(given)
    for crew, places in known.items():
        print(f"{crew}: {len(places)} commands", flush=True)
    if given.rings == 1:
        total = share(given, known, 0)
    else:
        with ProcessPoolExecutor(given.rings, mp_context=multiprocessing.get_context("spawn")) as pool:
            total = sum(pool.map(partial(share, given, known), range(given.rings)), Tally())
    print(table(total))
    seconds = time.monotonic() - began
    print(
        f"{total.runs} runs, {total.blows} blows ({total.missed} more came to nothing), "
        f"{len(total.wrong)} wrong, {seconds:.0f} s"
    )
    return 1 if total.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
