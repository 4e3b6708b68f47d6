"""The processes of a test command are forked from one that has read the tests, and end with it, however it ends."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from runner.testing import eventually

WITHIN = 120.0  #: seconds, on a machine with other work

CONFTEST = """
import pytest
from session_template import SessionTemplate

def pytest_xdist_setupnodes(config, specs):
    config.template = SessionTemplate(NAME, str(config.rootpath))
    for one in specs:
        one.python = config.template.python()

def pytest_unconfigure(config):
    if template := getattr(config, "template", None):
        template.close()
"""
TESTS = """
import json, os, signal, sys, time
from pathlib import Path
import pytest

READ_BY = os.getpid()

@pytest.mark.parametrize("number", [0, 1])
def test_it(number):
    about = {"pid": os.getpid(), "read by": READ_BY, "group": os.getpgrp(), "argv": sys.argv}
    about["SIGINT"] = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    about["worker"] = os.environ["PYTEST_XDIST_WORKER"]
    at = Path(f"about-{number}")
    at.with_suffix(".new").write_text(json.dumps(about))
    at.with_suffix(".new").rename(at)
    end = time.monotonic() + 60
    while Path("held").exists() and time.monotonic() < end:
        time.sleep(0.01)
"""


pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def command(root: Path, tmp_path: Path):
    """Starts it in a folder with two tests; at the end none of its processes is left."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = test_it.py\naddopts = -pxdist --dist=worksteal\n")
    (tmp_path / "conftest.py").write_text(CONFTEST.replace("NAME", repr(tmp_path.as_posix()[-80:])))
    (tmp_path / "test_it.py").write_text(TESTS)
    started = []

    def start(plugins: bool = False) -> "subprocess.Popen[str]":
        """With the ``plugins`` that our own test command has, or without any but xdist."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = {**kept, "PYTHONPATH": str(root / "tests/support")}
        words = [sys.executable, "-m", "pytest", "-q", "-n2"]
        if plugins:
            settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
            without = " ".join(one for one in settings["addopts"] if one.startswith("-pno:"))
            (tmp_path / "pytest.ini").write_text(
                f"[pytest]\ntestpaths = test_it.py\naddopts = {without} --dist=worksteal"
            )
        else:
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        process = subprocess.Popen(
            words, cwd=tmp_path, env=environment, start_new_session=True, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            try:
                eventually(lambda process=process: not _of_group(process.pid), why="nothing is left")
            finally:
                for pid in _of_group(process.pid):
                    os.kill(pid, signal.SIGKILL)


def _of_group(group: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def _abouts(folder: Path) -> list[dict[str, object]]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("about-?"))]


def test_a_test_file_is_read_once_and_its_tests_are_in_as_many_processes_as_asked_for(command, tmp_path):
    (tmp_path / "held").touch()  # so that no process does both
    process = command(plugins=True)  # one of which may start a thread
    one, other = eventually(lambda: len(found := _abouts(tmp_path)) == 2 and found, within=WITHIN)
    (tmp_path / "held").unlink()
    assert process.wait(WITHIN) == 0, process.communicate()
    assert "2 passed" in process.communicate()[0]
    assert one["read by"] == other["read by"] not in {one["pid"], other["pid"]}
    assert one["pid"] != other["pid"]
    assert {one["worker"], other["worker"]} == {"gw0", "gw1"}
    for about in (one, other):
        assert (about["group"], about["argv"], about["SIGINT"]) == (process.pid, ["-c"], True)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_command_that_is_ended_in_a_test(command, tmp_path, signum):
    (tmp_path / "held").touch()
    process = command()
    eventually(lambda: len(_abouts(tmp_path)) == 2, within=WITHIN)
    process.send_signal(signum)
    process.communicate(timeout=WITHIN)
    assert process.returncode in (-signum, 2)


def test_where_no_file_can_be_read_xdist_says_why(command, tmp_path):
    (tmp_path / "test_it.py").write_text("raise LookupError('not to be read')")
    said, _ = command().communicate(timeout=WITHIN)
    assert "not to be read" in said


def test_where_one_file_cannot_be_read_the_command_fails(command, tmp_path):
    """A fork that found it half imported passed without its tests."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -pxdist --dist=worksteal --import-mode=importlib\n")
    (tmp_path / "test_moved.py").write_text("from os import what_has_moved\n\ndef test_that(): ...\n")
    process = command()
    said, _ = process.communicate(timeout=WITHIN)
    assert process.returncode == 1
    assert "cannot import name 'what_has_moved'" in said


def test_where_there_is_no_template_each_reads_for_itself(command, tmp_path):
    a_thread = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (tmp_path / "test_it.py").write_text(a_thread + TESTS)
    (tmp_path / "held").touch()
    process = command()
    found = eventually(lambda: len(found := _abouts(tmp_path)) == 2 and found, within=WITHIN)
    (tmp_path / "held").unlink()
    assert process.wait(WITHIN) == 0
    assert [about["read by"] for about in found] == [about["pid"] for about in found]
