"""Each check in the Redis scripts is taken out, one at a time, and something must notice: python ops/proof/mutants.py

A condition of several parts loses each of them in turn. Which tests call which scripts is found by running them once;
then each mutant has a process of its own, forked when all is loaded, that runs those which reach it, the fastest first,
until one fails. What they let pass goes through the fault ring (`ops/chaos/ring.py`) on a copy of the tree, with
``--ring``. Exit code 0 if every mutant was caught but those that `EQUIVALENT` says change nothing that anybody sees.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from equivalent import EQUIVALENT

from runner.providers.redis import scripts

ROOT = Path(__file__).resolve().parents[2]
LUA = Path("providers/redis/lua")
TESTS = (
    *("scripts", "rewound", "lost_messages", "stragglers", "retention", "lifetimes", "growing", "fork_edits"),
    *("forks", "branches", "events", "redis_provider", "protocol", "all_or_nothing", "inflight", "bytes"),
)
SECONDS = 900  #: for all tests of one mutant

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


def of_folder(folder: Path) -> None:
    """Load the scripts from here, from now on."""
    scripts._FOLDER = folder
    for cached in (scripts.load, scripts._library, scripts._types):
        cached.cache_clear()


def reached(wanted: list[Mutant]) -> dict[str, set[str]]:
    """The scripts that each file is a part of, by the file."""
    whole = {name: scripts.load(name).text for name in scripts.names()}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / LUA, folder, dirs_exist_ok=True)
        for file in {one.file for one in wanted}:
            path = Path(folder, file)
            text = path.read_text()
            path.write_text(f"{text} local function looked_for() end")
            of_folder(Path(folder))
            found[file] = {name for name in whole if scripts.load(name).text != whole[name]}
            path.write_text(text)
    of_folder(ROOT / LUA)
    return found


class Tries:
    """A plugin of pytest: in the place of running the tests once, it runs them for each mutant, in forked processes."""

    def __init__(self, wanted: list[Mutant], at_once: int, tell: Callable[[Mutant, str], None]) -> None:
        self._wanted, self._at_once, self._tell = wanted, at_once, tell

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """All of them."""
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            by_file = reached(self._wanted)
            calls = self._calls(session, Path(folder))
            trying: dict[int, tuple[Mutant, Path, float]] = {}
            for number, one in enumerate(self._wanted):
                tests = [item for item in session.items if by_file[one.file] & set(calls[item.nodeid][1])]
                tests.sort(key=lambda item: calls[item.nodeid][0])
                while len(trying) == self._at_once:
                    self._collect(trying)
                trying[self._try(session, tests, one, Path(folder, str(number)))] = (
                    one, Path(folder, str(number)), time.monotonic(),
                )  # fmt: skip
            while trying:
                self._collect(trying)
        return True

    def _collect(self, trying: dict[int, tuple[Mutant, Path, float]]) -> None:
        for pid, (one, folder, began) in list(trying.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and time.monotonic() - began < SECONDS:
                continue
            if not ended:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            del trying[pid]
            self._tell(one, (folder / "at").read_text() if not ended or status else "")
            shutil.rmtree(folder)
        time.sleep(0.02)

    def _try(self, session: pytest.Session, tests: list[pytest.Item], one: Mutant, folder: Path) -> int:
        shutil.copytree(ROOT / LUA, folder)
        (folder / one.file).write_text(one.text)
        (folder / "at").write_text("the scripts do not load")
        return _forked(lambda: self._fails(session, tests, folder))

    def _fails(self, session: pytest.Session, tests: list[pytest.Item], folder: Path) -> bool:
        of_folder(folder)
        for item, following in zip(tests, [*tests[1:], None], strict=True):
            (folder / "at").write_text(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                session._setupstate.teardown_exact(None)
                return True
        return False

    def _calls(self, session: pytest.Session, folder: Path) -> dict[str, tuple[float, list[str]]]:
        """For each test how long it takes, and which scripts it calls."""

        def look() -> bool:
            found: dict[str, tuple[float, list[str]]] = {}
            called: set[str] = set()
            arguments = scripts.LuaScript.arguments

            def noting(script: scripts.LuaScript, slots: dict[str, Any]) -> list[Any]:
                called.add(script.name)
                return arguments(script, slots)

            scripts.LuaScript.arguments = noting  # type: ignore[method-assign,assignment]
            for item, following in zip(session.items, [*session.items[1:], None], strict=True):
                called.clear()
                began = time.process_time()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                found[item.nodeid] = (time.process_time() - began, sorted(called))
            (folder / "calls").write_text(json.dumps(found))
            return bool(session.testsfailed)

        _, status = os.waitpid(_forked(look, quiet=False), 0)
        if status:
            raise pytest.UsageError("the tests fail without any mutant")
        found: dict[str, tuple[float, list[str]]] = json.loads((folder / "calls").read_text())
        return found


def _forked(work: Callable[[], bool], *, quiet: bool = True) -> int:
    """Do it in a process of its own, which ends with 1 where it is so; the process's id."""
    pid = os.fork()
    if pid:
        return pid
    code = 2
    try:
        os.setpgid(0, 0)
        if quiet:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (1, 2):
                os.dup2(nowhere, stream)
        code = int(work())
    finally:
        os._exit(code)


def survives_ring(mutant: Mutant) -> bool:
    """Whether the fault ring lets it pass, too."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        for file in filter(None, files.split("\0")):
            target = Path(folder, file)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, target, follow_symlinks=False)
        Path(folder, LUA, mutant.file).write_text(mutant.text)
        command = [sys.executable, "ring.py", "--sample", "150", "--seed", "7", "--deadline", "30"]
        try:
            ring = subprocess.run(
                command, cwd=Path(folder, "ops", "chaos"), env={**os.environ, "PYTHONPATH": folder},
                capture_output=True, timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
    return ring.returncode == 0


def chosen(only: Iterable[str], without: str) -> list[Mutant]:
    """Those that are asked for."""
    names = set(only)
    return [
        one
        for one in mutants()
        if (not names or Path(one.file).name in names or one.file in names) and without in one.without
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="FILE", default=(), help="mutants of these scripts alone")
    parser.add_argument(
        "--without", default="", metavar="TEXT", help="those alone that lose a check in which this stands"
    )
    parser.add_argument("--ring", action="store_true", help="let the fault ring look at what the tests let pass")
    parser.add_argument("--list", action="store_true", help="say which there are, and try none")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--tests", nargs="+", metavar="NAME", default=TESTS, help="of tests/providers, as scripts")
    given = parser.parse_args()
    wanted = chosen(given.only, given.without)
    if given.list:
        print(*(one.name for one in wanted), f"{len(wanted)} mutants", sep="\n")
        return 0
    tried = [one for one in wanted if one.key not in EQUIVALENT]
    survived: list[Mutant] = []
    out = os.fdopen(os.dup(1), "w")  # pytest captures what is printed

    def tell(one: Mutant, noticed: str) -> None:
        if not noticed and given.ring and not survives_ring(one):
            noticed = "ring.py"
        if not noticed:
            survived.append(one)
        print(f"{'caught by ' + noticed if noticed else 'NOT CAUGHT'}: {one.name}", file=out, flush=True)

    os.chdir(ROOT)
    tests = [
        f"tests/providers/test_{name}.py" for name in given.tests if Path(f"tests/providers/test_{name}.py").exists()
    ]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=--import-mode=importlib", "--no-header"]
    code = pytest.main([*options, "--timeout=120", *tests], plugins=[Tries(tried, given.at_once, tell)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return 2
    caught, equivalent = len(tried) - len(survived), len(wanted) - len(tried)
    print(f"{len(wanted)} mutants: {caught} caught, {len(survived)} not, {equivalent} change nothing that is seen")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
