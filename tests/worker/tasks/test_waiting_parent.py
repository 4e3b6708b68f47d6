"""A parent whose workers run becomes a program that only waits, and still does all that a parent does."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.providers.redis.connection import connect
from runner.tasks import waiting_parent
from runner.testing import WorkerProcess, children_of, leftovers
from runner.testing import fleet as testing_fleet

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel does not say which child ended"),
]

CREWS = """
    async def awaited(ctx):
        return "thread"

    awaiting = Crew(tasks=[Task(name="t", run=awaited)])
    plainly = Crew(tasks=[Task(name="t", run=lambda ctx: "process")])
"""
SOON = """
import runpy, sys
from runner.tasks import parent

parent.QUICK = 0.2  # seconds that a worker lives until its parent only waits
runpy.run_module("runner", run_name="__main__", alter_sys=True)
"""


def only_waits(pid: int) -> bool:
    return waiting_parent.__file__ in Path(f"/proc/{pid}/cmdline").read_text().split("\0")


@pytest.fixture
def start(fleet: Any, tmp_path: Path) -> Any:
    """Starts a worker by this program, whose parent only waits soon: forked, unless by an interpreter's words."""

    def started(*words: str, program: str = SOON, pool: str = "auto", ends: bool = False) -> WorkerProcess:
        file, log = tmp_path / "soon.py", fleet.folder / "worker-0.log"
        file.write_text(program)
        settings = fleet.environment(RUNNER_PRELOAD="", PYTHONHASHSEED="0")
        command = [*(words or [sys.executable]), str(file), "worker", "--pool", pool]
        launch = subprocess.Popen if words else testing_fleet.launch
        with log.open("wb") as out:
            process = launch(
                command, env=settings, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        leftovers.end_with_us(process.pid)
        fleet.workers.append(WorkerProcess(process, log, connect(fleet.url)))
        return fleet.workers[-1] if ends else fleet.workers[-1].ready()

    return started


@pytest.fixture
def waiting(start: Any, eventually: Any) -> Any:
    """A worker whose parent only waits by now."""
    worker = start()
    eventually(lambda: only_waits(worker.pid), why="the parent only waits")
    return worker


def test_it_starts_what_is_needed_and_what_died(
    waiting: Any, fleet: Any, client: Client, crew_of: Any, eventually: Any
) -> None:
    file = crew_of(CREWS)
    # When there is a task for a process, and when all of its workers were killed
    assert client.submit(f"{file}:plainly").wait(60).result == "process"
    for pid in (workers := children_of(waiting.pid)):
        os.kill(pid, signal.SIGKILL)
    # Then it is done by workers of the same parent
    assert client.submit(f"{file}:awaiting").wait(60).result == "thread"
    assert client.submit(f"{file}:plainly").wait(60).result == "process"
    assert len(workers) == 2
    assert waiting.alive()
    assert "exited with status -9; starting another" in fleet.log()


def test_it_has_let_go_of_what_it_imported_and_ends_its_workers_when_asked_and_then_itself(waiting: Any) -> None:
    assert "site-packages" not in Path(f"/proc/{waiting.pid}/maps").read_text()
    workers = children_of(waiting.pid)
    os.kill(waiting.pid, signal.SIGHUP)
    assert waiting.process.wait(60) == 0
    assert workers
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_its_workers_end_with_it(waiting: Any, eventually: Any) -> None:
    workers = children_of(waiting.pid)
    os.kill(waiting.pid, signal.SIGKILL)
    waiting.process.wait(60)
    assert workers
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), why="they drained and ended")


TOLD = """
import os, signal
from runner.tasks import parent

settings = parent.WorkerSettings

def told():
    parent.WorkerSettings = settings
    os.kill(os.getpid(), signal.SIGTERM)
    return settings()

parent.WorkerSettings = told
"""


def test_who_is_told_just_before_ends_all_the_same(start: Any) -> None:
    worker = start(program=TOLD + SOON, pool="shared", ends=True)  # perhaps before anybody sees that it registered
    assert worker.process.wait(60) == 0
    assert "starting another" not in worker.log.read_text()


def test_what_it_starts_has_the_same_options_and_import_path(
    start: Any, client: Client, crew_of: Any, eventually: Any, pytestconfig: pytest.Config
) -> None:
    """A launcher may set the path, so that the interpreter alone would not find this package."""
    code = """
        crew = Crew(tasks=[Task(name="t", run=lambda ctx: str(__import__("sys").flags))])
    """
    launcher = f"import sys\nsys.path[:] = {[*sys.path, str(pytestconfig.rootpath)]}\n{SOON}"
    python = getattr(sys, "_base_executable", sys.executable)
    worker = start(python, "-I", "-b", "-X", "utf8", program=launcher, pool="threads")
    eventually(lambda: only_waits(worker.pid), why="the parent only waits")
    os.kill(worker.main_pid(), signal.SIGKILL)
    flags = client.submit(crew_of(code)).wait(60).result
    assert worker.alive()
    assert "isolated=1" in flags
    assert "bytes_warning=1" in flags
    assert "utf8_mode=1" in flags


def test_a_hangup_under_nohup_ends_nothing(start: Any, client: Client, crew_of: Any, eventually: Any) -> None:
    worker = start("nohup", sys.executable, pool="prefork")
    workers, pool = children_of(worker.pid), worker.children()
    worker.signal_group(signal.SIGHUP)
    eventually(lambda: only_waits(worker.pid), why="the parent only waits")
    worker.signal_group(signal.SIGHUP)
    assert client.submit(f"{crew_of(CREWS)}:plainly").wait(60).result == "process"
    assert (children_of(worker.pid), worker.children()) == (workers, pool)
    worker.terminate()
    assert worker.process.wait(60) == 0


def test_a_worker_is_restarted_where_ended_children_are_ignored(
    start: Any, client: Client, crew_of: Any, eventually: Any
) -> None:
    ignoring = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    worker = start(program=ignoring + SOON, pool="shared")
    eventually(lambda: only_waits(worker.pid), why="the parent only waits")
    os.kill(worker.main_pid(), signal.SIGKILL)
    assert client.submit(f"{crew_of(CREWS)}:awaiting").wait(60).result == "thread"


def test_it_stays_what_it_is_when_it_cannot_be_the_other_program() -> None:
    pipes = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    error = waiting_parent.become(["/no/such/python"], {"pipes": pipes}, [])
    assert isinstance(error, FileNotFoundError)
    assert waiting_parent.become(["/bin/false"], {"pipes": pipes}, [signal.SIGTERM]) is None, "it was told meanwhile"
    assert not any(map(os.get_inheritable, pipes))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    for one in pipes:
        os.close(one)


STUBBORN = """
import os, signal, sys, time
from runner.providers.redis.connection import connect
from runner.tasks import waiting_parent

pid = os.fork()
if not pid:
    signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"asked\\n"))
    os.write(1, b"up\\n")
    while True:
        time.sleep(60)
pipes = [*os.pipe(), *os.pipe()]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
if {early}:
    os.kill(os.getpid(), signal.SIGTERM)
state = {{"pipes": pipes, "workers": [{{"pid": pid}}], "requests": [], "ends_within": {within}}}
waiting_parent.become([sys.executable, "-I", "-S", waiting_parent.__file__], state, [])
"""


@pytest.mark.parametrize(
    ("early", "within", "more"),
    [
        pytest.param(True, 0, 0, id="told while it became this program, and the worker does not end in time"),
        pytest.param(False, 3600, 3, id="told three times"),
    ],
)
def test_a_worker_that_does_not_end_is_killed(early: bool, within: int, more: int, eventually: Any) -> None:
    code = [sys.executable, "-c", STUBBORN.format(early=early, within=within)]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        eventually(lambda: only_waits(parent.pid), why="it only waits")
        for number in range(more):
            parent.send_signal(signal.SIGTERM)
            assert number == 2 or parent.stdout.readline() == "asked\n"
        assert parent.wait(60) == 0


UNABLE = """
import os
from runner.tasks import waiting_parent

pid = os.fork()
if not pid:
    os._exit(1)
workers = [{{"pid": pid, "due": 0}}]
state = {{"pipes": [*os.pipe(), *os.pipe()], "workers": workers, "requests": [], "program": [{program!r}]}}
waiting_parent.become([{python!r}, "-I", "-S", waiting_parent.__file__], state, [])
"""


def test_it_tries_again_where_the_other_program_cannot_be_run(tmp_path: Path) -> None:
    """As while an upgrade replaces the interpreter."""
    program = tmp_path / "python"
    code = [sys.executable, "-c", UNABLE.format(program=str(program), python=sys.executable)]
    with subprocess.Popen(code, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stderr is not None
        assert "no worker can be started: [Errno 2]" in parent.stderr.readline()
        program.symlink_to("/bin/true")
        assert parent.wait(60) == 0


def test_of_one_on_demand_it_keeps_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    workers = [{"pid": 0, "due": 0.0}, {"pid": 7, "due": 0.0}]
    state: dict[str, Any] = {"workers": workers, "requests": [], "silent": 60}
    lines = [{"part": 1, "now": False}, {"part": 1, "now": True}, {"part": 0, "digest": "d"}]
    waiting_parent._take_requests(b"".join(json.dumps(one).encode() + b"\n" for one in lines), state)
    assert [one["due"] for one in workers] == [65.0, 0.0]
    assert state["requests"] == lines[1:]
