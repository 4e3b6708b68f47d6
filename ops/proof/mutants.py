"""Each check in the Redis scripts is taken out, one at a time, and something must notice: python ops/proof/mutants.py

A condition of several parts loses each of them in turn. The tests that hold the scripts to a model of them, and to the
laws, are run on a copy of the tree; what they let pass goes through the fault ring (`ops/chaos/ring.py`), unless
``--no-ring``. Exit code 0 if every mutant was caught but those that `EQUIVALENT` says change nothing that anybody sees.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from equivalent import EQUIVALENT

ROOT = Path(__file__).resolve().parents[2]
LUA = Path("providers/redis/lua")
TESTS = (
    *("scripts", "lost_messages", "stragglers", "retention", "lifetimes", "growing", "fork_edits", "forks"),
    *("branches", "events", "redis_provider", "protocol"),
)
SECONDS = 600

_CONDITION = re.compile(r"^(?P<before>.*?\b(?:if|elseif) )(?P<condition>.+?)(?P<then> then\b)(?P<after>.*)$")


@dataclass(frozen=True)
class Mutant:
    """One check less."""

    file: str
    line: int
    without: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} without `{self.without}`"

    @property
    def key(self) -> str:
        """Stays the same when lines move."""
        return f"{self.file}: {self.without}"


def mutants() -> Iterator[Mutant]:
    """All of them."""
    for path in sorted((ROOT / LUA).rglob("*.lua")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            found = None if line.lstrip().startswith("--") else _CONDITION.match(line)
            if found is None:
                continue
            guards = found["after"].lstrip().startswith("return")
            for part, condition in without_each(found["condition"], guards):
                mutated = [*lines]
                mutated[number] = f"{found['before']}{condition}{found['then']}{found['after']}"
                yield Mutant(str(path.relative_to(ROOT / LUA)), number + 1, part, "\n".join(mutated) + "\n")


def without_each(condition: str, guards: bool) -> Iterator[tuple[str, str]]:
    """Each part of a condition, and the condition without it: what a guard turned away passes, what was asked is so."""
    for word, neutral in ((" or ", "false"), (" and ", "true")):
        parts = split(condition, word)
        if len(parts) > 1:
            for i, part in enumerate(parts):
                yield part, word.join([*parts[:i], neutral, *parts[i + 1 :]])
            return
    yield condition, "false" if guards else "true"


def split(condition: str, word: str) -> list[str]:
    """The parts at the top level, outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(condition):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0 and condition.startswith(word, i):
            parts.append(condition[start:i])
            start = i + len(word)
    return [*parts, condition[start:]]


class Copies:
    """Trees in which a script may be changed, one for each that works at a time."""

    def __init__(self, folder: Path, many: int) -> None:
        self.free: SimpleQueue[Path] = SimpleQueue()
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
        for n in range(many):
            for file in filter(None, files.split("\0")):
                target = folder / str(n) / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, target, follow_symlinks=False)
            self.free.put(folder / str(n))

    def try_(self, mutant: Mutant, commands: list[list[str]]) -> str:
        """What notices it; "" if nothing does."""
        tree = self.free.get()
        script = tree / LUA / mutant.file
        whole = script.read_text()
        try:
            script.write_text(mutant.text)
            return next((command[-1] for command in commands if not passes(tree, command)), "")
        finally:
            script.write_text(whole)
            self.free.put(tree)


def passes(tree: Path, command: list[str]) -> bool:
    """Whether a command ends well in a tree."""
    where = tree / "ops" / "chaos" if command[0] == "ring.py" else tree
    try:
        return (
            subprocess.run(
                [sys.executable, *command], cwd=where, capture_output=True, timeout=SECONDS, check=False,
                env={**os.environ, "PYTHONPATH": str(tree)},
            ).returncode == 0
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False


def commands(ring: bool) -> list[list[str]]:
    """What may notice a mutant, the fastest first."""
    pytest = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--reruns=0"]
    tests = [[*pytest, f"tests/providers/test_{name}.py"] for name in TESTS]
    return [*tests, *([["ring.py", "--sample", "150", "--seed", "7", "--deadline", "30"]] if ring else [])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="FILE", help="mutants of these scripts alone, as claim.lua")
    parser.add_argument("--no-ring", action="store_true", help="without the fault ring")
    parser.add_argument("--list", action="store_true", help="say which there are, and try none")
    parser.add_argument("--at-once", type=int, default=2)
    given = parser.parse_args()
    wanted = [one for one in mutants() if not given.only or Path(one.file).name in given.only]
    if given.list:
        print(*(one.name for one in wanted), f"{len(wanted)} mutants", sep="\n")
        return 0
    survived = equivalent = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(given.at_once) as pool:
        copies = Copies(Path(folder), given.at_once)
        tried = [one for one in wanted if one.key not in EQUIVALENT]
        for one, noticed in zip(
            tried, pool.map(lambda m: copies.try_(m, commands(not given.no_ring)), tried), strict=True
        ):
            survived += not noticed
            print(f"{'caught by ' + noticed if noticed else 'NOT CAUGHT'}: {one.name}", flush=True)
        equivalent = len(wanted) - len(tried)
    caught = len(tried) - survived
    print(f"{len(wanted)} mutants: {caught} caught, {survived} not, {equivalent} change nothing that is seen")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
