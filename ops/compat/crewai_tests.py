"""How many of CrewAI's own tests pass against ours, with only their imports changed?

    python ops/compat/crewai_tests.py [--tests PATH/TO/crewai/tests] [--quick] [--write] [FILE ...]

Theirs are not in this repository: without a path pip fetches the source of the release that is tested. In a copy of
each file ``crewai`` becomes ``runner`` where a module is named; nothing else is changed. A name that we do not have
fails the tests that use it, and no others of its file. Models are asked at a server for tests.

``ops/compat/crewai_tests.txt`` has every file of theirs that touches state, events, flows, checkpoints, feedback,
guardrails, tasks or crews, with how many of its tests pass. It ends with 1 if fewer pass in one of them. ``--quick``
runs those that it marks so, in one process: `.ci/run` does. ``--write`` writes the table.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

RELEASE = "1.15.30"
TABLE = Path(__file__).with_suffix(".txt")
WITHIN = 300  #: seconds for a file


class Row(NamedTuple):
    """A line of the table: how many of a file's tests pass, how many there are, and whether it is one of the quick."""

    passed: int
    tests: int
    quick: bool


CONFTEST = '''
import asyncio, builtins, importlib, inspect, os, signal, sys, types
import pytest
from runner.events import event_bus, reset_last_event_id, restore_event_scope, set_event_context_config
from runner.testing import ModelServer

really_import = builtins.__import__
HERE = os.path.dirname(__file__)


class NotOurs(type):
    """A name of theirs that we do not have: whatever is done with it fails."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.fail(f"{cls.__name__} is not ours")

    def __call__(cls, *_, **__):
        pytest.fail(f"{cls.__name__} is not ours")


def missing(name):
    return NotOurs(name, (), {})


def of_a_test(name, globals=None, locals=None, fromlist=(), level=0):
    if level or name.partition(".")[0] != "runner" or not str((globals or {}).get("__file__", "")).startswith(HERE):
        return really_import(name, globals, locals, fromlist, level)
    try:
        found = really_import(name, globals, locals, fromlist, level)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("runner") or not fromlist:
            raise
        found = types.ModuleType(name)
    lacking = [one for one in fromlist or () if not hasattr(found, one)]
    if not lacking:
        return found
    known = {one: getattr(found, one) for one in fromlist if one not in lacking}
    return types.SimpleNamespace(**known, **{one: missing(one) for one in lacking})


builtins.__import__ = of_a_test


def late(*_):
    raise TimeoutError("this test takes too long")


signal.signal(signal.SIGALRM, late)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    signal.alarm(SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        names = pyfuncitem._fixtureinfo.argnames
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True


@pytest.fixture(scope="session", autouse=True)
def models():
    with ModelServer() as server:
        os.environ.update(OPENAI_BASE_URL=server.root + "/v1", OPENAI_API_KEY="none", OPENAI_MODEL_NAME="gpt-4o-mini")
        yield


@pytest.fixture(autouse=True)
def afresh(tmp_path, monkeypatch):
    """As CrewAI's own conftest: nothing of the test before, and a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNNER_STATE_DIR", str(tmp_path / ".state"))
    monkeypatch.setattr(sys, "stdin", open(os.devnull))
    restore_event_scope(())
    set_event_context_config(None)
    reset_last_event_id()
    event_bus._shutting_down = False
    event_bus.enable_recording()  # theirs is always on


def pytest_configure(config):
    for mark in ("asyncio", "vcr", "timeout", "telemetry", "flaky", "isolated_storage", "slow"):
        config.addinivalue_line("markers", mark)
'''.replace("SECONDS", "20")


def ours(text: str) -> str:
    """A test of theirs with our imports."""
    text = re.sub(r"\bcrewai_core\.", "runner.", text)
    text = re.sub(r"\bcrewai_cli\.", "runner.cli.", text)
    text = re.sub(r"\bcrewai\.(?=[a-z_])", "runner.", text)
    return re.sub(r"\b(from|import) crewai\b", r"\1 runner", text)


def fetched(folder: Path) -> Path | None:
    """The tests of the release, as the package index has its source; None where there is no index."""
    asked = ("download", "--quiet", "--no-deps", "--no-binary", "crewai", "--dest", str(folder), f"crewai=={RELEASE}")
    pythons = (sys.executable, getattr(sys, "_base_executable", sys.executable))
    if not any(subprocess.run([one, "-m", "pip", *asked], check=False).returncode == 0 for one in pythons):
        return None
    with tarfile.open(next(folder.glob("crewai-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"crewai-{RELEASE}" / "tests"


def ran(tests: Path, files: Sequence[str]) -> dict[str, tuple[int, int]]:
    """How many tests of each file passed, and how many there are; in one process."""
    names = {file.replace("/", "__"): file for file in files}
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(CONFTEST)
        if (tests / "config").is_dir():
            shutil.copytree(tests / "config", folder / "config")
        for copy, file in names.items():
            (folder / copy).write_text(ours((tests / file).read_text()))
        more = ("-rA", "--tb=no", "-p", "no:cacheprovider", "--continue-on-collection-errors", "-W", "ignore")
        command = [sys.executable, "-m", "pytest", "-q", *more, *names]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
            try:
                said, _ = job.communicate(timeout=WITHIN * len(files))
            except subprocess.TimeoutExpired:
                job.kill()
                said, _ = job.communicate()
    passed: dict[str, set[str]] = {file: set() for file in files}
    known: dict[str, set[str]] = {file: set() for file in files}
    for how, copy, test in re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) ([^:\s]+)(?:::(\S+))?", said, re.MULTILINE):
        if (file := names.get(copy)) is not None:
            known[file].add(test)
            (passed[file].add if how == "PASSED" else passed[file].discard)(test)
    return {file: (len(passed[file]), len(known[file])) for file in files}


def table() -> dict[str, Row]:
    """What is expected of each file."""
    found = {}
    for line in TABLE.read_text().splitlines():
        counts, file, *quick = line.split()
        passed, _, tests = counts.partition("/")
        found[file] = Row(int(passed), int(tests), bool(quick))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="of theirs; by default all of the table")
    parser.add_argument("--tests", type=Path, help="the folder of CrewAI's tests")
    parser.add_argument("--quick", action="store_true", help="only those that take little time, in one process")
    parser.add_argument("--write", action="store_true", help="write the table")
    asked = parser.parse_args(arguments)
    rows = table()
    files = asked.files or [file for file, row in rows.items() if row.quick or not asked.quick]
    with tempfile.TemporaryDirectory(prefix="crewai-") as folder:
        tests = asked.tests or fetched(Path(folder))
        if tests is None:
            print("no package index gives the source of CrewAI: its tests were not tried")
            return 0
        together = ran(tests, files) if asked.quick else {}
        fewer = []
        for file in files:
            expected = rows.get(file, Row(0, 0, False))
            passed, there = together.get(file) or ran(tests, [file])[file]
            if passed < expected.passed:  # by itself once more: some wait for times that a busy machine does not keep
                passed, there = ran(tests, [file])[file]
            if passed < expected.passed:
                fewer.append(file)
            print(f"{passed:>4} of {there:<4} {file}" + " FEWER THAN BEFORE" * (file in fewer), flush=True)
            rows[file] = Row(passed, there, expected.quick)
    if asked.write:
        TABLE.write_text(
            "".join(f"{row.passed}/{row.tests} {file}{' quick' * row.quick}\n" for file, row in sorted(rows.items()))
        )
    if fewer:
        print(f"fewer of CrewAI's tests pass than {TABLE.name} expects: {', '.join(fewer)}", file=sys.stderr)
    return int(bool(fewer))


if __name__ == "__main__":
    sys.exit(main())
