"""The test command itself: what it takes from the shell, and what it leaves."""

import os
import re
import signal
import subprocess
import sys
import tomllib

import pytest


def test_bytecode_is_kept_whatever_the_shell_says():
    """Else each of the hundreds of processes that tests start compiles all that it imports."""
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ
    assert not sys.dont_write_bytecode


def test_no_signal_is_ignored_that_a_person_sends():
    """A shell that starts a command in the background has it ignore them."""
    sent = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
    assert signal.SIG_IGN not in {signal.getsignal(signum) for signum in sent}


def test_the_soak_is_run_only_when_asked_for(request):
    soak = [item.nodeid for item in request.session.items if item.get_closest_marker("soak")]
    assert request.config.getoption("soak") or not soak


def test_what_is_left_to_the_soak_is_listed(root):
    """A case that the test command leaves out is one that somebody can see it leaves out."""
    listed = re.findall(r"(?m)^\| `(tests/[^`]+)` \|", (root / "CONTRIBUTING.md").read_text())
    folders = [path for path in (root / "tests").rglob("*.py") if path.name != "test_session.py"]
    marked = {path.relative_to(root).as_posix() for path in folders if _has_soak(path.read_text())}
    marked -= {"tests/conftest.py", "tests/support/soak.py"}
    assert marked == {file for file in listed if not file.endswith("/")}
    assert {file for file in listed if file.endswith("/")} == {"tests/soak/", "tests/worker/"}
    command = (root / "ops/soak").read_text().splitlines()[-1]
    assert command.endswith(' -m pytest --soak -m soak "$@"')


def _has_soak(text):
    return "pytest.mark.soak" in text or "in_soak(" in text


def test_no_test_is_run_again_but_in_ci_which_names_it(root):
    """A race shows itself by failing once."""
    options = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    assert [option for option in options if "rerun" in option] == []
    (command,) = re.findall(r"(?m)^ *(python -m pytest .*)$", (root / ".ci/run").read_text())
    assert {"-rR", "--reruns=1"} <= set(command.split())


def test_a_fork_that_comes_out_of_its_test_ends_there_with_what_it_raised(root, tmp_path):
    """It would report to the same xdist, as if it were the process that it was forked from."""
    (tmp_path / "conftest.py").write_text(
        "import same_process\n\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(same_process.SameProcess())\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import os\n\ndef test_it(monkeypatch):\n    monkeypatch.setattr(os, 'getpid', lambda: 7)\n"
        "    if not (pid := os.fork()):\n        raise LookupError('in the fork')\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 70\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", tmp_path, tmp_path]
    environment = os.environ | {"PYTHONPATH": str(root / "tests/support")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.count("1 passed")) == (0, 1), done.stdout
    assert "LookupError: in the fork" in done.stderr


def test_what_a_session_itself_changes_is_no_tests_fault_where_the_first_is_skipped(root, tmp_path):
    """A test that is skipped by its mark makes no fixture: the session's own are the next one's."""
    (tmp_path / "conftest.py").write_text(
        "import os\nimport pytest\nimport left_behind\n\n"
        "def pytest_configure(config):\n"
        "    config.addinivalue_line('markers', 'fast: it is')\n"
        "    config.pluginmanager.register(left_behind.LeftBehind(threads=True))\n\n"
        "@pytest.fixture(autouse=True, scope='session')\ndef of_all():\n"
        "    with pytest.MonkeyPatch.context() as patch:\n        patch.setattr(os, 'kill', print)\n        yield\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import os\nimport pytest\n\npytestmark = pytest.mark." + "fast\n\n"
        "@pytest.mark.skipif(True, reason='it is missing')\ndef test_skipped(): ...\n\n"
        "def test_first(): ...\n\n\ndef test_left():\n    os.killpg = print\n\n\ndef test_last(): ...\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", tmp_path, tmp_path]
    environment = os.environ | {"PYTHONPATH": str(root / "tests/support")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "3 passed, 1 skipped, 1 error" in done.stdout, done.stdout
    # Where CI is set, pytest says the text once more at the end.
    assert set(re.findall(r"(?m)^os: .*|teardown of \w+", done.stdout)) == {"teardown of test_left", "os: killpg"}


def test_n_auto_is_four_processes_for_each_core_and_none_in_the_quick_loop(request, monkeypatch):
    if not request.config.pluginmanager.hasplugin("xdist"):
        pytest.skip("pytest-xdist is switched off")
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    cores = len(os.sched_getaffinity(0))
    ask = request.config.hook.pytest_xdist_auto_num_workers
    for expression, expected in (("", 4 * cores), ("fast", 0)):
        monkeypatch.setattr(request.config.option, "markexpr", expression)
        assert ask(config=request.config) == expected, expression


def test_what_is_marked_as_fast_is_where_the_quick_loop_looks(root):
    """It reads no other folder: collecting all of them was a third of its time."""
    elsewhere = [path for path in (root / "tests").rglob("test_*.py") if "unit" not in path.parts]
    marked = [path.relative_to(root).as_posix() for path in elsewhere if "mark." + "fast" in path.read_text()]
    assert marked == []


def test_a_worker_that_would_end_its_process_fails_its_test_and_a_child_of_it_may():
    """xdist would say of the whole process that it was not properly terminated, and not why."""
    code = {"__name__": "runner.made_here", "os": os}
    with pytest.raises(AssertionError, match=r"os._exit\(75\) in the test run itself"):
        exec("os._exit(75)", code)
    if (pid := os.fork()) == 0:
        exec("os._exit(75)", code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 75


def test_a_test_that_takes_too_long_fails_alone(root):
    """The other way of pytest-timeout ends the process, with all that it had to test."""
    options = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["timeout_method"] == "signal"
