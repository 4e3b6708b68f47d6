"""How a process takes jobs of others, as long as it may."""

import subprocess
import sys

import pytest

from runner.bundles import own_directory

CODE = """
import os, threading
from types import SimpleNamespace

os.environ.update(RUNNER_WORKER_ID=f"w-{os.getpid()}", RUNNER_SHARED="3")
from runner.core.errors import Interrupted
from runner.core.jobs import Job
from runner.engine.sharing import code_of
from runner.tasks import sharing

sharing.ACTIVE = 10
sharing.share()
began, done, drained = [], threading.Semaphore(0), []
may_end = threading.Event()

def do(job):
    began.append((job, sharing.seat(), os.getcwd()))
    os.chdir("/usr")
    done.release()
    assert may_end.wait(60)

os.chdir("/")
process = sharing.SharedProcess(do, lambda: drained.append(1), lambda: None)
claim = SimpleNamespace(bundle="b", module="m", attr="a", adapter="none", standin="")
code, jobs = code_of("b", "m", "a", "none"), [Job("r", "main", f"t{n}", 1) for n in range(6)]

# nobody is there, then nobody of this code
assert not any(sharing.codes[:]) and not sharing.hand_over(jobs[0], code)
assert process._may_open(claim)
process._open(claim, None)
assert process.is_open and any(sharing.codes[:])
assert not sharing.hand_over(jobs[0], code_of("b", "m", "other", "none"))

# as many as there may be, each in a thread with a working directory of its own
assert [sharing.hand_over(job, code) for job in jobs[:4]] == [True, True, True, False]
for _ in range(3):
    assert done.acquire(timeout=60)
assert sorted(began, key=lambda one: one[1]) == [(job, seat, "/") for seat, job in enumerate(jobs[:3])], began
assert os.getcwd() == "/"

# where those that are there do not wait, and another core is free, another process is to do it
sharing.ACTIVE, sharing.capacity.processes = 1, lambda: 2
assert not sharing.hand_over(jobs[3], code)
sharing.ACTIVE = 10

# a crew that turns out to be another one ends that; if the process was changed, all tasks are handed back
def refused(*_):
    raise Interrupted("no")

sharing.sharing.check = refused
for changed in (False, True):
    sharing.adapters.is_unchanged = lambda name: not changed
    try:
        process.read(claim, None, lambda: None)
    except Interrupted:
        pass
    assert drained == [1] * changed
assert not any(sharing.codes[:]) and not sharing.hand_over(jobs[4], code)

# and the process ends with the last of them
waits = threading.Thread(target=process.wait_until_empty)
waits.start()
waits.join(0.05)
assert waits.is_alive()
may_end.set()
waits.join(60)
assert not waits.is_alive() and len(began) == 3
"""


@pytest.mark.skipif(not own_directory.is_possible(), reason="the system does not let a thread have a directory")
def test_a_process_takes_jobs_of_its_code_while_it_has_room_and_ends_with_the_last() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
