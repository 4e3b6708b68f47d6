"""The quick loop's processes: each test is done in one of them, and whatever happens there is told by the first."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.testing import eventually

WITHIN = 120.0  #: seconds, on a machine with other work
CONFTEST = """
import os
os.sched_getaffinity = lambda _: {0, 1}  # whatever this machine has
from support import same_process, side_by_side

def pytest_addoption(parser):
    parser.addoption("--processor-time", action="store_true")

def pytest_configure(config):
    config.first = os.getpid()
    config.pluginmanager.register(same_process.SameProcess(), "same_process")
    config.pluginmanager.register(side_by_side.SideBySide())
"""
TESTS = """
import os, time
from pathlib import Path
import pytest

@pytest.fixture(scope="module", autouse=True)
def of_file():
    with Path("pids").open("a") as file:
        file.write(f"{os.getpid()} ")
    end = time.monotonic() + 60
    while len(Path("pids").read_text().split()) < TOGETHER and time.monotonic() < end:
        time.sleep(0.01)

def test_done(tmp_path): ...

@pytest.mark.skipif(True, reason="it is missing")
def test_skipped(): ...
"""
FAILING = """
def test_failing():
    print("said by", __name__)
    assert __name__ == "another"
"""
ENDING = """
def test_ending(pytestconfig):
    if os.getpid() != pytestconfig.first:
        os._exit(7)
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def start(root: Path, tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts the tests of three files, none of which is done before so many are begun ``together``."""
    started = []

    def of_files(*words: str, together: int = 3, more: str = "", **settings: str) -> "subprocess.Popen[str]":
        (tmp_path / "conftest.py").write_text(CONFTEST)
        for name in "abc":
            (tmp_path / f"test_{name}.py").write_text(TESTS.replace("TOGETHER", str(together)) + more)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            os.devnull,
            "--rootdir=.",
            "--import-mode=importlib",
            *words,
            ".",
        ]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COVERAGE_"))}
        environment = {**kept, "PYTHONPATH": f"{root / 'tests'}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **settings}
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE))
        return started[-1]

    yield of_files
    for process in started:
        with process:
            process.kill()


def _pids(folder: Path) -> list[int]:
    """The process of each file that is begun."""
    return [int(pid) for pid in (folder / "pids").read_text().split()] if (folder / "pids").exists() else []


def test_each_test_is_done_by_one_of_them_and_told_by_the_first(start, tmp_path):
    process = start("-v")
    said, _ = process.communicate(timeout=WITHIN)
    assert process.returncode == 0, said
    assert "3 passed, 3 skipped" in said
    told = sorted(re.findall(r"(?m)^test_(\w)\.py::test_(\w+) (PASSED|SKIPPED)", said))
    assert told == [(name, *how) for name in "abc" for how in (("done", "PASSED"), ("skipped", "SKIPPED"))]
    assert process.pid in (pids := _pids(tmp_path))
    assert len(set(pids)) == 3


def test_one_that_fails_is_shown_with_what_it_said_and_raised(start):
    process = start(more=FAILING)
    said, _ = process.communicate(timeout=WITHIN)
    assert process.returncode == 1, said
    assert "3 failed, 3 passed, 3 skipped" in said
    for name in "abc":
        assert f"said by test_{name}\n" in said
        assert f"AssertionError: assert 'test_{name}' == 'another'" in said


def test_the_first_that_fails_in_another_process_is_shown_and_is_the_end(start):
    process = start(
        "-x", more="def test_failing(pytestconfig):\n    assert os.getpid() == pytestconfig.first, 'elsewhere'\n"
    )
    said, _ = process.communicate(timeout=WITHIN)
    assert process.returncode == 1, said
    assert "AssertionError: elsewhere" in said
    assert re.search(r"[12] failed", said), "both others may have begun it by then"


def test_one_that_ends_its_process_is_no_success(start):
    process = start(more=ENDING)
    said, _ = process.communicate(timeout=WITHIN)
    assert process.returncode == pytest.ExitCode.INTERNAL_ERROR, said
    assert "another process of the quick loop ended with 7" in said


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_none_is_left_when_the_first_is_ended(start, tmp_path, signum):
    process = start(together=4)  # which are never begun
    pids = eventually(lambda: len(found := _pids(tmp_path)) == 3 and found, within=WITHIN)
    process.send_signal(signum)
    process.communicate(timeout=WITHIN)
    assert process.returncode in (-signum, pytest.ExitCode.INTERRUPTED)
    for pid in pids:
        eventually(lambda pid=pid: not Path(f"/proc/{pid}").exists(), why="it has ended")


@pytest.mark.parametrize(
    ("words", "settings"), [(["-s"], {}), ([], {"COVERAGE_RUN": "true"}), (["--processor-time"], {})]
)
def test_who_looks_at_the_tests_finds_all_in_one_process(start, tmp_path, words, settings):
    process = start(*words, together=1, **settings)
    said, _ = process.communicate(timeout=WITHIN)
    assert (process.returncode, _pids(tmp_path)) == (0, [process.pid] * 3), said
