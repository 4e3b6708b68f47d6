"""What a test started is gone soon after the test's process is, however that ended."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner.testing import eventually

STARTS = """
import sys, time
from runner.testing import Fleet, RedisServer

server = RedisServer()
server.start()
fleet = Fleet(server.url)
worker = fleet.start(wait=False)
sent = Fleet(server.url).popen("supervisor")
print(server.process.pid, worker.pid, sent.pid, server.folder, fleet.folder, flush=True)
sys.stdin.read()
if "orderly" in sys.argv:
    worker.kill_group()
    for _ in range(40):  # who is told again forgets nobody, and keeps nothing
        server.kill()
"""


@pytest.mark.parametrize("ends", ["killed", "orderly"])
def test_nothing_stays(ends):
    with subprocess.Popen(
        [sys.executable, "-c", STARTS, ends],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        said = process.stdout.readline().split()
        started, folders = list(map(int, said[:3])), list(map(Path, said[3:]))
        assert len(started) == 3
        assert all(map(runs, started))
        if ends == "killed":
            process.send_signal(signal.SIGKILL)
        said = process.communicate()[1]
    eventually(lambda: not any(map(runs, started)), why="all have ended")
    eventually(lambda: not any(folder.exists() for folder in folders), why="all is removed")
    assert not said


@pytest.mark.usefixtures("started_afresh")
def test_a_worker_that_is_killed_leaves_no_folder(fleet, tmp_path):
    worker = fleet.start("--concurrency", "2", TMPDIR=str(tmp_path))
    eventually(lambda: len(worker.children()) == 2, why="the pool is up")
    worker.kill_group()
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False
