"""The watch over a pool, in a process that has more files open than `select` can name."""

import subprocess
import sys

WATCHES = """
import os
import resource
import subprocess
import sys
import threading

from runner.core.settings import WorkerSettings
from runner.tasks.heartbeat import Heartbeat

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (2048 if most == resource.RLIM_INFINITY else min(most, 2048), most))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
child = subprocess.Popen([sys.executable, "-c", "input()"], **quiet)  # ends with us
freed, died = [], threading.Event()


def free(pid):
    freed.append(pid)
    died.set()


heartbeat = Heartbeat(
    sys.argv[1],
    "w",
    WorkerSettings(lease=60.0),
    about={},
    children=lambda: [] if freed else [child.pid],
    stop_here=None,
    restart=print,
    free_slot=free,
    slots=lambda: 1,
    queue=None,
    taken=int,
)
heartbeat.start()
assert heartbeat.registered.wait(20)
child.kill()
assert died.wait(10) and freed == [child.pid]
heartbeat.leave()
assert not heartbeat.is_alive()
print("seen")
"""


def test_it_watches_beyond_the_first_thousand_descriptors(server):
    done = subprocess.run(
        [sys.executable, "-c", WATCHES, server.url], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "seen"), done.stderr
