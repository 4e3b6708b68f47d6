"""Each check in the Redis scripts is taken out, one at a time, and something must notice: python ops/proof/mutants.py

A condition of several parts loses each of them in turn. The tests are run once with scripts that tell, at every
condition, which of its parts made a difference; then each mutant has a process of its own, forked when all is loaded,
that runs the tests to which it makes one, the fastest first, until one fails. What they let pass goes through the fault
ring (`ops/chaos/ring.py`) on a copy of the tree, with ``--ring``. Exit code 0 if every mutant was caught but those that
`EQUIVALENT` says change nothing that anybody sees, and none of these was.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from equivalent import EQUIVALENT

from runner.providers.redis import scripts
from runner.testing import fleet

ROOT = Path(__file__).resolve().parents[2]
LUA = Path("providers/redis/lua")
TESTS = (
    *("each_check", "each_claim", "each_look", "each_lost_write", "each_state", "argument_types", "scripts"),
    *("restored_store", "forgotten_notes", "lost_messages", "stragglers", "retention", "lifetimes", "growing"),
    *("fork_edits", "forks"),
    *("branches", "events", "versions", "store_conformance", "conformance", "redis_provider", "all_or_nothing"),
    *("reserved", "call_records", "hand_over", "inflight", "pools", "protocol", "envelope", "bytes"),
    *("continuing", "commit_next", "commands", "lua_functions", "deferred_events"),
)
LEFT_OUT = (
    *("Json", "Sqlite", "Memory", "server_that_refuses", "costs", "no_more_room", "same_cost", "grown_to"),
    *("that_is_away", "password", "location", "forked", "slot_moves", "small", "newest"),
)
"""Tests in whose names one of these stands tell nothing of a check that the others do not, and take long."""
COUNTS = "how_many_commands"  #: in the name of a test that sees also what makes no difference but in commands
SECONDS = 900  #: for all tests of one mutant
TELLS = """
local told = {}
local function differs(without, was)
  for number, value in pairs(without) do
    if not told[number] then
      local ran, is = pcall(value)
      told[number] = not ran or is ~= was
      if told[number] then redis.log(redis.LOG_WARNING, "MUTANT " .. number) end
    end
  end
  return was
end
"""
"""Says in the server's log which parts of an expression make a difference now."""

_CONDITION = re.compile(r"^.*?\b(?:(?:if|elseif) (?P<of>.+?) then\b|while (?P<goes_on>.+?) do\b)(?P<after>.*)$")
_LOOK = re.compile(
    r"^\s*(?:for .* do )?"
    r'(?P<of>(?:(?:redis\.)?call\("(?:HLEN|XLEN|LLEN|SCARD|ZCARD)"|intact_\w+\(|message\().*\))(?: end)?$'
)
_MORE = re.compile(r"^\s+(?P<word>or|and) (?P<of>.*?)(?:  -- .*)?$")
_VALUE = re.compile(r"^\s*(?:local [\w, ]+ = |[\w.\[\]]+ = |return )(?P<of>.*?)(?:  -- .*| end)?$")
_CONSTANT = re.compile(r'\d+|nil|"[^"]*"|\{\}')
_TURNS_AWAY = (" return", " wrong(", " error(")
_READ = {
    *("EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HSTRLEN", "LINDEX", "LLEN", "LRANGE"),
    *("PTTL", "SCARD", "SMEMBERS", "TIME", "XLEN", "XREVRANGE", "ZCARD", "ZRANGE", "ZRANGEBYSCORE", "ZSCORE"),
}
_COMMAND = re.compile(r'\bp?call\("(\w+)"')
_FUNCTION = re.compile(r"^( *)local function (\w+)(\([^\n]*\bend$|\(.*?\n\1end\b)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Mutant:
    """One check less: from column `start` to `end` of a line stands what is `without` it."""

    file: str
    line: int
    start: int
    end: int
    less: str
    text: str
    without: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.less}"

    @property
    def key(self) -> str:
        """Stays the same when lines move."""
        return f"{self.file}: {self.less}"


def mutants() -> Iterator[Mutant]:
    """All of them."""
    for path in sorted((ROOT / LUA).rglob("*.lua")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            for start, end, less, instead in changes(line):
                mutated = [*lines[:number], line[:start] + instead + line[end:], *lines[number + 1 :]]
                text = "\n".join(mutated) + "\n"
                yield Mutant(str(path.relative_to(ROOT / LUA)), number + 1, start, end, less, text, instead)


def changes(line: str) -> Iterator[tuple[int, int, str, str]]:
    """From where to where a line is changed; what it loses; what it has instead."""
    if line.lstrip().startswith("--"):
        return
    if found := _CONDITION.match(line):
        group = "of" if found["of"] else "goes_on"
        parts = [*without_each(found[group])]
        for part, less in parts:
            yield *found.span(group), f"without `{part}`", less
        if not parts and group == "of":
            turns_away = found["after"].startswith(_TURNS_AWAY)
            yield *found.span("of"), f"without `{found['of']}`", "false" if turns_away else "true"
            yield *found.span("of"), f"as if {'' if turns_away else 'not '}`{found['of']}`", str(turns_away).lower()
    elif found := _LOOK.match(line):
        yield *found.span("of"), f"without `{found['of']}`", ""
    elif found := _MORE.match(line):
        yield *found.span("of"), f"without `{found['of']}`", str(found["word"] == "and").lower()
    elif found := _VALUE.match(line):
        start = found.start("of")
        for one in split(found["of"], ", "):
            for part, less in without_each(one):
                yield start, start + len(one), f"without `{part}`", less
            start += len(one) + len(", ")


def without_each(expression: str) -> Iterator[tuple[str, str]]:
    """Each part that `or` or `and` joins, also in brackets, and the expression without it."""
    for word in (" or ", " and "):
        parts = split(expression, word)
        if len(parts) > 1:
            for i, part in enumerate(parts):
                if not _CONSTANT.fullmatch(part):
                    yield part, word.join([*parts[:i], *parts[i + 1 :]])
                for inner, less in without_each(part):
                    yield inner, word.join([*parts[:i], less, *parts[i + 1 :]])
            return
    bracketed = re.fullmatch(r"((?:not )?\()(.*)\)", expression)
    if bracketed and len(split(bracketed[2], ")")) == 1:
        for inner, less in without_each(bracketed[2]):
            yield inner, f"{bracketed[1]}{less})"


def split(expression: str, word: str) -> list[str]:
    """The parts at the top level, outside of brackets and texts."""
    parts, depth, start, quote = [], 0, 0, ""
    for i, char in enumerate(expression):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        else:
            depth += (char in "([{") - (char in ")]}")
            if depth <= 0 and expression.startswith(word, i):
                parts.append(expression[start:i])
                start = i + len(word)
    return [*parts, expression[start:]]


def of_folder(folder: Path) -> None:
    """Load the scripts from here, from now on."""
    scripts._FOLDER = folder
    for cached in (scripts.load, scripts._library, scripts._types):
        cached.cache_clear()


def told(line: str, start: int, end: int, without: dict[int, str]) -> str:
    """Lua that does what stands there, and says which of these would have made a difference."""
    of, truth = line[start:end], "not not " if _CONDITION.match(line) else ""
    if "" in without.values():  # a statement: where it fails
        return f"differs({{{', '.join(f'[{i}] = function() {of} return true end' for i in without)}}}, true) {of}"
    # What is without a write, or does it once more, differs by that.
    otherwise = {i: writes(of, writing()) or writes(less, writing()) for i, less in without.items()}
    values = {i: "error()" if otherwise[i] else f"return {truth}({less})" for i, less in without.items()}
    return f"differs({{{', '.join(f'[{i}] = function() {value} end' for i, value in values.items())}}}, {truth}({of}))"


@cache
def writing() -> frozenset[str]:
    """The functions of the scripts that write, or call one that does."""
    bodies: dict[str, str] = {}
    for path in sorted((ROOT / LUA).rglob("*.lua")):
        bodies |= {name: body for _, name, body in _FUNCTION.findall(path.read_text())}
    found: frozenset[str] = frozenset()
    while more := {name for name, body in bodies.items() if name not in found and writes(body, found)}:
        found |= more
    return found


def writes(lua: str, functions: Set[str]) -> bool:
    """Whether this does more than read: who only asks what it would give cannot have it done."""
    commands, called = set(_COMMAND.findall(lua)), set(re.findall(r"\b(\w+)\(", lua))
    return not commands <= _READ or not called.isdisjoint(functions)


def telling(folder: Path, wanted: list[Mutant]) -> None:
    """Put scripts there that tell which mutants, by number, make a difference; and load them from there."""
    shutil.copytree(ROOT / LUA, folder)
    at: dict[tuple[str, int, int, int], list[int]] = {}
    for number, one in enumerate(wanted):
        at.setdefault((one.file, one.line, one.start, one.end), []).append(number)
    for (file, number, start, end), numbers in sorted(at.items(), reverse=True):
        path = folder / file
        lines = path.read_text().splitlines()
        line = lines[number - 1]
        lines[number - 1] = line[:start] + told(line, start, end, {i: wanted[i].without for i in numbers}) + line[end:]
        path.write_text("\n".join(lines) + "\n")
    made = scripts.LuaScript.__init__

    def with_tells(script: scripts.LuaScript, name: str, source: str, clock: str = scripts.SERVER_CLOCK) -> None:
        made(script, name, source, clock)
        script.text = " ".join(TELLS.split()).encode() + b" " + script.text
        script.sha = hashlib.sha1(script.text, usedforsecurity=False).hexdigest()

    scripts.LuaScript.__init__ = with_tells
    of_folder(folder)


class Tries:
    """A plugin of pytest: in the place of running the tests once, it runs them for each mutant, in forked processes."""

    def __init__(self, wanted: list[Mutant], at_once: int, tell: Callable[[Mutant, str, int], None]) -> None:
        self._wanted, self._at_once, self._tell = wanted, at_once, tell
        self._why = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember why a test failed."""
        if report.failed:
            self._why = report.longreprtext.strip().rpartition("\n")[2]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """All of them."""
        with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
            notice = self._notice(session, Path(folder))
            trying: dict[int, tuple[Mutant, Path, float, int]] = {}
            for number, one in enumerate(self._wanted):
                tests = [item for item in session.items if number in notice[item.nodeid][1] or COUNTS in item.nodeid]
                tests.sort(key=lambda item: notice[item.nodeid][0])
                if not tests:
                    self._tell(one, "", 0)
                    continue
                while len(trying) == self._at_once:
                    self._collect(trying)
                trying[self._try(session, tests, one, Path(folder, str(number)))] = (
                    one, Path(folder, str(number)), time.monotonic(), len(tests),
                )  # fmt: skip
            while trying:
                self._collect(trying)
        return True

    def _collect(self, trying: dict[int, tuple[Mutant, Path, float, int]]) -> None:
        for pid, (one, folder, began, tests) in list(trying.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and time.monotonic() - began < SECONDS:
                continue
            if not ended:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            del trying[pid]
            self._tell(one, (folder / "at").read_text() if not ended or status else "", tests)
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

    def _notice(self, session: pytest.Session, folder: Path) -> dict[str, tuple[float, list[int]]]:
        """For each test how long it takes, and to which mutants it comes where they make a difference."""

        def look() -> bool:
            found: dict[str, tuple[float, list[int]]] = {}
            log = folder / "log"
            log.touch()
            out = os.fdopen(os.dup(1), "w")
            telling(folder / "telling", self._wanted)
            made = fleet.RedisServer.__init__

            def logging(server: fleet.RedisServer, at: Any = None, arguments: tuple[str, ...] = ()) -> None:
                made(server, at, (*arguments, "--logfile", str(log)))

            fleet.RedisServer.__init__ = logging
            with log.open() as lines:
                for item, following in zip(session.items, [*session.items[1:], None], strict=True):
                    began = time.monotonic()
                    failed = session.testsfailed
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    told = {int(number) for number in re.findall(r"MUTANT (\d+)", lines.read())}
                    # It looks at how scripts are written, or does not pass at all. (What counts commands counts also
                    # those by which they tell.)
                    if session.testsfailed > failed and COUNTS not in item.nodeid:
                        told.clear()
                        said = f"{item.nodeid} ({self._why})"
                        print(f"left out, as it fails with scripts that tell: {said}", file=out, flush=True)
                    found[item.nodeid] = (time.monotonic() - began, sorted(told))
            (folder / "notice").write_text(json.dumps(found))
            return False

        _, status = os.waitpid(_forked(look, quiet=False), 0)
        if status:
            raise pytest.UsageError("the tests do not run without any mutant")
        found: dict[str, tuple[float, list[int]]] = json.loads((folder / "notice").read_text())
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


def chosen(only: Sequence[str], without: str, missed: Path | None) -> list[Mutant]:
    """Those that are asked for, in that order."""
    told = re.findall(r"^NOT CAUGHT .*?: (.*?):\d+ (.*)$", missed.read_text(), re.MULTILINE) if missed else None
    every = [one for one in mutants() if without in one.less and (told is None or (one.file, one.less) in told)]
    return [one for file in only for one in every if one.file == file] if only else every


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="FILE", default=(), help="these scripts alone, in this order")
    parser.add_argument(
        "--without", default="", metavar="TEXT", help="those alone that lose a check in which this stands"
    )
    parser.add_argument(
        "--missed", type=Path, metavar="FILE", help="those alone that this is told there not to have caught"
    )
    parser.add_argument("--ring", action="store_true", help="let the fault ring look at what the tests let pass")
    parser.add_argument("--list", action="store_true", help="say which there are, and try none")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument(
        "--tests", nargs="+", metavar="NAME", default=TESTS, help="of tests/integration/providers, as scripts"
    )
    given = parser.parse_args()
    wanted = chosen(given.only, given.without, given.missed)
    if gone := EQUIVALENT.keys() - {one.key for one in mutants()}:
        parser.error(f"equivalent.py has what there is no mutant of: {', '.join(sorted(gone))}")
    if given.list:
        print(*(one.name for one in wanted), f"{len(wanted)} mutants", sep="\n")
        return 0
    wrong: list[Mutant] = []
    caught = equivalent = 0
    out = os.fdopen(os.dup(1), "w")  # pytest captures what is printed

    def tell(one: Mutant, noticed: str, tests: int) -> None:
        nonlocal caught, equivalent
        listed = one.key in EQUIVALENT
        if not noticed and not listed and given.ring and not survives_ring(one):
            noticed = "ring.py"
        caught += bool(noticed) and not listed
        equivalent += listed and not noticed
        if bool(noticed) == listed:
            wrong.append(one)
        by = f"caught by {noticed}{', but listed as equivalent' if listed else ''}"
        missed = "equivalent" if listed else f"NOT CAUGHT by {tests} tests"
        print(f"{by if noticed else missed}: {one.name}", file=out, flush=True)

    os.chdir(ROOT)
    tests = [
        f"tests/integration/providers/test_{name}.py"
        for name in given.tests
        if Path(f"tests/integration/providers/test_{name}.py").exists()
    ]
    options = ["-q", "-s", "-k", f"not ({' or '.join(LEFT_OUT)})", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-p", "no:same_process"]  # tests run in what is forked here
    options += ["-o", "addopts=--import-mode=importlib", "--no-header"]
    code = pytest.main([*options, "--timeout=120", *tests], plugins=[Tries(wanted, given.at_once, tell)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return 2
    print(f"{len(wanted)} mutants: {caught} caught, {len(wrong)} not, {equivalent} change nothing that is seen")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
