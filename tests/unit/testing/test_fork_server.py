"""A command that is forked is one like any other: its arguments, environment, folder, files, exit code and end."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.testing import eventually

from ...support import fork_server, forked
from ...support.fork_server import ForkServer

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "runner"]
BARE = {**os.environ, fork_server.IMPORTED: fork_server.NOTHING}  #: of those for which it does not matter
STAYS = [sys.executable, "-c", "import signal; signal.pause()"]  #: until it is killed, which each test waits for


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(params=["forked", pytest.param("started", marks=pytest.mark.soak)])
def start(request, forks):
    def popen(*arguments: str, **options) -> "subprocess.Popen[str]":
        way = forks.popen if request.param == "forked" else subprocess.Popen
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = way([*COMMAND, *arguments], **pipes, **options)
        assert (type(process) is subprocess.Popen) == (request.param == "started")
        return process

    return popen


def test_it_says_what_it_says_and_ends_with_its_code(start):
    with start("show", "--no-such-option") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "--no-such-option" in err


def test_it_is_in_its_folder(start, tmp_path):
    (tmp_path / "crew.py").write_text("from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a', run=str)])\n")
    with start("submit", "crew.py", "--dry-run", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "a" in out


def test_it_has_its_environment_and_no_other(start):
    with start("doctor", "--json", env={**os.environ, "RUNNER_REDIS_URL": "redis://127.0.0.1:1/0"}) as process:
        out, err = process.communicate(timeout=60)
    assert "127.0.0.1:1" in out + err
    assert process.returncode != 0


def test_it_dies_of_a_signal(start, server):
    environment = {**os.environ, "RUNNER_REDIS_URL": server.url}
    with start("worker", env=environment, start_new_session=True) as process:
        assert os.getpgid(process.pid) == process.pid
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL


def test_no_signal_is_ignored_that_an_interpreter_heeds(forks, server, tmp_path):
    with (tmp_path / "log").open("wb") as log:
        environment = {**os.environ, "RUNNER_REDIS_URL": server.url}
        process = forks.popen([*COMMAND, "worker"], stdout=log, stderr=log, env=environment, start_new_session=True)
    status = Path(f"/proc/{process.pid}/status").read_text()
    (ignored,) = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn")]
    process.kill()
    process.wait(60)
    by_all = {signal.SIGPIPE, signal.SIGXFSZ}  # every interpreter ignores these
    assert [one for one in signal.valid_signals() - by_all if ignored >> one - 1 & 1] == []


def test_what_an_interpreter_reads_as_it_starts_is_its_own(forks, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('customized', flush=True)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    kinds = []
    for _ in range(2):
        with forks.popen([*COMMAND, "show", "--help"], env=environment, stdout=subprocess.PIPE) as process:
            out, _ = process.communicate(timeout=60)
        kinds.append((type(process) is subprocess.Popen, process.returncode, b"customized" in out))
    assert kinds == [(True, 0, True), (False, 0, False)]  # the second by a server, which was customized itself


def test_of_another_interpreter_the_first_kind_has_a_server_and_each_other_once_it_comes_again(monkeypatch):
    started: list[str] = []
    monkeypatch.setattr(fork_server, "_Forked", lambda *_, **__: started.append("forked"))
    with contextlib.closing(ForkServer()) as other, monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", lambda *_, **__: started.append("started"))
        for variables in ({}, {"PYTHONPATH": "one"}, {"PYTHONPATH": "one"}, {}):
            other.popen(["another", "-c", ""], env=variables)
        assert started == ["forked", "started", "forked", "forked"]
        # and at once where another process of the session has started that
        started.clear()
        other._path(fork_server._kind("another", {"PYTHONPATH": "two"})).touch()
        for value in ("two", "three"):
            other.popen(["another", "-c", ""], env={"PYTHONPATH": value})
    assert started == ["forked", "started"]


def test_what_it_can_heed_later_needs_no_server_of_its_own(forks):
    code = "import sys, time; print(sys.dont_write_bytecode, time.tzname[0], sys.stdout.line_buffering)"
    heeded = {"PYTHONDONTWRITEBYTECODE": "1", "TZ": "XYZ-7", "PYTHONUNBUFFERED": "1"}
    others = {name: value for name, value in os.environ.items() if name not in heeded}
    said = []
    for environment in (others | {"TZ": "ABC1"}, others | heeded):
        with forks.popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) as process:
            said.append(process.communicate(timeout=60)[0].split())
        assert type(process) is not subprocess.Popen
    assert said == [["False", "ABC", "False"], ["True", "XYZ", "True"]]


def test_one_that_has_ended_before_its_pid_is_read_has_that_pid_and_its_code(forks, monkeypatch):
    """As on a busy machine: who ordered it comes to read only then."""

    class ReadLate(socket.socket):
        def recv(self, *given):
            ended = select.poll()
            ended.register(self, select.POLLHUP)
            assert ended.poll(60_000)
            return super().recv(*given)

    pairs = socket.socketpair

    def pair(*given):
        here, there = pairs(*given)
        return ReadLate(fileno=here.detach()), there

    with monkeypatch.context() as patch:
        patch.setattr(fork_server.socket, "socketpair", pair)
        process = forks.popen([sys.executable, "-c", "import os; print(os.getpid()); raise SystemExit(2)"], stdout=-1)
    with process:
        assert (process.communicate()[0], process.returncode) == (b"%d\n" % process.pid, 2)


def test_what_still_runs_ends_with_the_server():
    """A test session that is interrupted while it starts something has no name for that."""
    server = ForkServer()
    process = server.popen(STAYS, env=BARE, start_new_session=True)
    assert type(process) is not subprocess.Popen
    server.close()
    assert process.wait(60) == -signal.SIGKILL
    eventually(lambda: not Path(f"/proc/{process.pid}/exe").exists(), why="it has ended")


def test_processes_of_a_session_share_a_server_and_none_ends_what_another_started(tmp_path):
    mine, other = ForkServer(tmp_path / "f"), ForkServer(tmp_path / "f")
    first, second = (one.popen(STAYS, env=BARE, start_new_session=True) for one in (mine, other))
    parents = {Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[1] for one in (first, second)}
    assert len(parents) == 1
    mine.close()
    assert first.wait(60) == -signal.SIGKILL
    assert second.poll() is None
    other.close()
    assert second.wait(60) == -signal.SIGKILL
    eventually(lambda: not (tmp_path / "f").exists(), why="the server is gone, and where it listened")


def test_a_command_has_another_one_forked_with_its_files_and_passes_signals_and_the_exit_code_on(forks, tmp_path):
    server = forks.path(sys.executable, os.environ)
    script = tmp_path / "script.py"
    script.write_text(
        "import signal, sys, time\n"
        "print(sys.argv[1:], sys.stdin.read(), flush=True)\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-IS", forked.__file__, server, script, "a", "b"]
    for signum, code in ((signal.SIGTERM, 7), (signal.SIGKILL, -signal.SIGKILL)):
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            process.stdin.write("given")
            process.stdin.close()
            assert process.stdout.readline() == "['a', 'b'] given\n"
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signum)
            assert process.wait(60) == code
            assert process.stdout.read() == ""  # what was forked has ended, too
